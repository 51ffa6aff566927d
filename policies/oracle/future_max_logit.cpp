// Locret's training label, taken from the real continuation.
#include <algorithm>
#include <limits>

#include "policies/api/score_policy.hpp"
#include "policies/parts/oracles/label_oracle.hpp"
#include "policies/parts/oracles/mass_ahead.hpp"

namespace kvsim::policy::future_max_logit {
namespace {

/// Returns [cols, rows], so that one component of all keys is contiguous.
std::vector<float> transposed(const MatrixView& m) {
  std::vector<float> out(m.rows * m.cols);
  for (std::size_t i = 0; i < m.rows; ++i)
    for (std::size_t j = 0; j < m.cols; ++j) out[j * m.rows + i] = m(i, j);
  return out;
}

class FutureMaxLogit final : public LabelOracle {
 public:
  FutureMaxLogit(const Params& params, const CacheUnit& unit) : LabelOracle(params), unit_(unit) {}

 private:
  std::vector<double> label(const Future& future, std::size_t horizon) override {
    std::vector<double> out(future.attention().cols, -std::numeric_limits<double>::infinity());
    for (int lane = 0; lane < unit_.n_lanes; ++lane) {
      const std::vector<float> components = transposed(future.keys(lane));
      for (int head = lane * unit_.group; head < (lane + 1) * unit_.group; ++head)
        raise(out, future, future.queries(head), components, horizon);
    }
    return out;
  }

  /// Sets out[j] to the max with scale * q_s . k_j over the steps s that see j and lie within its horizon.
  static void raise(std::vector<double>& out, const Future& future, const MatrixView& queries,
                    const std::vector<float>& components, std::size_t horizon) {
    const MatrixView attention = future.attention();
    const std::size_t n_tokens = attention.cols, first = future.first_position();
    std::vector<double> logits(n_tokens);
    for (std::size_t s = 0; s < attention.rows; ++s) {
      const std::size_t n_earlier = first + s;
      std::fill(logits.begin(), logits.end(), 0.0);
      for (std::size_t d = 0; d < queries.cols; ++d) {
        const auto q = static_cast<double>(queries(s, d));
        const float* component = components.data() + d * n_tokens;
        for (std::size_t j = 0; j < n_earlier; ++j) logits[j] += q * static_cast<double>(component[j]);
      }
      for (std::size_t j = 0; j < n_earlier; ++j) {
        const std::size_t joined = j < future.prompt() ? 0 : j - first + 1;  // first step after j
        // Attention of exactly 0 means that the sliding window no longer covers the token.
        if (s - joined < horizon && attention(s, j) > 0)
          out[j] = std::max(out[j], future.scale() * logits[j]);
      }
    }
  }

  CacheUnit unit_;
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "future_max_logit",
      .summary = "ranks by the largest logit of the real continuation, the label Locret is trained on",
      .paper =
          "Huang, Yuan, Han, Xiao, Liu, Locret: Accelerating Long-Context LLM Inference with Retaining "
          "Heads, 2024, https://arxiv.org/abs/2410.01805",
      .details =
          "Label of a token: the largest scale * q.k, before softmax, over the generated tokens' queries "
          "that attend it and over the unit's query heads; at cut prompt those of the last prompt token, "
          "which is asked again, count, too. The prompt keeps the highest labels; what Locret's heads would "
          "keep if they predicted their label without error.",
      .departures =
          {{.theirs = "Locret cuts the prompt chunk by chunk and forces the newest tokens of each chunk "
                      "(stabilizers) and the last 100 prompt tokens to stay",
            .ours = "the finished prompt is cut at once, by label alone"},
           {.theirs = "generated tokens are appended and never dropped",
            .ours = "generated=append does that; generated=evict drops the lowest label from a full cache"}},
      .params = {horizon_param(), generated_param("append"), unit_param("lane")},
      .needs = {.queries = true},
      .rule = OracleRule{.appends = label_oracle_appends, .make = made<FutureMaxLogit>}};
}

}  // namespace kvsim::policy::future_max_logit
