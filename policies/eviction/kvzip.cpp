// Keeps what the model attends as it repeats the prompt in a second pass.
#include <algorithm>
#include <array>
#include <limits>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"
#include "policies/parts/rows/repeated_prompt.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::kvzip {
namespace {

class KvZip final : public ScoredEviction {
 public:
  KvZip(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit), file_(params.word("file")), plus_(params.flag("plus")) {}

 private:
  std::vector<double> score(const Prompt& prompt) override {
    const std::size_t n = prompt.length(), end = prompt.first() + n, group = heads();
    const std::string table = std::to_string(end) + (plus_ ? "/scaled" : "/attention");
    if (!unit().tables) bug("kvzip runs where no tables are");
    const std::vector<float> paid = unit().tables->of_head(file_, table, unit().layer, unit().first_kv_head,
                                                           std::array{group, Tables::kPositions});
    if (paid.size() != group * end)
      input_error(
          "has " + std::to_string(paid.size() / group) + " positions, the prompt " + std::to_string(end),
          file_ + ":/" + table, "It was made for another run.");
    std::vector<double> out(n);
    double most = 0;
    for (std::size_t g = 0; g < group; ++g) {
      std::vector<double> norms(n, 1.0);
      if (plus_)
        norms =
            projected_norms(prompt.values(0), prompt.output_weights(static_cast<int>(g)), Norm::euclidean);
      for (std::size_t j = 0; j < n; ++j) {
        const float x = paid[g * end + prompt.first() + j];
        if (x == kAlwaysKept) continue;
        out[j] = std::max(out[j], static_cast<double>(x) * norms[j]);
        most = std::max(most, out[j]);
      }
    }
    for (std::size_t j = 0; j < n; ++j)
      if (paid[prompt.first() + j] == kAlwaysKept) out[j] = most + 1;
    return out;
  }

  std::size_t heads() const { return static_cast<std::size_t>(unit().n_query_heads()); }
  /// Of positions that the model was not asked to repeat (traces/capture/second_pass.hpp).
  static constexpr float kAlwaysKept = std::numeric_limits<float>::max();

  std::string file_;
  bool plus_;
};

Needs needs_of(const Params& params) {
  const bool plus = params.flag("plus");
  return {.values = plus, .output_weights = plus, .second_pass = params.is("file", Tables::kOfRun)};
}

/// Rows of the second pass over keys of the prompt, of which the largest count, beside that pass.
Cost cost_of(const Params& params, const CostShape& shape) {
  Work scores = over_keys(shape, shape.prompt, 0);
  const double pairs = real(shape.query_heads) * real(shape.prompt) * real(shape.prompt);
  scores.flops = 2 * pairs * real(shape.head_dim);
  scores.ops = 3 * pairs;
  if (params.flag("plus")) scores = scores + projected_values(shape);
  Cost out = scored_cost(params, shape, prompt_scoring(0, scores));
  out.repeated_at_once = kRepeatedAtOnce;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "kvzip",
      .summary = "keeps what the model attends as it repeats the prompt in a second pass",
      .paper =
          "Kim, Kim, Kwon, Lee, Yun, Song, KVzip: Query-Agnostic KV Cache Compression with Context "
          "Reconstruction, NeurIPS 2025, https://arxiv.org/abs/2505.23416",
      .details =
          "After the prompt the model is asked to repeat what stands before the cut, in chunks of 2,000 tokens. "
          "Score of a position: the largest attention that any row of the pass and any query head of the group "
          "pays to it, in a softmax over the chat template before the text, the chunk and the pass so far. "
          "plus=true (KVzip+): each row divided by the length of what enters its layer's attention, each "
          "position multiplied by the length of its value after the output projection. A chat template's tokens "
          "always stay. kvzip+one_threshold is the whole method: one threshold for all layers and heads. "
          "kvsim evaluate runs the second pass itself; a replay reads it from a file that kvsim capture "
          "--second-pass has written. Generated tokens are appended.",
      .departures =
          {{"authors' code: keeps what is strictly above a threshold, up to two tokens fewer than asked",
            "exactly the budget"},
           {"authors' code: the template's tokens are outside the ratio", "inside the budget"},
           {"kvpress: chunks of 2,048, four tokens that always stay, no others of the template",
            "the authors'; sinks=4 protects four"}},
      .params = {word_param("file", std::string(Tables::kOfRun),
                            "HDF5 file of a second pass; run: the one that kvsim evaluate makes"),
                 flag_param("plus", "false",
                            "KVzip+: weighs rows by their length and positions by their value"),
                 sinks_param(0), window_param(0), ranked_tie_param()},
      .needs = {.values = true, .output_weights = true, .second_pass = true},
      .needs_of = needs_of,
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<KvZip>}};
}

}  // namespace kvsim::policy::kvzip
