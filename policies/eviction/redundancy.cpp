// Keeps what is attended and unlike the rest.
#include <algorithm>
#include <limits>

#include "policies/api/score_policy.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/logits.hpp"
#include "policies/parts/rows/norms.hpp"
#include "policies/parts/rows/pooling.hpp"
#include "sim/base/cap_logits.hpp"
#include "sim/base/dot.hpp"

namespace kvsim::policy::redundancy {
namespace {

class Redundancy final : public ScoredEviction {
 public:
  Redundancy(const Params& params, const CacheUnit& unit)
      : ScoredEviction(params, unit),
        window_(params.count("window")),
        pooling_(Pooling::parse(params.word("pool"))),
        weight_(params.real("lambda")),
        alike_(static_cast<float>(params.real("alike"))) {}

 private:
  /// The window is protected and needs no score.
  std::vector<double> score(const Prompt& prompt) override {
    const std::size_t n = prompt.length(), older = n - std::min(window_, n);
    std::vector<double> out(n);
    if (older == 0) return out;
    const std::vector<double> attended = pooled(pooling_, importance(prompt, older));
    const std::vector<double> like = likeness(prompt.keys(0));
    for (std::size_t j = 0; j < older; ++j) out[j] = weight_ * attended[j] - (1 - weight_) * like[j];
    return out;
  }

  /// Attention of the window's rows on the positions before it, of the largest logit of a group's heads.
  std::vector<double> importance(const Prompt& prompt, std::size_t older) const {
    const MatrixView keys = prompt.keys(0);
    const DotRows products(keys.data, keys.stride, older, keys.cols);
    std::vector<double> out(older), row(older), product(older);
    for (std::size_t i = older; i < prompt.length(); ++i) {
      std::fill(row.begin(), row.end(), -std::numeric_limits<double>::infinity());
      for (int head = 0; head < unit().group; ++head) {
        products.products(prompt.queries(head).row(i).data(), older, product.data());
        for (std::size_t j = 0; j < older; ++j)
          row[j] = std::max(row[j], capped(prompt.scale() * product[j], prompt.cap()));
      }
      softmax(row);
      for (std::size_t j = 0; j < older; ++j) out[j] += row[j] / static_cast<double>(prompt.length() - older);
    }
    return out;
  }

  /// Softmax over all keys of the mean cosine with each; the newest that is alike counts as unlike.
  std::vector<double> likeness(const MatrixView& keys) const {
    constexpr std::size_t kRows = 8;  // that pass over all keys together
    const std::size_t n = keys.rows;
    std::vector<float> columns(keys.cols * n),
        cosines(kRows * n);  // keys of length 1, component by component
    for (std::size_t j = 0; j < n; ++j) {
      const double length = euclidean_norm(keys.row(j));
      for (std::size_t c = 0; c < keys.cols && length > 0; ++c)
        columns[c * n + j] = static_cast<float>(static_cast<double>(keys(j, c)) / length);
    }
    std::vector<double> out(n);
    for (std::size_t first = 0; first < n; first += kRows) {
      const std::size_t rows = std::min(kRows, n - first);
      std::fill(cosines.begin(), cosines.end(), 0.0F);
      for (std::size_t c = 0; c < keys.cols; ++c)
        for (std::size_t i = 0; i < rows; ++i) {
          const float component = columns[c * n + first + i];
          for (std::size_t j = 0; j < n; ++j) cosines[i * n + j] += component * columns[c * n + j];
        }
      for (std::size_t i = 0; i < rows; ++i) {
        float* const row = cosines.data() + i * n;
        row[first + i] = 0;
        std::size_t newest = n - 1;
        while (newest > 0 && row[newest] <= alike_) --newest;
        row[newest] = 0;
        for (std::size_t j = 0; j < n; ++j) out[j] += static_cast<double>(row[j]) / static_cast<double>(n);
      }
    }
    softmax(out);
    return out;
  }

  std::size_t window_;
  Pooling pooling_;
  double weight_;
  float alike_;
};

/// Logits of the window's queries, and the products of all pairs of keys.
Cost cost_of(const Params& params, const CostShape& shape) {
  const double prompt = real(shape.prompt), lanes = real(shape.kv_heads), pairs = lanes * prompt * prompt;
  const double logits =
      real(std::min(params.count("window"), shape.prompt)) * real(shape.query_heads) * prompt;
  Work scores = over_keys(shape, shape.prompt, 2);
  scores.flops = 2 * real(shape.head_dim) * (pairs + logits);
  scores.ops += 3 * pairs + 6 * logits;
  scores.bytes += kScoreBytes * pairs;
  scores.launches = 4;
  Scoring scoring = prompt_scoring(0, scores);
  scoring.scratch = whole_bytes(kScoreBytes * pairs);
  return scored_cost(params, shape, scoring);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "redundancy",
      .summary = "keeps what the last rows attend and what is unlike other keys: R-KV's score",
      .paper = "Cai et al., R-KV, arXiv 2025, https://arxiv.org/abs/2505.24133",
      .details =
          "Score of a position before the window: lambda times its attention minus (1 - lambda) times its likeness. Attention: "
          "of every row of the window the largest logit of the group's query heads, softmax over the positions before the "
          "window, mean over rows, pooled. Likeness: cosines between all keys, window included; in each row the newest key "
          "with a cosine above `alike` counts 0 (the first key where there is none); means over rows, softmax over all keys. "
          "Generated tokens are appended; r_kv cuts them, too.",
      .departures = {{"authors' code: lambda is 0.07 in the class and 0.1 in the README and the paper",
                      "0.1"}},
      .params = {window_param(8, 1), pool_param("pool", "max:7", "smoothing of attention along positions"),
                 real_param("lambda", "0.1", {0, 1}, "weight of attention; the rest is of likeness"),
                 real_param("alike", "0.5", {-1, 1}, "cosine above which two keys are alike"), sinks_param(0),
                 granularity_param(), ranked_tie_param()},
      .needs = {.keys = true, .queries = true},
      .cost = cost_of,
      .rule = EvictionRule{.scored = true, .make = made<Redundancy>}};
}

}  // namespace kvsim::policy::redundancy
