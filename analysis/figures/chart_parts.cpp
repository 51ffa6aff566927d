#include "analysis/figures/chart_parts.hpp"

#include <algorithm>

namespace kvsim::analysis {

Series& series_named(Chart& chart, const std::string& label) {
  const auto found =
      std::ranges::find_if(chart.series, [&](const Series& series) { return series.label == label; });
  return found != chart.series.end() ? *found : chart.series.emplace_back(Series{.label = label});
}

void sort_points(Series& series) {
  std::ranges::sort(series.points, [](const Point& a, const Point& b) { return a.x < b.x; });
}

void sort_points(Chart& chart) {
  for (Series& series : chart.series) sort_points(series);
}

void add_curves(Chart& chart, const std::map<std::string, Series>& curves,
                const std::vector<std::string>& named, const char* others) {
  for (std::size_t i = 0; i < named.size(); ++i)
    if (const auto found = curves.find(named[i]); found != curves.end()) {
      chart.series.push_back(found->second);
      chart.series.back().policy = named[i];
    }
  for (const auto& [label, series] : curves)
    if (place_in(named, label) < 0) {
      chart.series.push_back(series);
      chart.series.back().group = others;
      chart.series.back().weight = Weight::faint;
    }
}

int place_in(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

Axis layer_axis(std::size_t n) {
  constexpr std::size_t kNamed = 12;
  Axis axis{.label = "layer"};
  if (n <= kNamed)
    for (std::size_t layer = 0; layer < n; ++layer) axis.categories.push_back(std::to_string(layer));
  return axis;
}

void add_sentence(std::string& text, const std::string& sentence) {
  if (!sentence.empty()) text += (text.empty() ? "" : " ") + sentence;
}

std::string traces_text(std::uint64_t traces, const std::string& workload) {
  const std::string of = workload.empty() || workload == "all" ? "" : " of " + workload;
  return traces == 1 ? "one trace" + of : "mean over " + std::to_string(traces) + " traces" + of;
}

}  // namespace kvsim::analysis
