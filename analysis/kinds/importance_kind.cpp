// Where in the prompt each layer's importance lies.
#include <algorithm>
#include <numeric>

#include "analysis/kinds/importance_settings.hpp"

namespace kvsim::analysis {
namespace {

std::vector<std::vector<Value>> measure_importance(const Measurement& of) {
  const std::uint64_t asked = of.settings.count("bins");
  const std::vector<std::vector<double>> layers = importance_of(of);
  const std::uint64_t n = layers[0].size(), bins = asked == 0 ? n : std::min(asked, n);
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t layer = 0; layer < layers.size(); ++layer) {
    const std::vector<double>& w = layers[layer];
    const double sum = std::accumulate(w.begin(), w.end(), 0.0);
    for (std::uint64_t bin = 0; bin < bins; ++bin) {
      // Spans differ by one position at most.
      const std::uint64_t first = n / bins * bin + std::min(bin, n % bins),
                          end = n / bins * (bin + 1) + std::min(bin + 1, n % bins);
      const double part = std::accumulate(w.begin() + static_cast<std::ptrdiff_t>(first),
                                          w.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
      rows.push_back({of.trace, layer, first, end - 1, sum > 0 ? Value(part / sum) : Value()});
    }
  }
  return rows;
}

}  // namespace

Kind importance_kind() {
  Kind kind;
  kind.name = "importance";
  kind.summary = "Where in the prompt the importance of each layer lies";
  kind.source = "XKV, Fig. 2";
  kind.settings = importance_settings();
  kind.settings.push_back({.name = "bins",
                           .fallback = "128",
                           .max = kNoLimit,
                           .help = "Positions are summed into at most so many spans; 0: every position"});
  kind.columns = {
      {"trace", "", "trace file, as given"},
      {"layer", "", "layer"},
      {"first", "", "first position of the span"},
      {"last", "", "its last position"},
      {"share", "", "importance of the span / importance of all positions before the last rows"},
  };
  kind.notes = {"Importance: attention of the last prompt rows, mean over rows and query heads, pooled."};
  kind.measure = measure_importance;
  return kind;
}

}  // namespace kvsim::analysis
