#include "analysis/requests/serving_table.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/byte_text.hpp"

namespace kvsim::analysis {
namespace {

using serving::ServingSummary;

/// A column; those of a run's settings are left out where all runs agree.
struct ShownServing {
  const char* heading;
  bool setting;
  std::function<std::string(const ServingRun&)> text;
};

void write_line(std::ostream& out, std::string name, const std::string& text) {
  name.resize(14, ' ');
  out << name << text << '\n';
}

std::string percent(double share) {
  return real_text(100 * share, 1);
}

using Policy = std::optional<policy::Part>;

/// Its name; with the parameters where others of that name are there.
std::string label(const std::vector<Policy>& among, const Policy& policy) {
  if (!policy) return "none";
  const auto same = std::count_if(among.begin(), among.end(),
                                  [&](const Policy& other) { return other && other->spec == policy->spec; });
  return same > 1 ? policy->text() : policy->spec->name;
}

std::vector<ShownServing> shown_columns(const ServingGrid& grid) {
  const auto summary = [](double ServingSummary::*field, int decimals) {
    return [field, decimals](const ServingRun& run) { return real_text(run.summary.*field, decimals); };
  };
  const auto spread = [](Spread ServingSummary::*of, double Spread::*part, double unit, int decimals) {
    return [=](const ServingRun& run) { return real_text(unit * (run.summary.*of.*part), decimals); };
  };
  std::vector<ShownServing> columns{
      {"memory", true, [](const ServingRun& run) { return bytes_text(run.memory); }},
      {"allocator", true,
       [](const ServingRun& run) { return allocator_name(run.settings.engine.allocator); }},
      {"policy", true,
       [=](const ServingRun& run) { return label(grid.policies, run.settings.engine.prefix_cache); }},
      {"host policy", true,
       [=](const ServingRun& run) {
         return label(grid.host_policies, run.settings.engine.host_cache.policy);
       }},
      {"rate", true, [](const ServingRun& run) { return rounded_text(run.settings.rate); }},
      {"replicas", true,
       [](const ServingRun& run) {
         if (run.settings.replicas == 1) return std::string("1");
         return std::to_string(run.settings.replicas) + ", " + routing_name(run.settings.routing.routing);
       }},
      {"TTFT p50 s", false, spread(&ServingSummary::ttft, &Spread::p50, 1, 3)},
      {"p99", false, spread(&ServingSummary::ttft, &Spread::p99, 1, 3)},
      {"TPOT p50 ms", false, spread(&ServingSummary::tpot, &Spread::p50, 1e3, 2)},
      {"p99", false, spread(&ServingSummary::tpot, &Spread::p99, 1e3, 2)},
      {"queue p50 s", false, spread(&ServingSummary::queueing, &Spread::p50, 1, 3)},
      {"requests /s", false, summary(&ServingSummary::requests_per_second, 3)},
      {"tokens /s", false, summary(&ServingSummary::generated_per_second, 1)}};
  if (grid.slo.any())
    columns.push_back(
        {"good %", false, [](const ServingRun& run) { return percent(run.summary.good_share.value_or(0)); }});
  for (const auto& [heading, field] :
       {std::pair{"hits %", &ServingSummary::hit_rate},
        std::pair{"of host %", &ServingSummary::host_hit_rate}, std::pair{"busy %", &ServingSummary::busy},
        std::pair{"used %", &ServingSummary::used}, std::pair{"internal %", &ServingSummary::internal},
        std::pair{"kept %", &ServingSummary::kept}}) {
    double ServingSummary::*const share = field;
    columns.push_back(
        {heading, false, [share](const ServingRun& run) { return percent(run.summary.*share); }});
  }
  columns.push_back({"running", false, summary(&ServingSummary::running, 1)});
  columns.push_back({"preemp- tions", false,
                     [](const ServingRun& run) { return std::to_string(run.summary.preemptions); }});
  if (grid.replicas > 1)
    columns.push_back({"computed elsewhere", false,
                       [](const ServingRun& run) { return std::to_string(run.summary.elsewhere_tokens); }});
  return columns;
}

}  // namespace

std::string real_text(double value, int decimals) {
  return std::isfinite(value) ? fixed_text(value, decimals) : "-";
}

void write_serving_table(std::ostream& out, const ServingGrid& grid, const std::vector<ServingRun>& runs) {
  write_line(out, "model", described(grid.served.model));
  write_line(out, "machine", described(grid.served.machine));
  TextTable table;
  std::vector<ShownServing> kept;
  std::vector<ShownServing> columns = shown_columns(grid);
  if (std::any_of(runs.begin(), runs.end(), [](const ServingRun& run) { return run.summary.refused > 0; }))
    columns.push_back(
        {"refused", false, [](const ServingRun& run) { return std::to_string(run.summary.refused); }});
  for (ShownServing& column : columns) {
    bool differs = !column.setting;
    for (const ServingRun& run : runs) differs = differs || column.text(run) != column.text(runs.front());
    if (!differs) {
      write_line(out, column.heading, column.text(runs.front()));
      continue;
    }
    table.add_column(column.heading, column.setting ? Align::left : Align::point);
    kept.push_back(std::move(column));
  }
  for (const ServingRun& run : runs) {
    std::vector<std::string> fields;
    for (const ShownServing& column : kept) fields.push_back(column.text(run));
    table.add_row(fields);
  }
  out << '\n';
  table.print(out);
}

}  // namespace kvsim::analysis
