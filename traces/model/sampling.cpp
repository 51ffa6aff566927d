#include "traces/model/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::model {
namespace {

/// The ids that pass top-k, most probable first.
std::vector<std::int32_t> likeliest(std::span<const float> logits, std::uint64_t top_k) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  };
  const std::uint64_t n = top_k == 0 ? ids.size() : std::min<std::uint64_t>(top_k, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end(), before);
  ids.resize(n);
  return ids;
}

}  // namespace

void check_sampling(const Sampling& sampling) {
  if (!std::isfinite(sampling.temperature) || sampling.temperature < 0)
    usage_error("must be a number of at least 0, 0 being greedy", "--temperature");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) usage_error("must be above 0 and at most 1", "--top-p");
  if (sampling.temperature > 0) return;
  constexpr const char* kNeedless = "means nothing to greedy decoding";
  constexpr const char* kHint = "Add --temperature T, such as 1.";
  if (sampling.top_k != 0) usage_error(kNeedless, "--top-k", kHint);
  if (sampling.top_p != 1) usage_error(kNeedless, "--top-p", kHint);
  if (sampling.seed != 0) usage_error(kNeedless, "--seed", kHint);
}

std::string sampling_text(const Sampling& sampling) {
  if (sampling.temperature == 0) return "greedy";
  std::string text = "temperature " + shortest(sampling.temperature);
  if (sampling.top_k != 0) text += ", top-k " + std::to_string(sampling.top_k);
  if (sampling.top_p < 1) text += ", top-p " + shortest(sampling.top_p);
  return text;
}

std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, std::uint64_t step) {
  if (sampling.temperature == 0)
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<std::int32_t> ids = likeliest(logits, sampling.top_k);
  const double largest = double{logits[ids[0]]};
  std::vector<double> cumulative(ids.size());
  double sum = 0;
  for (std::size_t i = 0; i < ids.size(); ++i)
    cumulative[i] = sum += std::exp((double{logits[ids[i]]} - largest) / sampling.temperature);
  const auto last = std::lower_bound(cumulative.begin(), cumulative.end() - 1, sampling.top_p * sum);
  const double u = uniform01(combine({sampling.seed, key_of("sampling"), step}));
  return ids[static_cast<std::size_t>(std::upper_bound(cumulative.begin(), last, u * *last) -
                                      cumulative.begin())];
}

LogProbabilities::LogProbabilities(std::span<const float> logits)
    : logits_(logits), largest_(*std::max_element(logits.begin(), logits.end())) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest_);
  log_sum_ = std::log(sum);
}

bool LogProbabilities::finite() const {
  return std::isfinite(log_sum_);
}

float LogProbabilities::of(std::int32_t id) const {
  return static_cast<float>((double{logits_[static_cast<std::size_t>(id)]} - largest_) - log_sum_);
}

}  // namespace kvsim::model
