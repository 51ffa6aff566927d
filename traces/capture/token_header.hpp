#pragma once
/// What a header says of the tokens of a run, and of the type they are cached in.
#include <cstdint>
#include <string>
#include <vector>

#include "traces/capture/prompt.hpp"
#include "traces/format/header.hpp"
#include "traces/model/generation.hpp"
#include "traces/model/model_config.hpp"

namespace kvsim::capture {

/// The flag that an id alone decides: special, as tokens that end a text are, or the kind of its text; 0:
/// other.
std::uint32_t token_flag(std::int32_t id, const model::Tokenizer& tokenizer,
                         const model::ModelConfig& config);

/// Ids, positions 0, 1, 2, ..., segments, flags and text of `tokens`, which begin with the prompt's. Without
/// a tokenizer the text and the kind of a token are not known; the parts of a prompt are known of workloads
/// only.
void describe_tokens(trace::Header& header, const std::vector<std::int32_t>& tokens, const Prompt& prompt,
                     const model::ModelConfig& config);

/// One sequence of `total` tokens: a prompt, and what was generated or forced after it.
void describe_segments(trace::Header& header, std::uint64_t prompt, std::uint64_t total, bool forced);

/// A run behind those that the header describes: a segment and a sequence of its own, whose passes follow.
void describe_piece(trace::Header& header, const PieceRun& piece, const model::Generation& run,
                    const Prompt& prompt, const model::ModelConfig& config);

/// f32 | bf16 | f16 | auto: the element type of a cache, for a run of a checkpoint that computes in
/// `compute`. Throws Error(usage) about --elem.
Elem parse_cache_elem(const std::string& text, Elem checkpoint, Elem compute);

}  // namespace kvsim::capture
