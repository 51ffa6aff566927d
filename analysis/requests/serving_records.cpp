#include "analysis/requests/serving_records.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "analysis/requests/prefill_cost.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::analysis {
namespace {

using serving::ServingSummary;

Value real_value(double value) {
  return std::isfinite(value) ? Value(value) : Value();
}

/// What the runs of a grid differ in.
const std::vector<ColumnInfo>& run_columns() {
  static const std::vector<ColumnInfo> columns{
      {"memory_bytes", "bytes", "for keys and values on each device"},
      {"capacity", "tokens", "that this memory holds"},
      {"allocator", "", "static, paged, page_groups or buddy"},
      {"policy", "", "which blocks of prompts stay on the device for others; null: none do"},
      {"host_policy", "", "which stay in the host's memory; null: none do"},
      {"preemption", "", "recompute or swap: what becomes of a sequence that must make room"},
      {"rate", "", "times as fast as the trace at which requests arrive"},
      {"replicas", "", "engines, each with this memory"},
      {"routing", "", "random, hashed, longest_prefix or least_loaded; null: one engine"}};
  return columns;
}

Value text_of(const std::optional<policy::Part>& policy) {
  return policy ? Value(policy->text()) : Value();
}

std::vector<Value> run_fields(const ServingRun& run) {
  const serving::EngineSettings& engine = run.settings.engine;
  std::vector<Value> out{run.memory,
                         engine.memory.capacity,
                         std::string(serving::allocator_name(engine.allocator)),
                         text_of(engine.prefix_cache),
                         text_of(engine.host_cache.policy),
                         std::string(engine.preemption == serving::Preemption::swap ? "swap" : "recompute"),
                         run.settings.rate,
                         std::uint64_t{run.settings.replicas}};
  out.push_back(run.settings.replicas > 1 ? Value(std::string(routing_name(run.settings.routing.routing)))
                                          : Value());
  return out;
}

struct SpreadColumn {
  const char* key;
  const char* what;
  Spread ServingSummary::*spread;
};
constexpr SpreadColumn kSpreads[] = {
    {"queueing", "from arrival to the first step with the request", &ServingSummary::queueing},
    {"ttft", "from arrival to the first token", &ServingSummary::ttft},
    {"tpot", "time per further token, of requests with two tokens or more", &ServingSummary::tpot},
    {"latency", "from arrival to the last token", &ServingSummary::latency},
    {"gap", "longest time between two tokens of a request", &ServingSummary::longest_gap}};

struct SpreadPart {
  const char* key;
  const char* what;
  double Spread::*part;
};
constexpr SpreadPart kParts[] = {{"mean", "mean", &Spread::mean},
                                 {"p50", "50th percentile", &Spread::p50},
                                 {"p90", "90th percentile", &Spread::p90},
                                 {"p99", "99th percentile", &Spread::p99},
                                 {"max", "largest", &Spread::max}};

void append_summary(std::vector<Value>& row, const ServingSummary& summary) {
  row.emplace_back(summary.requests);
  row.emplace_back(summary.refused);
  row.emplace_back(summary.seconds);
  for (const SpreadColumn& of : kSpreads)
    for (const SpreadPart& part : kParts) row.push_back(real_value(summary.*(of.spread).*(part.part)));
  for (const double value :
       {summary.requests_per_second, summary.prompt_per_second, summary.generated_per_second})
    row.push_back(real_value(value));
  row.push_back(value_of(summary.goodput));
  row.push_back(value_of(summary.good_share));
  row.push_back(real_value(summary.hit_rate));
  row.push_back(real_value(summary.host_hit_rate));
  row.emplace_back(summary.computed_tokens);
  row.emplace_back(summary.elsewhere_tokens);
  row.emplace_back(summary.preemptions);
  row.push_back(real_value(summary.swap_seconds));
  for (const std::uint64_t count : {summary.swap_copies, summary.steps, summary.maps, summary.unmaps})
    row.emplace_back(count);
  for (const double value : {summary.busy, summary.running, summary.used, summary.internal, summary.kept,
                             summary.external, summary.peak, summary.runs})
    row.push_back(real_value(value));
}

std::vector<ColumnInfo> summary_columns() {
  std::vector<ColumnInfo> columns{{"requests", "", "served"},
                                  {"refused", "", "on arrival: longer than what the memory holds of one"},
                                  {"seconds", "s", "from the first arrival to the last token"}};
  for (const SpreadColumn& of : kSpreads)
    for (const SpreadPart& part : kParts)
      columns.push_back({std::string(of.key) + "_" + part.key, "s", std::string(part.what) + ": " + of.what});
  for (ColumnInfo column : std::vector<ColumnInfo>{
           {"requests_per_second", "1/s", "requests over the seconds"},
           {"prompt_per_second", "tokens/s", "tokens of prompts over the seconds, found ones included"},
           {"generated_per_second", "tokens/s", "generated tokens over the seconds"},
           {"goodput", "1/s", "requests that keep the limits, over the seconds; null: no limits"},
           {"good_share", "share", "of the requests that keep the limits; null: no limits"},
           {"hit_rate", "share", "of the tokens of prompts, found when their request first started"},
           {"host_hit_rate", "share", "of the tokens of prompts: found, and copied from the host"},
           {"computed_tokens", "tokens", "of prompts and generated ones, as often as they are computed"},
           {"elsewhere_tokens", "tokens", "computed although another replica had them"},
           {"preemptions", "", "times a sequence gave its memory up"},
           {"swap_seconds", "s", "in which engines wait for copies to and from the host"},
           {"swap_copies", "", "of these copies: keys or values of one layer and run of tokens"},
           {"steps", "", "of all engines"},
           {"maps", "", "pieces of memory given to sequences: what the allocator gives at once"},
           {"unmaps", "", "pieces taken back"},
           {"busy", "share", "of the seconds in which an engine is in a step"},
           {"running", "", "sequences at a time, while busy"},
           {"used", "share", "of the memory while busy: tokens of sequences, shared ones once"},
           {"internal", "share", "of the memory while busy: reserved by sequences and not used"},
           {"kept", "share", "of the memory while busy: of no sequence, kept for later ones"},
           {"external", "share", "of the memory while a request waits for it: free, and not for this one"},
           {"peak", "share", "of the memory: the most that sequences had"},
           {"runs", "", "pieces of memory in which a sequence lies at its end"}})
    columns.push_back(std::move(column));
  return columns;
}

std::vector<double> block_seconds(const requests::RequestTrace& trace, const prefix::PrefixTree& tree,
                                  const ServingGrid& grid) {
  std::uint32_t deepest = 0;
  for (const std::uint32_t depth : tree.depths()) deepest = std::max(deepest, depth);
  return PrefillCost(grid.served.model, grid.served.machine, grid.served.serving)
      .seconds_of_blocks(trace.block_tokens, deepest + std::size_t{1});
}

serving::ServingSettings common_settings(const ServingGrid& grid) {
  serving::ServingSettings settings;
  settings.engine = grid.engine;
  settings.replicas = grid.replicas;
  settings.routing.seed = grid.seed;
  settings.routing.hashed_blocks = grid.hashed_blocks;
  return settings;
}

}  // namespace

