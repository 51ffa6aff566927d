#pragma once
/// The second pass of KVzip (Kim, Kim, Kwon, Lee, Yun, Song, arXiv 2505.23416): asked to repeat its prompt,
/// the model reads it once more behind itself, and what it attends meanwhile says which tokens it needs.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/sequence.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::capture {

/// What no row of the pass was to repeat, and every cache keeps: a chat template's tokens around the text.
inline constexpr float kAlwaysKept = std::numeric_limits<float>::max();

struct SecondPass {
  std::uint64_t prompt = 0;  ///< tokens
  std::uint64_t group = 1;   ///< query heads per KV head
  /// [n_layers, n_kv_heads, group, prompt]: the largest attention that a row of the pass pays to a position
  /// of the chunk that it repeats, and the largest of the same divided by the length of what enters
  /// the row's attention (KVzip+). kAlwaysKept where nothing was repeated.
  std::vector<float> attention, scaled;
  /// [n_layers, n_kv_heads, group, rows, head_dim]: of the rows that read the text once more, in its order;
  /// empty unless they were asked for.
  std::vector<float> queries{};
};

struct SecondPassOptions {
  Elem elem = Elem::f32;              ///< of the cache, as the prompt was run with
  std::uint64_t positions = 0;        ///< that the run of the prompt was to reach
  std::uint64_t prefill_chunk = 512;  ///< tokens per pass of the model
  std::uint64_t repeat_chunk = 2000;  ///< tokens that are repeated at once, as the paper has it
  unsigned threads = 0;
  bool queries = false;  ///< give them, too
};

/// `run`: of the prompt up to its cut, with keys, values and token ids. The model is asked to repeat what
/// stands before the cut, chunk by chunk: a request, the end of the chat template (a line break without one),
/// then the chunk. A row sees the template's tokens before the text, its chunk and what came in the pass so
/// far, as one softmax. Throws Error(usage) where the model has layers with a sliding window, for which the
/// paper has no rule, or where the pass is longer than its context.
SecondPass second_pass(const trace::Sequence& run, const model::Tokenizer& tokenizer,
                       const model::ModelConfig& config, const model::Weights& weights,
                       const SecondPassOptions& options, Progress& progress);

/// Writes passes over one prompt at several cuts: "N/attention" and "N/scaled", N being the tokens before a
/// cut, [n_layers, n_kv_heads, group, N], and "N/queries" where the passes have them.
void write_second_passes(const std::string& path, bool overwrite, const trace::Model& model,
                         const std::vector<SecondPass>& passes);

}  // namespace kvsim::capture
