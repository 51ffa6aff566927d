#include "analysis/cost/cost_table.hpp"

#include <algorithm>
#include <functional>
#include <ostream>
#include <tuple>

#include "analysis/results/numbers.hpp"
#include "analysis/results/policy_labels.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

using cost::Estimate;
using cost::Memory;
using cost::OpClass;
using cost::PassTime;

constexpr int kDecimals = 3;

/// What numbers are divided by, as small models need.
struct Units {
  double binary = 0x1p30, decimal = 1e9;  ///< bytes
  const char *binary_name = "GiB", *decimal_name = "GB";
  const char* legend = "GiB = 2^30 bytes, GB = 10^9 bytes";
  double prefill = 1;  ///< s
  const char* prefill_name = "s";
};

Units units_of(const std::vector<CostRow>& rows) {
  constexpr std::uint64_t kSmall = std::uint64_t{1} << 27;
  constexpr double kShort = 0.1;
  std::uint64_t bytes = 0;
  double seconds = 0;
  for (const CostRow& row : rows) {
    if (!row.estimate) continue;
    bytes = std::max(bytes, row.estimate->peak() - row.estimate->at_end.reserved);
    seconds = std::max(seconds, row.estimate->time.first_token);
  }
  Units units;
  if (bytes < kSmall) units = {0x1p20, 1e6, "MiB", "MB", "MiB = 2^20 bytes, MB = 10^6 bytes"};
  if (seconds < kShort) {
    units.prefill = 1e-3;
    units.prefill_name = "ms";
  }
  return units;
}

/// A column of numbers, and what is written after them.
struct Quantity {
  std::string heading{};
  std::function<double(const Estimate&)> get{};
  std::function<std::string(const Estimate&)> mark{};  ///< may be null
  bool always = false;                                 ///< shown even where it is zero everywhere
};

/// Columns that name a row.
std::string budget_text(const CostRow& row) {
  if (row.budget.empty()) return "all";
  if (!row.estimate) return row.budget;
  const std::string tokens = std::to_string(row.estimate->budget);
  return tokens == row.budget ? tokens : row.budget + " = " + tokens;
}

class Sections {
 public:
  explicit Sections(const std::vector<CostRow>& rows) : rows_(rows), labels_(cost_labels(rows)) {}

  /// A title, and a table of every row's quantities; `last` columns are texts.
  void print(std::ostream& out, const std::string& title, const std::vector<Quantity>& quantities,
             const std::vector<std::pair<std::string, std::function<std::string(const CostRow&)>>>& last = {})
      const {
    TextTable table;
    table.add_column("policy", Align::left);
    table.add_column("budget", Align::right);
    std::vector<const Quantity*> shown;
    for (const Quantity& quantity : quantities)
      if (quantity.always || somewhere(quantity)) shown.push_back(&quantity);
    for (const Quantity* quantity : shown) table.add_column(quantity->heading, Align::point);
    for (const auto& [heading, get] : last) table.add_column(heading, Align::right);
    for (const CostRow& row : rows_) {
      std::vector<std::string> fields{labels_.at(row.params), budget_text(row)};
      for (const Quantity* quantity : shown) fields.push_back(text(*quantity, row));
      for (const auto& [heading, get] : last) fields.push_back(get(row));
      table.add_row(fields);
    }
    out << '\n' << title << '\n';
    table.print(out);
  }

 private:
  bool somewhere(const Quantity& quantity) const {
    return std::ranges::any_of(
        rows_, [&](const CostRow& row) { return row.estimate && quantity.get(*row.estimate) != 0; });
  }
  static std::string text(const Quantity& quantity, const CostRow& row) {
    if (!row.estimate) return "-";
    const double value = quantity.get(*row.estimate);
    std::string text = people_text(value);
    if (quantity.mark && value != 0) text += quantity.mark(*row.estimate);
    return text;
  }

  const std::vector<CostRow>& rows_;
  const std::map<std::string, std::string> labels_;
};