std::vector<ServingRun> serving_runs(const requests::RequestTrace& trace, const ServingGrid& grid,
                                     Progress* progress) {
  std::vector<ServingRun> runs;
  serving::ServingSettings settings = common_settings(grid);
  settings.engine.host_cache.tokens = grid.host_memory / token_bytes(grid.served);
  std::optional<prefix::PrefixTree> tree;
  if (trace.has_blocks()) {
    tree.emplace(trace);
    settings.engine.block_seconds =
        std::make_shared<const std::vector<double>>(block_seconds(trace, *tree, grid));
  }
  for (const std::uint64_t memory : grid.memories)
    for (const serving::AllocatorKind allocator : grid.allocators)
      for (const auto& policy : grid.policies)
        for (const auto& host_policy : grid.host_policies)
          for (const double rate : grid.rates)
            for (const serving::Routing routing : grid.routings) {
              settings.engine.allocator = allocator;
              settings.engine.prefix_cache = policy;
              settings.engine.host_cache.policy = host_policy;
              settings.rate = rate;
              settings.routing.routing = routing;
              runs.push_back({.memory = memory, .settings = settings});
              serving::EngineSettings& engine = runs.back().settings.engine;
              engine = engine_settings(grid.served, engine, memory, grid.page_bytes);
            }
  if (progress != nullptr) progress->total = runs.size();
  Workers(grid.threads).run(runs.size(), [&](std::size_t i) {
    if (progress != nullptr && progress->stop) return;
    ServingRun& run = runs[i];
    run.result = serve(trace, tree ? &*tree : nullptr, run.settings, step_price(grid.served));
    run.summary = summary_of(run.result, grid.slo, run.settings.engine.memory.capacity);
    if (progress != nullptr) ++progress->done;
  });
  return runs;
}

