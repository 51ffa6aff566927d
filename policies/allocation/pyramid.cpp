// Lower layers get more.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/api/allocation.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {
namespace {

/// Whole numbers near `ideal` that sum to `total`: floors, then one more where the remainder is largest (the
/// earlier first among equals).
std::vector<std::size_t> largest_remainder(const std::vector<double>& ideal, std::size_t total) {
  std::vector<std::size_t> out(ideal.size());
  std::transform(ideal.begin(), ideal.end(), out.begin(),
                 [](double x) { return static_cast<std::size_t>(std::floor(x)); });
  std::vector<std::size_t> order(ideal.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto remainder = [&](std::size_t i) { return ideal[i] - static_cast<double>(out[i]); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainder(a) > remainder(b); });
  const std::size_t missing = total - std::accumulate(out.begin(), out.end(), std::size_t{0});
  for (std::size_t i = 0; i < missing; ++i) ++out[order[i]];
  return out;
}

class Pyramid final : public Allocation {
 public:
  explicit Pyramid(double beta) : beta_(beta) {}

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    check_budget(request);
    const std::size_t budget = std::min(request.budget, request.prompt);
    const std::size_t floor = std::min(request.floor, request.prompt);
    const std::vector<std::size_t> above =
        largest_remainder(slope(static_cast<double>(budget - floor),
                                static_cast<double>(request.prompt - floor), request.n_layers),
                          (budget - floor) * request.n_layers);
    return per_lane(above, floor, request.n_kv_heads);
  }

 private:
  /// Straight line over the layers with mean `mean`, last layer mean / beta, first layer at most `most`.
  std::vector<double> slope(double mean, double most, std::size_t n_layers) const {
    const double first = std::min(2 * mean - mean / beta_, most), last = 2 * mean - first;
    std::vector<double> out(n_layers, mean);
    for (std::size_t i = 0; n_layers > 1 && i < n_layers; ++i)
      out[i] = first - (first - last) * static_cast<double>(i) / static_cast<double>(n_layers - 1);
    return out;
  }

  double beta_;
};

}  // namespace

PolicySpec pyramid_spec() {
  return {
      .name = "pyramid",
      .kind = Kind::allocation,
      .summary = "budgets fall linearly from the first layer to the last",
      .paper =
          "Cai, Zhang, Gao, Liu, Li, Liu, Lu, Xiong, Dong, Hu, Xiao, PyramidKV: Dynamic KV Cache "
          "Compression based on Pyramidal Information Funneling, arXiv 2024, "
          "https://arxiv.org/abs/2406.02069",
      .details =
          "With m the mean budget above the eviction's floor, the last layer gets m / beta above it, the "
          "first 2m - m / beta, and those between lie on the line; no layer gets more than the prompt, and "
          "then the line is flatter. Whole numbers by largest remainder, so the total is exact.",
      .departures = {{"KVCache-Factory rounds down step by step and spends up to 4 % more than it was given; "
                      "kvpress rounds each layer",
                      "exact total, largest remainder"},
                     {"codes fall back to equal budgets in several cases",
                      "only when the budget covers the prompt"}},
      .params = {{.name = "beta",
                  .type = ParamType::real,
                  .fallback = "20",
                  .min = 1,
                  .max = 1e6,
                  .help = "mean budget over the last layer's; 1 is uniform"}},
      .make_allocation = [](const Params& params) { return std::make_unique<Pyramid>(params.real("beta")); }};
}

}  // namespace kvsim::policy