Quantity bytes(const char* heading, Memory Estimate::*when, std::uint64_t Memory::*what, double unit) {
  return {heading, [=](const Estimate& e) { return static_cast<double>((e.*when).*what) / unit; }, {}};
}
Quantity total(const char* unit_name, Memory Estimate::*when, double unit) {
  return {std::string("sum ") + unit_name,
          [=](const Estimate& e) { return static_cast<double>((e.*when).total()) / unit; },
          {},
          true};
}

std::vector<Quantity> memory_of(Memory Estimate::*when, const Units& units) {
  const double unit = units.binary;
  return {bytes("weights", when, &Memory::weights, unit),
          bytes("keys, values", when, &Memory::keys_values, unit),
          bytes("empty slots", when, &Memory::padding, unit),
          bytes("policy data", when, &Memory::metadata, unit),
          bytes("page tables", when, &Memory::page_tables, unit),
          bytes("shared tables", when, &Memory::shared_tables, unit),
          bytes("states", when, &Memory::states, unit),
          bytes("activ- ations", when, &Memory::activations, unit),
          bytes("policy scratch", when, &Memory::scratch, unit),
          bytes("runtime", when, &Memory::reserved, unit),
          total(units.binary_name, when, unit),
          total(units.decimal_name, when, units.decimal)};
}

std::string bound_mark(const cost::OpTime& time) {
  return std::string(" ") + cost::bound_name(time.bound())[0];
}

/// Share by which the policy lengthens a pass.
double added_percent(const PassTime& pass) {
  const double policy = pass[OpClass::policy].seconds;
  const double without = pass.seconds() - policy;
  return without > 0 ? 100 * policy / without : 0;
}

std::vector<Quantity> times_of(PassTime cost::Latency::*pass, double unit) {
  std::vector<Quantity> out;
  for (std::size_t i = 0; i < cost::kOpClasses; ++i) {
    const auto op = static_cast<OpClass>(i);
    std::string heading = cost::op_name(op);
    if (heading == "communication") heading = "commu- nication";
    out.push_back({heading, [=](const Estimate& e) { return (e.time.*pass)[op].seconds / unit; },
                   [=](const Estimate& e) { return bound_mark((e.time.*pass)[op]); }});
  }
  out.push_back({"waits for links", [=](const Estimate& e) { return (e.time.*pass).transfer / unit; }, {}});
  out.push_back({"host waits", [=](const Estimate& e) { return (e.time.*pass).host / unit; }, {}});
  return out;
}

std::string yes_or_no(const CostRow& row) {
  if (!row.estimate) return "-";
  return row.estimate->fits ? "yes" : "no";
}
std::string batch_text(const CostRow& row) {
  return row.largest_batch ? std::to_string(*row.largest_batch) : "-";
}

/// "0.033 to 0.347 s" of what the rows have; empty: nothing.
std::string seconds_range(const std::vector<CostRow>& rows,
                          const std::function<std::optional<double>(const Estimate&)>& get) {
  std::vector<double> all;
  for (const CostRow& row : rows)
    if (const std::optional<double> value = row.estimate ? get(*row.estimate) : std::nullopt)
      all.push_back(*value);
  if (all.empty()) return {};
  const auto [low, high] = std::ranges::minmax_element(all);
  const std::string least = people_text(*low), most = people_text(*high);
  return (least == most ? least : least + " to " + most) + " s";
}

/// What it takes to preempt a sequence, either way.
void print_preemption(std::ostream& out, const std::vector<CostRow>& rows) {
  const std::string swap = seconds_range(rows, [](const Estimate& e) { return e.swap; });
  const std::string recompute =
      seconds_range(rows, [](const Estimate& e) { return std::optional<double>(e.recompute); });
  if (swap.empty()) return;
  out << "\nPreempting one sequence at its end: swap " << swap << ", recompute " << recompute << '\n';
}