const std::vector<ColumnInfo>& serving_columns() {
  static const std::vector<ColumnInfo> columns = [] {
    std::vector<ColumnInfo> out = run_columns();
    for (ColumnInfo& column : summary_columns()) out.push_back(std::move(column));
    return out;
  }();
  return columns;
}

Records serving_records(const std::vector<ServingRun>& runs) {
  Records out{serving_columns(), {}};
  for (const ServingRun& run : runs) {
    out.rows.push_back(run_fields(run));
    append_summary(out.rows.back(), run.summary);
  }
  return out;
}

Records request_outcome_records(const std::vector<ServingRun>& runs, const requests::RequestTrace& trace) {
  Records out{run_columns(), {}};
  for (ColumnInfo column : std::vector<ColumnInfo>{
           {"request", "", "as the trace has it, from 0"},
           {"session", "", "of the trace; null: it names none"},
           {"prompt", "tokens", "of the prompt"},
           {"generated", "tokens", "generated"},
           {"replica", "", "that served it, from 0; null, as all times: it was refused on arrival"},
           {"arrival", "s", "since the beginning of the trace"},
           {"queueing", "s", "from arrival to the first step with it"},
           {"ttft", "s", "from arrival to the first token"},
           {"tpot", "s", "per further token; null: there is none"},
           {"gap", "s", "longest time between two tokens; null: there is one token at most"},
           {"end", "s", "when the last token was there, since the beginning of the trace"},
           {"hit_tokens", "tokens", "of the prompt, found when it first started"},
           {"host_tokens", "tokens", "of these, copied from the host"},
           {"computed_tokens", "tokens", "as often as they were computed"},
           {"preemptions", "", "times it gave its memory up"},
           {"swap_seconds", "s", "in which the engine waited for its copies"},
           {"runs", "", "pieces of memory in which it lay at its end"}})
    out.columns.push_back(std::move(column));
  for (const ServingRun& run : runs)
    for (std::size_t i = 0; i < run.result.requests.size(); ++i) {
      const serving::RequestOutcome& request = run.result.requests[i];
      const std::uint32_t session = trace.requests[i].session;
      std::vector<Value> row = run_fields(run);
      row.emplace_back(std::uint64_t{i});
      row.push_back(session < trace.sessions.size() ? Value(trace.sessions[session]) : Value());
      row.emplace_back(request.prompt_tokens);
      row.emplace_back(request.generated_tokens);
      const bool served = !request.refused, gaps = served && request.tpot();
      row.push_back(served ? Value(std::uint64_t{request.replica}) : Value());
      row.emplace_back(request.arrival);
      for (const double seconds : {request.queueing(), request.ttft()})
        row.push_back(served ? Value(seconds) : Value());
      row.push_back(gaps ? value_of(request.tpot()) : Value());
      row.push_back(gaps ? Value(request.longest_gap) : Value());
      row.push_back(served ? Value(request.end) : Value());
      row.emplace_back(request.hit_tokens);
      row.emplace_back(request.host_tokens);
      row.emplace_back(request.computed_tokens);
      row.emplace_back(std::uint64_t{request.preemptions});
      row.emplace_back(request.swap_seconds);
      row.emplace_back(std::uint64_t{request.runs});
      out.rows.push_back(std::move(row));
    }
  return out;
}

}  // namespace kvsim::analysis
