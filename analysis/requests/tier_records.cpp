#include "analysis/requests/tier_records.hpp"

#include <utility>

namespace kvsim::analysis {
namespace {

using cost::kTiers;
using cost::Tier;

Value policy_of(const std::optional<TierCache>& cache) {
  return cache ? Value(cache->policy.text()) : Value();
}
Value bytes_of(const std::optional<TierCache>& cache) {
  return cache ? value_of(cache->capacity.bytes) : Value();
}
Value blocks_of(const std::optional<TierCache>& cache) {
  return cache ? Value(cache->capacity.blocks) : Value();
}

}  // namespace

const std::vector<ColumnInfo>& tier_columns() {
  static const std::vector<ColumnInfo> columns{
      {"device_policy", "", "of the cache on the device, with every parameter; null: there is none"},
      {"host_policy", "", "of the cache in host memory; null: there is none"},
      {"ssd_policy", "", "of the cache on the SSD; null: there is none"},
      {"device_capacity_bytes", "bytes", "for keys and values on a device"},
      {"host_capacity_bytes", "bytes", "in host memory, for each device; null: there is none"},
      {"ssd_capacity_bytes", "bytes", "on the SSD, for each device; null: there is none"},
      {"device_blocks", "", "that its capacity holds"},
      {"host_blocks", "", "that its capacity holds as they are stored there"},
      {"ssd_blocks", "", "that its capacity holds as they are stored there"},
      {"window", "", "all requests, or the last_half: from number n / 2 on"},
      {"requests", "", "of the window"},
      {"prompt_tokens", "tokens", "of their prompts"},
      {"device_tokens", "tokens", "of the first blocks that some tier has: those on the device"},
      {"host_tokens", "tokens", "of these, in host memory and not on the device"},
      {"ssd_tokens", "tokens", "of these, on the SSD alone"},
      {"device_share", "share", "of the prompts' tokens: device_tokens"},
      {"host_share", "share", "of the prompts' tokens: host_tokens"},
      {"ssd_share", "share", "of the prompts' tokens: ssd_tokens"},
      {"host_loaded_tokens", "tokens",
       "of host_tokens, those that requests load; they compute the others again"},
      {"ssd_loaded_tokens", "tokens",
       "of ssd_tokens, those that requests load; they compute the others again"},
      {"load_all", "", "requests that load all that they find behind the device"},
      {"load_some", "", "requests that load a part of what they find there, its beginning"},
      {"none_seconds", "s", "of all prefills without any cache"},
      {"device_seconds", "s", "of all prefills with the device's cache alone"},
      {"load_all_seconds", "s", "of all prefills that load whatever the tiers have"},
      {"seconds", "s", "of all prefills, each by its fastest choice of what it loads"},
      {"loading_seconds", "s", "of these, waiting for the links"},
      {"computing_seconds", "s", "of these, computing"},
      {"saved_seconds", "s", "none_seconds - seconds"},
      {"request_mean", "s", "of a request, by its fastest choice: mean"},
      {"request_p50", "s", "50th percentile"},
      {"request_p90", "s", "90th percentile"},
      {"request_p99", "s", "99th percentile"},
      {"host_link_bytes", "bytes",
       "that cross the link from host memory to a device, those of the SSD included"},
      {"ssd_link_bytes", "bytes", "that cross the link from the SSD"},
      {"host_written_bytes", "bytes", "stored in host memory over the whole trace; null for the last half"},
      {"ssd_written_bytes", "bytes", "stored on the SSD over the whole trace; null for the last half"}};
  return columns;
}

Records tier_records(const TierGrid& grid, const std::vector<TierRow>& rows) {
  Records out{tier_columns(), {}};
  for (const TierRow& row : rows) {
    const TierPlan& plan = grid.plans[row.plan];
    const auto share = [&](std::uint64_t tokens) {
      return row.prompt_tokens > 0
                 ? Value(static_cast<double>(tokens) / static_cast<double>(row.prompt_tokens))
                 : Value();
    };
    std::vector<Value> fields{policy_of(plan.device),    policy_of(plan.tiers.host),
                              policy_of(plan.tiers.ssd), bytes_of(plan.device),
                              bytes_of(plan.tiers.host), bytes_of(plan.tiers.ssd),
                              blocks_of(plan.device),    blocks_of(plan.tiers.host),
                              blocks_of(plan.tiers.ssd), std::string(row.last_half ? "last_half" : "all")};
    for (const std::uint64_t count :
         {row.requests, row.prompt_tokens, row.device_tokens, row.tier_tokens.host, row.tier_tokens.ssd})
      fields.emplace_back(count);
    for (const std::uint64_t tokens : {row.device_tokens, row.tier_tokens.host, row.tier_tokens.ssd})
      fields.push_back(share(tokens));
    for (const std::uint64_t count :
         {row.loaded_tokens.host, row.loaded_tokens.ssd, row.load_all, row.load_some})
      fields.emplace_back(count);
    for (const double seconds : {row.none_s, row.device_s, row.load_all_s, row.seconds, row.loading_s,
                                 row.computing_s, row.none_s - row.seconds})
      fields.emplace_back(seconds);
    fields.push_back(row.requests > 0 ? Value(row.seconds / static_cast<double>(row.requests)) : Value());
    for (const double number : {row.p50, row.p90, row.p99, row.link_bytes.host, row.link_bytes.ssd})
      fields.emplace_back(number);
    for (const Tier tier : kTiers) fields.push_back(value_of(row.written_bytes[tier]));
    out.rows.push_back(std::move(fields));
  }
  return out;
}

}  // namespace kvsim::analysis