/// What a step loads of the tiers behind the device, where something is there.
void print_links(std::ostream& out, const Sections& sections, const std::vector<CostRow>& rows) {
  const auto loads = [](const CostRow& row) {
    return row.estimate && row.estimate->time.mean_step.asked + row.estimate->time.mean_step.loading > 0;
  };
  if (std::ranges::none_of(rows, loads)) return;
  std::vector<Quantity> links;
  for (const auto& [tier, size, time] : {std::tuple{cost::Tier::host, "host link MB", "host link ms"},
                                         std::tuple{cost::Tier::ssd, "SSD MB", "SSD ms"}}) {
    links.push_back({size,
                     [tier = tier](const Estimate& e) { return e.time.mean_step.links[tier].bytes / 1e6; },
                     {},
                     true});
    links.push_back({time,
                     [tier = tier](const Estimate& e) { return 1e3 * e.time.mean_step.links[tier].seconds; },
                     {},
                     true});
  }
  links.push_back(
      {"in the buffer %", [](const Estimate& e) { return 100 * e.time.mean_step.hit_rate().value_or(0); }});
  links.push_back({"loads ms", [](const Estimate& e) { return 1e3 * e.time.mean_step.loading; }, {}, true});
  links.push_back(
      {"hidden %", [](const Estimate& e) { return 100 * e.time.mean_step.hidden().value_or(0); }, {}, true});
  sections.print(out, "What a decode step loads, mean", links);
}

bool drafts(const std::vector<CostRow>& rows) {
  return std::ranges::any_of(rows, [](const CostRow& row) { return row.drafting.has_value(); });
}

bool helps(const std::vector<CostRow>& rows) {
  return std::ranges::any_of(rows, [](const CostRow& row) { return row.inner.has_value(); });
}

/// What drafting for the full cache takes and gives, where it was asked.
void add_draft_columns(TextTable& table, const std::vector<CostRow>& rows) {
  if (helps(rows)) table.add_column("inner gamma", Align::right);
  table.add_column("draft ms", Align::point);
  table.add_column("best gamma", Align::right);
  table.add_column("drafted TPOT ms", Align::point);
  table.add_column("speed-up", Align::point);
  table.add_column("both caches GiB", Align::point);
}
void add_draft_fields(std::vector<std::string>& fields, const CostRow& row,
                      const std::vector<CostRow>& rows) {
  const std::optional<cost::Drafting>& of = row.drafting;
  if (helps(rows)) fields.push_back(row.inner ? std::to_string(row.inner->gamma) : "-");
  fields.push_back(of ? people_text(1e3 * of->draft) : "-");
  fields.push_back(of ? std::to_string(of->gamma) : "-");
  fields.push_back(of ? people_text(1e3 * of->per_token) : "-");
  fields.push_back(of ? people_text(of->speedup) : "-");
  fields.push_back(of ? people_text(gib(row.drafted_bytes)) : "-");
}

void print_drafts(std::ostream& out, const std::vector<CostRow>& rows) {
  if (!drafts(rows)) return;
  const std::map<std::string, std::string> labels = cost_labels(rows);
  TextTable table;
  table.add_column("policy", Align::left);
  table.add_column("budget", Align::right);
  add_draft_columns(table, rows);
  for (const CostRow& row : rows) {
    std::vector<std::string> fields{labels.at(row.params), budget_text(row)};
    add_draft_fields(fields, row, rows);
    table.add_row(fields);
  }
  const CostRow& first = rows.front();
  std::string who;
  if (!first.helped.empty())
    who = ": " + first.drafter + " drafts through " + first.helped + " for this policy's cache";
  else if (!first.drafter.empty())
    who = ": " + first.drafter + " drafts through a cache of this policy";
  out << "\nDrafting for the full cache, which is held besides" << who << '\n';
  table.print(out);
}

bool assembles(const std::vector<CostRow>& rows) {
  return std::ranges::any_of(rows, [](const CostRow& row) { return row.assembly.has_value(); });
}

