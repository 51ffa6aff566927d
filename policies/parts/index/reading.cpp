#include "policies/parts/index/reading.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "sim/base/cap_logits.hpp"
#include "sim/base/dot.hpp"

namespace kvsim::policy {

ParamSpec read_param(const std::string& fallback) {
  return amount_param("read", fallback,
                      "tokens that a query reads, or their share of what is stored, rounded up", "tokens");
}

ParamSpec dense_param(std::size_t fallback) {
  return count_param("dense", std::to_string(fallback), {0, 1024}, "first layers, which read everything",
                     "layers");
}

ReadCount dense_reads(std::size_t stored) {
  return {.head_tokens = static_cast<double>(stored), .lane_tokens = static_cast<double>(stored)};
}

ReadCount chosen_reads(const CostShape& shape, std::size_t stored, double head_tokens) {
  const auto all = static_cast<double>(stored);
  const double group = static_cast<double>(shape.query_heads) / static_cast<double>(shape.kv_heads);
  const double head = std::min(all, head_tokens);
  return {.head_tokens = head, .lane_tokens = std::min(all, head * group)};
}

ReadCount read_by_head(const Params& params, const CostShape& shape, std::size_t stored) {
  return chosen_reads(shape, stored, static_cast<double>(read_of(params).of(stored)));
}

void highest_scores(std::span<const float> scores, std::size_t count, std::vector<std::size_t>& out) {
  out.resize(scores.size());
  std::iota(out.begin(), out.end(), std::size_t{0});
  if (count >= out.size()) return;
  // A score that is not a number ranks below all others.
  const auto rank = [&](std::size_t i) {
    return std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];
  };
  std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(),
                   [&](std::size_t a, std::size_t b) {
                     const float first = rank(a), second = rank(b);
                     return first != second ? first > second : a > b;
                   });
  out.resize(count);
}

void exact_scores(const Asking& asking, std::size_t head, const StoredTokens& tokens, std::size_t lane,
                  std::vector<float>& scores) {
  const std::span<const float> query = asking.queries.row(head);
  scores.resize(tokens.slots());
  for (std::size_t slot = 0; slot < tokens.slots(); ++slot) {
    scores[slot] =
        static_cast<float>(asking.scale) * dot(query.data(), tokens.key(lane, slot).data(), query.size());
    cap_logits(&scores[slot], 1, asking.cap);
    scores[slot] += tokens.bias(lane, slot);
  }
}

}  // namespace kvsim::policy
