// R(n), ISR(n) and its slope, layer by layer.
#include <algorithm>
#include <cmath>

#include "analysis/kinds/importance_settings.hpp"
#include "analysis/kinds/retention_curve.hpp"

namespace kvsim::analysis {
namespace {

/// 1, 2, ... in steps of a factor 2^(1 / points), the asked shares of `most`, and `most`: ascending, each
/// once.
std::vector<std::uint64_t> sizes_to_show(std::size_t most, std::uint64_t points,
                                         const std::vector<double>& shares) {
  const auto all = static_cast<double>(most);
  std::vector<std::uint64_t> sizes{most};
  for (double k = 0, n = 1; n < all; n = std::round(std::exp2(++k / static_cast<double>(points))))
    sizes.push_back(static_cast<std::uint64_t>(n));
  for (const double share : shares)
    sizes.push_back(static_cast<std::uint64_t>(std::max(std::round(share * all), 1.0)));
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<std::vector<Value>> measure_retention(const Measurement& of) {
  const std::uint64_t points = of.settings.count("points");
  const std::vector<double> shares = of.settings.shares("shares");
  const std::vector<std::vector<double>> layers = importance_of(of);
  const std::vector<std::uint64_t> sizes = sizes_to_show(layers[0].size(), points, shares);
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t layer = 0; layer < layers.size(); ++layer) {
    const RetentionCurve curve(layers[layer]);
    for (const std::uint64_t n : sizes)
      rows.push_back({of.trace, layer, n, static_cast<double>(n) / static_cast<double>(curve.size()),
                      value_of(curve.retained(n)), value_of(curve.per_bit(n)), value_of(curve.slope(n))});
  }
  return rows;
}

}  // namespace

Kind retention_kind() {
  Kind kind;
  kind.name = "retention";
  kind.summary = "How much importance the n largest positions of each layer retain, by n";
  kind.source = "XKV, Fig. 3, eq. 9 and 10";
  kind.settings = importance_settings();
  kind.settings.push_back({.name = "points",
                           .fallback = "2",
                           .min = 1,
                           .max = 64,
                           .help = "Sizes n per doubling, on a geometric grid"});
  kind.settings.push_back({.name = "shares",
                           .type = ParamType::shares,
                           .fallback = "5%,10%,20%,50%",
                           .help = "Sizes besides, as shares of the positions"});
  kind.columns = {
      {"trace", "", "trace file, as given"},
      {"layer", "", "layer"},
      {"n", "tokens", "positions that are kept: those of largest importance"},
      {"share", "", "n / positions that have an importance"},
      {"r", "", "R(n), importance they retain / importance of all"},
      {"isr", "per bit", "ISR(n) = R(n) / log2 n; R is a share, not percent"},
      {"isr_slope", "per bit", "f(n) = ISR(n) - ISR(n - 1)"},
  };
  kind.notes = {"Importance: attention of the last prompt rows, mean over rows and query heads, pooled.",
                "r: share of it that the n largest positions retain. isr: r / log2 n."};
  kind.measure = measure_retention;
  return kind;
}

}  // namespace kvsim::analysis
