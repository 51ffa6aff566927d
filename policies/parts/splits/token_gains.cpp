#include "policies/parts/splits/token_gains.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy {
namespace {

/// The positions a lane keeps as its budget grows.
class Growing {
 public:
  explicit Growing(std::vector<double> worth)
      : worth_(std::move(worth)), kept_(worth_.size()), best_first_(largest_first(worth_)) {}

  /// Returns the sum of the positions added since the last call, protecting `held`.
  double grow(std::size_t budget, Protection held) {
    double gain = 0;
    const std::size_t n = worth_.size();
    held = {std::min(held.sinks, n), std::min(held.window, n)};
    for (; held_.sinks < held.sinks; ++held_.sinks) gain += keep(held_.sinks);
    for (; held_.window < held.window; ++held_.window) gain += keep(n - 1 - held_.window);
    if (n_kept_ > budget) bug("more is protected than the budget holds");
    const double pinned = gain;
    for (; n_kept_ < budget; ++next_) gain += keep(best_first_[next_]);
    chosen_ = gain - pinned;
    return gain;
  }
  /// Of what grow() has returned last, what is not protected.
  double chosen() const { return chosen_; }

 private:
  double keep(std::size_t position) {
    if (kept_[position]) return 0;
    kept_[position] = 1;
    ++n_kept_;
    return worth_[position];
  }

  std::vector<double> worth_;
  std::vector<char> kept_;
  std::vector<std::size_t> best_first_;
  std::size_t n_kept_ = 0, next_ = 0;
  Protection held_;
  double chosen_ = 0;
};

/// Averages neighbours that rise until the gains no longer rise.
std::vector<double> levelled(const std::vector<double>& gains) {
  struct Run {
    double mean;
    std::size_t n;
  };
  std::vector<Run> runs;
  for (const double gain : gains) {
    Run run{gain, 1};
    for (; !runs.empty() && runs.back().mean < run.mean; runs.pop_back()) {
      const auto before = static_cast<double>(runs.back().n), after = static_cast<double>(run.n);
      run = {(runs.back().mean * before + run.mean * after) / (before + after), runs.back().n + run.n};
    }
    runs.push_back(run);
  }
  std::vector<double> out;
  out.reserve(gains.size());
  for (const Run& run : runs) out.insert(out.end(), run.n, run.mean);
  return out;
}

}  // namespace

TokenGains token_gains(const AllocationRequest& request, std::span<const double> worth, std::size_t layer) {
  const std::size_t prompt = request.held_in(layer), left = request.prompt - prompt;
  if (worth.size() > prompt) bug("a lane has more scores than the prompt has positions");
  if (std::any_of(worth.begin(), worth.end(), [](double x) { return std::isnan(x); }))
    input_error("a score is not a number", "scores of a lane, for an allocation",
                "The run holds values that are not finite.");
  std::vector<double> of_prompt(worth.begin(), worth.end());
  of_prompt.resize(prompt);
  Growing lane(std::move(of_prompt));
  const auto held = [&](std::size_t budget) {
    Protection out = request.protection ? request.protection(budget, prompt) : Protection{};
    out.sinks -= std::min(out.sinks, left);  // the window has left the others behind
    return out;
  };
  TokenGains out;
  const std::size_t floor = std::min(request.floor, prompt);
  out.at_floor = lane.grow(floor, held(floor));
  out.chosen_at_floor = lane.chosen();
  for (std::size_t budget = floor + 1; budget <= prompt; ++budget)
    out.above.push_back(lane.grow(budget, held(budget)));
  out.above = levelled(out.above);
  return out;
}

}  // namespace kvsim::policy