/// Of one workload, whatever the policy.
void print_assembly(std::ostream& out, const std::vector<CostRow>& rows) {
  const auto asked = std::ranges::find_if(rows, [](const CostRow& row) { return row.assembly.has_value(); });
  if (asked == rows.end()) return;
  const cost::AssemblyTime& of = *asked->assembly;
  out << "\nPut together of documents' caches: " << of.computed << " tokens computed in "
      << people_text(1e3 * of.compute) << " ms, " << people_text(gib(of.bytes)) << " GiB loaded in "
      << people_text(1e3 * of.load) << " ms, TTFT " << people_text(1e3 * of.first_token) << " ms\n";
}

/// Of one workload, whatever the policy.
void print_prediction(std::ostream& out, const std::vector<CostRow>& rows) {
  const auto asked =
      std::ranges::find_if(rows, [](const CostRow& row) { return row.prediction.has_value(); });
  if (asked == rows.end()) return;
  const cost::PredictionTime& of = *asked->prediction;
  out << "\nThe prompt read by a small model, its cache mapped: " << people_text(of.full_flops / of.flops)
      << " times fewer FLOPs to the first token, TTFT " << people_text(1e3 * of.first_token()) << " ms\n";
}

void print_breakdown(std::ostream& out, const std::vector<CostRow>& rows) {
  const Sections sections(rows);
  const Units units = units_of(rows);
  const std::string in_bytes = std::string(", ") + units.binary_name;
  std::vector<Quantity> at_end = memory_of(&Estimate::at_end, units);
  for (const auto& [tier, heading] :
       {std::pair{cost::Tier::host, "in host memory"}, std::pair{cost::Tier::ssd, "on the SSD"}})
    at_end.push_back({heading, [where = tier, units](const Estimate& e) {
                        return static_cast<double>(e.at_end.away[where]) / units.binary;
                      }});
  sections.print(out, "Memory after the last token" + in_bytes, at_end);
  sections.print(out, "Memory when the prefill needs most" + in_bytes, memory_of(&Estimate::prefill, units),
                 {{"peak fits", yes_or_no}, {"largest batch", batch_text}});

  const double unit = units.prefill;
  std::vector<Quantity> prefill = times_of(&cost::Latency::prefill, unit);
  prefill.push_back({"policy adds %", [](const Estimate& e) { return added_percent(e.time.prefill); }, {}});
  prefill.push_back({std::string("TTFT ") + units.prefill_name,
                     [=](const Estimate& e) { return e.time.first_token / unit; },
                     {},
                     true});
  sections.print(out, std::string("Time of the prefill, ") + units.prefill_name, prefill);

  std::vector<Quantity> step = times_of(&cost::Latency::mean_step, 1e-3);
  step.push_back({"policy adds %", [](const Estimate& e) { return added_percent(e.time.mean_step); }, {}});
  step.push_back({"TPOT ms", [](const Estimate& e) { return 1e3 * e.time.per_token; }, {}, true});
  step.push_back({"tokens/s", [](const Estimate& e) { return e.time.tokens_per_second; }, {}, true});
  sections.print(out, "Time of a decode step, mean, ms", step);
  print_links(out, sections, rows);
  print_drafts(out, rows);
  print_assembly(out, rows);
  print_prediction(out, rows);
  print_preemption(out, rows);
  out << "\nc, m, o: bound by compute, by memory, by overhead (launches, links)\n" << units.legend << '\n';
}

/// Columns that name a workload, as far as workloads differ.
struct Axis {
  const char* heading;
  std::uint64_t CostRow::*get;
};
constexpr Axis kAxes[] = {
    {"prompt", &CostRow::prompt}, {"generate", &CostRow::generate}, {"batch", &CostRow::batch}};

bool differs(const std::vector<CostRow>& rows, std::uint64_t CostRow::*get) {
  return std::ranges::any_of(rows, [&](const CostRow& row) { return row.*get != rows.front().*get; });
}

