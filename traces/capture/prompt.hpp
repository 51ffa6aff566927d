#pragma once
/// Loads the prompt of a capture as token ids.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "traces/capture/capture.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::capture {

/// A run of its own that gives keys and values to a prompt.
struct PieceRun {
  std::vector<std::int32_t> ids;
  bool document = false;  ///< of the prompt, alone; else of the text before an edit
};

struct Prompt {
  std::vector<std::int32_t> ids;  ///< at least one, all in the model's vocabulary
  std::optional<model::Tokenizer>
      tokenizer;  ///< absent if ids were given and the checkpoint has no tokenizer that loads
  /// Token flags of the parts of a workload's item, one per id; empty if the parts are not known.
  std::vector<std::uint32_t> part_flags;
  std::vector<std::int32_t> given{};  ///< ids of options.given_file, which follow the prompt
  // Of a workload's item.
  std::vector<std::string> answers{};
  std::string workload{}, workload_item{};  ///< kind and id
  /// Where options.pieces asks for them: what stands before the first document and each document, behind the
  /// token that the tokenizer puts before every text, without the prompt's last token; then the prompt's
  /// earlier version.
  std::vector<PieceRun> pieces{};
};

/// Reads options.prompt_file, options.tokens_file or an item of options.workload_file, and
/// options.given_file. Throws Error(input); a problem that affects only the text becomes a note.
Prompt load_prompt(const CaptureOptions& options, const model::ModelConfig& config,
                   std::vector<std::string>& notes);

/// Throws Error(usage) unless prompt and new tokens fit into the model's context.
void check_context(std::uint64_t prompt, std::uint64_t max_new_tokens, std::uint64_t context);

// Reads a file of token ids: a JSON array of integers, or integers separated by white space.

/// Throws Error(input) naming `where` and the index of an entry that is not an id below `vocab_size`.
std::vector<std::int32_t> parse_token_ids(std::string_view text, std::uint64_t vocab_size,
                                          const std::string& where);

}  // namespace kvsim::capture
