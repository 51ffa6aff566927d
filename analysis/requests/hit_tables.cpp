#include "analysis/requests/hit_tables.hpp"

#include <functional>
#include <map>
#include <ostream>

#include "analysis/cost/cost_table.hpp"
#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

/// What stands in the brackets of "slru(protected=0.8)".
Value params_of(const policy::Part* policy) {
  if (policy == nullptr) return {};
  const std::string text = policy->text();
  const std::size_t open = policy->spec->name.size() + 1;
  return text.size() <= open + 1 ? Value() : Value(text.substr(open, text.size() - open - 1));
}

/// The columns that tell cells apart.
template <class Row>
Columns<Row> cell_columns() {
  const auto of_capacity = [](auto CacheCapacity::*what) {
    return [what](const Row& row) { return row.capacity ? as_field((*row.capacity).*what) : Value(); };
  };
  return {{"policy", "", "which blocks stay; ceiling: all of them, in a cache without limits",
           [](const Row& row) { return row.policy == nullptr ? "ceiling" : row.policy->spec->name; }},
          {"params", "", "of the policy, every effective value; null: it has none",
           [](const Row& row) { return params_of(row.policy); }},
          {"capacity_blocks", "blocks", "that fit; null: no limit", of_capacity(&CacheCapacity::blocks)},
          {"capacity_tokens", "tokens", "of these blocks", of_capacity(&CacheCapacity::tokens)},
          {"capacity_bytes", "bytes", "that they take on each device; null: no model was named",
           of_capacity(&CacheCapacity::bytes)}};
}

Value ratio_of(std::uint64_t part, std::uint64_t whole) {
  return ratio(static_cast<double>(part), static_cast<double>(whole));
}

const Columns<HitRow>& hit_fields() {
  using Row = HitRow;
  const auto mean = [](prefix::Durations prefix::Residency::*what) {
    return [what](const Row& row) {
      if (!row.residency) return Value();
      const prefix::Durations& durations = (*row.residency).*what;
      return ratio(durations.sum_s, static_cast<double>(durations.count));
    };
  };
  static const Columns<Row> all =
      cell_columns<Row>() +
      Columns<Row>{
          {"window", "", "all: all requests; last_half: those from number n / 2 on, when the cache is warm",
           [](const Row& row) { return row.last_half ? "last_half" : "all"; }},
          {"part", "", "a category, session or turn, or the first token of a depth; null: everything",
           [](const Row& row) { return text_or_none(row.part); }},
          {"requests", "", "that the row speaks of", &Row::requests},
          {"prompt_tokens", "tokens", "of their prompts", &Row::prompt_tokens},
          {"hit_tokens", "tokens", "of these, in leading runs of blocks that are there: not computed again",
           &Row::hit_tokens},
          {"hit_rate", "share", "hit_tokens over prompt_tokens", &Row::hit_rate},
          {"ceiling_tokens", "tokens", "that a cache without limits hits", &Row::ceiling_tokens},
          {"ceiling_share", "share", "hit_tokens over ceiling_tokens",
           [](const Row& row) { return ratio_of(row.hit_tokens, row.ceiling_tokens); }},
          {"blocks", "blocks", "of the prompts", &Row::blocks},
          {"hit_blocks", "blocks", "in leading runs", &Row::hit_blocks},
          {"block_hit_rate", "share", "hit_blocks over blocks",
           [](const Row& row) { return row.blocks ? ratio_of(*row.hit_blocks, *row.blocks) : Value(); }},
          {"wasted_blocks", "blocks", "there, but behind one that was not; null: not counted by depth",
           &Row::wasted_blocks},
          {"untouched", "", "requests that hit nothing; of a depth: that hit nothing so deep",
           &Row::untouched},
          {"hit_p50", "share", "of its prompt that a request hits, 50th percentile of requests", &Row::p50},
          {"hit_p90", "share", "90th percentile", &Row::p90},
          {"hit_p99", "share", "99th percentile", &Row::p99},
          {"prefill_seconds", "s", "of prefills that compute everything, one after the other",
           &Row::prefill_s},
          {"saved_seconds", "s", "of these, by what is hit", &Row::saved_s},
          {"saved_share", "share", "saved_seconds over prefill_seconds",
           [](const Row& row) {
             return row.prefill_s ? ratio(row.saved_s.value_or(0), *row.prefill_s) : Value();
           }},
          {"saved_flops", "FLOP", "by what is hit", &Row::saved_flops},
          {"saved_seconds_per_gib", "s/GiB", "saved_seconds over the GiB of the capacity, on each device",
           [](const Row& row) {
             if (!row.saved_s || !row.capacity || !row.capacity->bytes) return Value();
             return ratio(*row.saved_s * kGib, static_cast<double>(*row.capacity->bytes));
           }},
          {"stored_blocks", "blocks", "stored during the whole trace", &Row::stored},
          {"evicted_blocks", "blocks", "evicted during the whole trace", &Row::evicted},
          {"lifetime", "s", "from storing a block to evicting it, mean over evicted ones",
           mean(&prefix::Residency::lifetime)},
          {"idle", "s", "from the last use of a block to evicting it, mean over evicted ones",
           mean(&prefix::Residency::idle)},
          {"reuse_gap", "s", "from one use of a block to the next while it stayed, mean",
           mean(&prefix::Residency::reuse_gap)}};
  return all;
}