void print_points(std::ostream& out, const std::vector<CostRow>& rows) {
  const std::map<std::string, std::string> labels = cost_labels(rows);
  TextTable table;
  for (const Axis& axis : kAxes)
    if (differs(rows, axis.get)) table.add_column(axis.heading, Align::right);
  table.add_column("policy", Align::left);
  table.add_column("budget", Align::right);
  table.add_column("cache GiB", Align::point);
  table.add_column("peak GiB", Align::point);
  table.add_column("fits", Align::right);
  table.add_column("largest batch", Align::right);
  table.add_column("TTFT s", Align::point);
  table.add_column("TPOT ms", Align::point);
  table.add_column("tokens/s", Align::point);
  if (drafts(rows)) add_draft_columns(table, rows);
  if (assembles(rows)) table.add_column("assembled TTFT s", Align::point);
  for (const CostRow& row : rows) {
    std::vector<std::string> fields;
    for (const Axis& axis : kAxes)
      if (differs(rows, axis.get)) fields.push_back(std::to_string(row.*axis.get));
    fields.insert(fields.end(), {labels.at(row.params), budget_text(row)});
    const auto number = [&](auto get) {
      fields.push_back(row.estimate ? people_text(get(*row.estimate)) : "-");
    };
    number([](const Estimate& e) { return gib(e.at_end.cache()); });
    number([](const Estimate& e) { return gib(e.peak()); });
    fields.insert(fields.end(), {yes_or_no(row), batch_text(row)});
    number([](const Estimate& e) { return e.time.first_token; });
    number([](const Estimate& e) { return 1e3 * e.time.per_token; });
    number([](const Estimate& e) { return e.time.tokens_per_second; });
    if (drafts(rows)) add_draft_fields(fields, row, rows);
    if (assembles(rows))
      fields.push_back(row.assembly ? people_text(row.assembly->first_token) : std::string("-"));
    table.add_row(fields);
  }
  out << '\n';
  table.print(out);
  out << '\n' << Units().legend << '\n';
}

}  // namespace

std::map<std::string, std::string> cost_labels(const std::vector<CostRow>& rows) {
  Records named{{{"policy", "", ""}, {"params", "", ""}}, {}};
  for (const CostRow& row : rows) named.rows.push_back({row.policy, row.params});
  return policy_labels(named);
}

std::string people_text(double value) {
  return value > 0 && value < 0.0005 ? "<0.001" : rounded_text(value, kDecimals);
}

double gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 0x1p30;
}

void write_cost_table(std::ostream& out, const CostReport& report) {
  if (report.rows.empty()) bug("no cost rows to show");
  for (const std::string& line : report.head) out << line << '\n';
  const bool one_workload = std::none_of(std::begin(kAxes), std::end(kAxes),
                                         [&](const Axis& axis) { return differs(report.rows, axis.get); });
  if (one_workload)
    print_breakdown(out, report.rows);
  else
    print_points(out, report.rows);
  for (const std::string& line : report.notes) out << line << '\n';
}

std::string described(const cost::Model& model) {
  const auto parameters = static_cast<double>(model.parameters());
  const bool small = parameters < 1e8;
  return model.name + ": " + rounded_text(parameters / (small ? 1e6 : 1e9), 2) +
         (small ? " million" : " billion") + " parameters, " + std::to_string(model.layers) + " layers, " +
         std::to_string(model.query_heads) + " query and " + std::to_string(model.kv_heads) +
         (model.latent.rank == 0 ? " KV heads of " : " latent of ") + std::to_string(model.head_dim) +
         (model.experts.count == 0 || model.expert_parameters() == 0
              ? ""
              : ", " + std::to_string(model.experts.used) + " of " + std::to_string(model.experts.count) +
                    " experts for a token") +
         (model.remarks.empty() ? "" : " (" + model.remarks + ")");
}

std::string described(const cost::Machine& machine) {
  return machine.name + ": " + rounded_text(machine.matrix_rate / 1e12, 1) + " TFLOP/s, " +
         rounded_text(machine.bandwidth / 1e9, 1) + " GB/s, " + rounded_text(gib(machine.memory), 1) + " GiB";
}

}  // namespace kvsim::analysis
