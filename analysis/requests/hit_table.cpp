#include "analysis/requests/hit_table.hpp"

#include <functional>
#include <map>
#include <ostream>

#include "analysis/cost/cost_table.hpp"
#include "analysis/requests/hit_records.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/text_table.hpp"
#include "sim/base/byte_text.hpp"

namespace kvsim::analysis {
namespace {

using Measure = std::function<std::optional<double>(const HitRow&)>;

std::string percent_text(std::optional<double> share) {
  return share ? fixed_text(100 * *share, 2) : "-";
}

void add_capacity_columns(TextTable& table, const HitGrid& grid) {
  table.add_column("tokens", Align::right);
  if (grid.capacities.front().bytes) table.add_column("bytes", Align::right);
}

std::vector<std::string> capacity_fields(const HitGrid& grid, const std::optional<CacheCapacity>& capacity) {
  std::vector<std::string> out{capacity ? std::to_string(capacity->tokens) : "no limit"};
  if (grid.capacities.front().bytes) out.push_back(capacity ? bytes_text(capacity->bytes.value_or(0)) : "");
  return out;
}

/// The name alone where no other policy of the grid has it.
std::string label(const HitGrid& grid, const policy::Part& policy) {
  std::size_t same = 0;
  for (const policy::Part& other : grid.policies) same += other.spec->name == policy.spec->name ? 1 : 0;
  return same > 1 ? policy.text() : policy.spec->name;
}

/// Capacities down, policies across.
void write_matrix(std::ostream& out, const HitGrid& grid, const std::vector<HitRow>& rows, bool last_half,
                  const Measure& measure) {
  TextTable table;
  add_capacity_columns(table, grid);
  for (const policy::Part& policy : grid.policies) table.add_column(label(grid, policy), Align::point);
  std::map<std::pair<const policy::Part*, std::uint64_t>, std::string> fields;
  for (const HitRow& row : rows)
    if (row.last_half == last_half && row.policy != nullptr)
      fields[{row.policy, row.capacity->blocks}] = percent_text(measure(row));
  for (const CacheCapacity& capacity : grid.capacities) {
    std::vector<std::string> line = capacity_fields(grid, capacity);
    for (const policy::Part& policy : grid.policies) line.push_back(fields[{&policy, capacity.blocks}]);
    table.add_row(line);
  }
  table.print(out);
}

void write_matrices(std::ostream& out, const HitGrid& grid, const std::vector<HitRow>& rows) {
  const auto saved = [](const HitRow& row) -> std::optional<double> {
    if (!row.saved_s || *row.prefill_s <= 0) return {};
    return *row.saved_s / *row.prefill_s;
  };
  const auto write = [&](const std::string& what, bool last_half, const Measure& measure) {
    for (const HitRow& row : rows)
      if (row.policy == nullptr && row.last_half == last_half)
        out << "\n% of " << what << ", " << (last_half ? "last half of the requests" : "all requests")
            << "; without limits " << percent_text(measure(row)) << "\n";
    write_matrix(out, grid, rows, last_half, measure);
  };
  for (const bool last_half : {false, true})
    write("prompt tokens that hit", last_half, [](const HitRow& row) { return row.hit_rate(); });
  if (grid.prefill) write("prefill seconds that are saved", false, saved);
}

void write_parts(std::ostream& out, const HitGrid& grid, const std::vector<HitRow>& rows,
                 const char* heading) {
  TextTable table;
  table.add_column("policy", Align::left);
  add_capacity_columns(table, grid);
  table.add_column(heading, Align::right);
  for (const char* column : {"requests", "prompt tokens"}) table.add_column(column, Align::right);
  for (const char* column : {"hits %", "of ceiling %"}) table.add_column(column, Align::point);
  for (const HitRow& row : rows) {
    if (row.last_half || row.requests == 0) continue;
    std::vector<std::string> line{row.policy == nullptr ? "ceiling" : label(grid, *row.policy)};
    for (std::string& field : capacity_fields(grid, row.capacity)) line.push_back(std::move(field));
    line.push_back(row.part);
    line.push_back(std::to_string(row.requests));
    line.push_back(std::to_string(row.prompt_tokens));
    line.push_back(percent_text(row.hit_rate()));
    const auto ceiling = static_cast<double>(row.ceiling_tokens);
    line.push_back(row.ceiling_tokens == 0 ? "-" : percent_text(static_cast<double>(row.hit_tokens) / ceiling));
    table.add_row(line);
  }
  out << '\n';
  table.print(out);
}

const char* heading_of(HitParts parts) {
  switch (parts) {
    case HitParts::category:
      return "category";
    case HitParts::session:
      return "session";
    case HitParts::turn:
      return "turn";
    case HitParts::depth:
      return "from token";
    case HitParts::none:
      break;
  }
  return "";
}

}  // namespace

void write_hit_table(std::ostream& out, const HitGrid& grid, const std::vector<HitRow>& rows) {
  if (grid.prefill)
    out << "model    " << described(grid.prefill->model()) << "\nmachine  "
        << described(grid.prefill->machine()) << '\n';
  if (grid.parts == HitParts::none)
    write_matrices(out, grid, rows);
  else
    write_parts(out, grid, rows, heading_of(grid.parts));
}

}  // namespace kvsim::analysis