// ---- for people

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
    line.push_back(row.ceiling_tokens == 0 ? "-"
                                           : percent_text(static_cast<double>(row.hit_tokens) / ceiling));
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

const std::vector<ColumnInfo>& hit_columns() {
  static const std::vector<ColumnInfo> all = infos(hit_fields());
  return all;
}

Records hit_records(const std::vector<HitRow>& rows) {
  return table_of(hit_fields(), rows);
}

Records request_hit_records(const std::vector<RequestHit>& hits, const requests::RequestTrace& trace) {
  const auto asked = [&trace](auto requests::Request::*what) {
    return [&trace, what](const RequestHit& row) { return trace.requests[row.request].*what; };
  };
  const auto named = [&trace](const std::vector<std::string>& names,
                              std::uint32_t requests::Request::*which) {
    return [&trace, &names, which](const RequestHit& row) {
      const std::uint32_t index = trace.requests[row.request].*which;
      return index < names.size() ? Value(names[index]) : Value();
    };
  };
  const auto work = [](std::optional<PrefillWork> RequestHit::*of, double PrefillWork::*what) {
    return [=](const RequestHit& row) { return row.*of ? Value((*(row.*of)).*what) : Value(); };
  };
  return table_of(
      cell_columns<RequestHit>() +
          Columns<RequestHit>{
              {"request", "", "as the trace has it, from 0", &RequestHit::request},
              {"session", "", "of the trace", named(trace.sessions, &requests::Request::session)},
              {"turn", "", "within the session, from 1",
               [&trace](const RequestHit& row) {
                 const std::uint32_t turn = trace.requests[row.request].turn;
                 return turn == requests::kNone ? Value() : as_field(turn);
               }},
              {"category", "", "of the trace", named(trace.categories, &requests::Request::category)},
              {"prompt_tokens", "tokens", "of the prompt", asked(&requests::Request::prompt_tokens)},
              {"hit_tokens", "tokens", "in the leading run of blocks that are there",
               &RequestHit::hit_tokens},
              {"blocks", "blocks", "of the prompt", asked(&requests::Request::n_blocks)},
              {"hit_blocks", "blocks", "in the leading run", &RequestHit::run},
              {"wasted_blocks", "blocks", "there, but behind one that was not",
               [](const RequestHit& row) { return row.present - row.run; }},
              {"prefill_seconds", "s", "of a prefill that computes everything",
               work(&RequestHit::prefill, &PrefillWork::seconds)},
              {"saved_seconds", "s", "of these, by what is hit",
               work(&RequestHit::saved, &PrefillWork::seconds)},
              {"saved_flops", "FLOP", "by what is hit", work(&RequestHit::saved, &PrefillWork::flops)}},
      hits);
}

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
