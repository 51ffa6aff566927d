#include "analysis/requests/hit_records.hpp"

#include "sim/base/sizes.hpp"

namespace kvsim::analysis {
namespace {

/// The columns that tell cells apart.
const std::vector<ColumnInfo>& cell_columns() {
  static const std::vector<ColumnInfo> columns{
      {"policy", "", "which blocks stay; ceiling: all of them, in a cache without limits"},
      {"params", "", "of the policy, every effective value; null: it has none"},
      {"capacity_blocks", "blocks", "that fit; null: no limit"},
      {"capacity_tokens", "tokens", "of these blocks"},
      {"capacity_bytes", "bytes", "that they take on each device; null: no model was named"}};
  return columns;
}

/// What stands in the brackets of "slru(protected=0.8)".
Value params_of(const policy::Part* policy) {
  if (policy == nullptr) return {};
  const std::string text = policy->text();
  const std::size_t open = policy->spec->name.size() + 1;
  return text.size() <= open + 1 ? Value() : Value(text.substr(open, text.size() - open - 1));
}

std::vector<Value> cell_fields(const policy::Part* policy, const std::optional<CacheCapacity>& capacity) {
  std::vector<Value> out{std::string(policy == nullptr ? "ceiling" : policy->spec->name), params_of(policy)};
  if (!capacity) {
    out.resize(5);
    return out;
  }
  out.insert(out.end(), {capacity->blocks, capacity->tokens, value_of(capacity->bytes)});
  return out;
}

Value field_ratio(double part, double whole) {
  return whole > 0 ? Value(part / whole) : Value();
}
Value field_ratio(std::uint64_t part, std::uint64_t whole) {
  return field_ratio(static_cast<double>(part), static_cast<double>(whole));
}

Value mean_of(const prefix::Durations& durations) {
  return field_ratio(durations.sum_s, static_cast<double>(durations.count));
}

Value saved_per_gib(const HitRow& row) {
  if (!row.saved_s || !row.capacity || !row.capacity->bytes) return {};
  return field_ratio(*row.saved_s * kGib, static_cast<double>(*row.capacity->bytes));
}

std::vector<Value> fields_of(const HitRow& row) {
  std::vector<Value> out = cell_fields(row.policy, row.capacity);
  const auto add = [&](Value value) { out.push_back(std::move(value)); };
  add(std::string(row.last_half ? "last_half" : "all"));
  add(row.part.empty() ? Value() : Value(row.part));
  for (const std::uint64_t count : {row.requests, row.prompt_tokens, row.hit_tokens}) add(count);
  add(value_of(row.hit_rate()));
  add(row.ceiling_tokens);
  add(field_ratio(row.hit_tokens, row.ceiling_tokens));
  add(value_of(row.blocks));
  add(value_of(row.hit_blocks));
  add(row.blocks ? field_ratio(*row.hit_blocks, *row.blocks) : Value());
  add(value_of(row.wasted_blocks));
  add(value_of(row.untouched));
  for (const auto& share : {row.p50, row.p90, row.p99}) add(value_of(share));
  add(value_of(row.prefill_s));
  add(value_of(row.saved_s));
  add(row.prefill_s ? field_ratio(row.saved_s.value_or(0), *row.prefill_s) : Value());
  add(value_of(row.saved_flops));
  add(saved_per_gib(row));
  add(value_of(row.stored));
  add(value_of(row.evicted));
  const auto& residency = row.residency;
  add(residency ? mean_of(residency->lifetime) : Value());
  add(residency ? mean_of(residency->idle) : Value());
  add(residency ? mean_of(residency->reuse_gap) : Value());
  return out;
}

}  // namespace

const std::vector<ColumnInfo>& hit_columns() {
  static const std::vector<ColumnInfo> columns = [] {
    std::vector<ColumnInfo> out = cell_columns();
    for (ColumnInfo column : std::vector<ColumnInfo>{
             {"window", "",
              "all: all requests; last_half: those from number n / 2 on, when the cache is warm"},
             {"part", "", "a category, session or turn, or the first token of a depth; null: everything"},
             {"requests", "", "that the row speaks of"},
             {"prompt_tokens", "tokens", "of their prompts"},
             {"hit_tokens", "tokens",
              "of these, in leading runs of blocks that are there: not computed again"},
             {"hit_rate", "share", "hit_tokens over prompt_tokens"},
             {"ceiling_tokens", "tokens", "that a cache without limits hits"},
             {"ceiling_share", "share", "hit_tokens over ceiling_tokens"},
             {"blocks", "blocks", "of the prompts"},
             {"hit_blocks", "blocks", "in leading runs"},
             {"block_hit_rate", "share", "hit_blocks over blocks"},
             {"wasted_blocks", "blocks", "there, but behind one that was not; null: not counted by depth"},
             {"untouched", "", "requests that hit nothing; of a depth: that hit nothing so deep"},
             {"hit_p50", "share", "of its prompt that a request hits, 50th percentile of requests"},
             {"hit_p90", "share", "90th percentile"},
             {"hit_p99", "share", "99th percentile"},
             {"prefill_seconds", "s", "of prefills that compute everything, one after the other"},
             {"saved_seconds", "s", "of these, by what is hit"},
             {"saved_share", "share", "saved_seconds over prefill_seconds"},
             {"saved_flops", "FLOP", "by what is hit"},
             {"saved_seconds_per_gib", "s/GiB", "saved_seconds over the GiB of the capacity, on each device"},
             {"stored_blocks", "blocks", "stored during the whole trace"},
             {"evicted_blocks", "blocks", "evicted during the whole trace"},
             {"lifetime", "s", "from storing a block to evicting it, mean over evicted ones"},
             {"idle", "s", "from the last use of a block to evicting it, mean over evicted ones"},
             {"reuse_gap", "s", "from one use of a block to the next while it stayed, mean"}})
      out.push_back(std::move(column));
    return out;
  }();
  return columns;
}

Records hit_records(const std::vector<HitRow>& rows) {
  Records out{hit_columns(), {}};
  for (const HitRow& row : rows) out.rows.push_back(fields_of(row));
  return out;
}

Records request_hit_records(const std::vector<RequestHit>& hits, const requests::RequestTrace& trace) {
  Records out{cell_columns(), {}};
  for (ColumnInfo column :
       std::vector<ColumnInfo>{{"request", "", "as the trace has it, from 0"},
                               {"session", "", "of the trace"},
                               {"turn", "", "within the session, from 1"},
                               {"category", "", "of the trace"},
                               {"prompt_tokens", "tokens", "of the prompt"},
                               {"hit_tokens", "tokens", "in the leading run of blocks that are there"},
                               {"blocks", "blocks", "of the prompt"},
                               {"hit_blocks", "blocks", "in the leading run"},
                               {"wasted_blocks", "blocks", "there, but behind one that was not"},
                               {"prefill_seconds", "s", "of a prefill that computes everything"},
                               {"saved_seconds", "s", "of these, by what is hit"},
                               {"saved_flops", "FLOP", "by what is hit"}})
    out.columns.push_back(std::move(column));
  const auto name = [](const std::vector<std::string>& names, std::uint32_t index) {
    return index < names.size() ? Value(names[index]) : Value();
  };
  for (const RequestHit& hit : hits) {
    const requests::Request& request = trace.requests[hit.request];
    std::vector<Value> row = cell_fields(hit.policy, hit.capacity);
    row.emplace_back(std::uint64_t{hit.request});
    row.push_back(name(trace.sessions, request.session));
    row.push_back(request.turn == requests::kNone ? Value() : Value(std::uint64_t{request.turn}));
    row.push_back(name(trace.categories, request.category));
    row.emplace_back(std::uint64_t{request.prompt_tokens});
    row.emplace_back(hit.hit_tokens);
    row.emplace_back(std::uint64_t{request.n_blocks});
    row.emplace_back(std::uint64_t{hit.run});
    row.emplace_back(std::uint64_t{hit.present - hit.run});
    row.push_back(hit.prefill ? Value(hit.prefill->seconds) : Value());
    row.push_back(hit.saved ? Value(hit.saved->seconds) : Value());
    row.push_back(hit.saved ? Value(hit.saved->flops) : Value());
    out.rows.push_back(std::move(row));
  }
  return out;
}

}  // namespace kvsim::analysis
