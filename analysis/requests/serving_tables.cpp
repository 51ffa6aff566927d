#include "analysis/requests/serving_tables.hpp"

#include <algorithm>
#include <memory>
#include <ostream>

#include "analysis/cost/cost_table.hpp"
#include "analysis/requests/prefix_costs.hpp"
#include "analysis/results/declared_columns.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::analysis {
namespace {

using serving::ServingSummary;
using Policy = std::optional<policy::Part>;

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
  settings.over_long = grid.over_long;
  settings.routing.seed = grid.seed;
  settings.routing.hashed_blocks = grid.hashed_blocks;
  return settings;
}

/// What the runs of a grid differ in; `run_of`: of a row.
template <class Row, class RunOf>
Columns<Row> run_columns(RunOf run_of) {
  const auto engine = [run_of](auto read) {
    return [=](const Row& row) { return read(run_of(row).settings.engine); };
  };
  const auto settings = [run_of](auto read) {
    return [=](const Row& row) { return read(run_of(row).settings); };
  };
  using Engine = serving::EngineSettings;
  using Settings = serving::ServingSettings;
  const auto text = [](const Policy& policy) { return policy ? Value(policy->text()) : Value(); };
  return {
      {"memory_bytes", "bytes", "for keys and values on each device",
       [run_of](const Row& row) { return run_of(row).memory; }},
      {"capacity", "tokens",
       "that this memory holds; of one sequence where not every token takes the same, null: of any length",
       engine([](const Engine& e) { return capacity_tokens(e.memory); })},
      {"allocator", "", "static, paged, page_groups or buddy",
       engine([](const Engine& e) { return allocator_name(e.allocator); })},
      {"policy", "", "which blocks of prompts stay on the device for others; null: none do",
       engine([text](const Engine& e) { return text(e.prefix_cache); })},
      {"host_policy", "", "which stay in the host's memory; null: none do",
       engine([text](const Engine& e) { return text(e.host_cache.policy); })},
      {"preemption", "", "recompute or swap: what becomes of a sequence that must make room",
       engine(
           [](const Engine& e) { return e.preemption == serving::Preemption::swap ? "swap" : "recompute"; })},
      {"rate", "", "times as fast as the trace at which requests arrive",
       settings([](const Settings& s) { return s.rate; })},
      {"replicas", "", "engines, each with this memory",
       settings([](const Settings& s) { return s.replicas; })},
      {"routing", "", "random, hashed, longest_prefix or least_loaded; null: one engine",
       settings([](const Settings& s) {
         return s.replicas > 1 ? as_field(routing_name(s.routing.routing)) : Value();
       })}};
}

Columns<ServingRun> spread_columns() {
  using Part = std::tuple<const char*, const char*, double Spread::*>;
  using Of = std::tuple<const char*, const char*, Spread ServingSummary::*>;
  constexpr Part kParts[] = {{"mean", "mean", &Spread::mean},
                             {"p50", "50th percentile", &Spread::p50},
                             {"p90", "90th percentile", &Spread::p90},
                             {"p99", "99th percentile", &Spread::p99},
                             {"max", "largest", &Spread::max}};
  constexpr Of kSpreads[] = {
      {"queueing", "from arrival to the first step with the request", &ServingSummary::queueing},
      {"ttft", "from arrival to the first token", &ServingSummary::ttft},
      {"tpot", "time per further token, of requests with two tokens or more", &ServingSummary::tpot},
      {"latency", "from arrival to the last token", &ServingSummary::latency},
      {"gap", "longest time between two tokens of a request", &ServingSummary::longest_gap}};
  Columns<ServingRun> out;
  for (const auto& [key, what, of] : kSpreads)
    for (const auto& [part, of_them, field] : kParts)
      out.emplace_back(
          std::string(key) + "_" + part, "s", std::string(of_them) + ": " + what,
          [spread = of, value = field](const ServingRun& run) { return run.summary.*spread.*value; });
  return out;
}

const Columns<ServingRun>& serving_fields() {
  const auto sum = [](auto ServingSummary::*what) {
    return [what](const ServingRun& run) { return run.summary.*what; };
  };
  using S = ServingSummary;
  static const Columns<ServingRun> all =
      run_columns<ServingRun>([](const ServingRun& run) -> const ServingRun& { return run; }) +
      Columns<ServingRun>{
          {"requests", "", "served", sum(&S::requests)},
          {"skipped", "", "on arrival: longer than what the memory holds of one", sum(&S::skipped)},
          {"cut", "", "of those served, cut to what the memory holds of one", sum(&S::cut)},
          {"seconds", "s", "from the first arrival to the last token", sum(&S::seconds)}} +
      spread_columns() +
      Columns<ServingRun>{
          {"requests_per_second", "1/s", "requests over the seconds", sum(&S::requests_per_second)},
          {"prompt_per_second", "tokens/s", "tokens of prompts over the seconds, found ones included",
           sum(&S::prompt_per_second)},
          {"generated_per_second", "tokens/s", "generated tokens over the seconds",
           sum(&S::generated_per_second)},
          {"goodput", "1/s", "requests that keep the limits, over the seconds; null: no limits",
           sum(&S::goodput)},
          {"good_share", "share", "of the requests that keep the limits; null: no limits",
           sum(&S::good_share)},
          {"hit_rate", "share", "of the tokens of prompts, found when their request first started",
           sum(&S::hit_rate)},
          {"host_hit_rate", "share", "of the tokens of prompts: found, and copied from the host",
           sum(&S::host_hit_rate)},
          {"computed_tokens", "tokens", "of prompts and generated ones, as often as they are computed",
           sum(&S::computed_tokens)},
          {"elsewhere_tokens", "tokens", "computed although another replica had them",
           sum(&S::elsewhere_tokens)},
          {"preemptions", "", "times a sequence gave its memory up", sum(&S::preemptions)},
          {"swap_seconds", "s", "in which engines wait for copies to and from the host",
           sum(&S::swap_seconds)},
          {"swap_copies", "", "of these copies: keys or values of one layer and run of tokens",
           sum(&S::swap_copies)},
          {"steps", "", "of all engines", sum(&S::steps)},
          {"maps", "", "pieces of memory given to sequences: what the allocator gives at once",
           sum(&S::maps)},
          {"unmaps", "", "pieces taken back", sum(&S::unmaps)},
          {"busy", "share", "of the seconds in which an engine is in a step", sum(&S::busy)},
          {"running", "", "sequences at a time, while busy", sum(&S::running)},
          {"used", "share", "of the memory while busy: tokens of sequences, shared ones once", sum(&S::used)},
          {"internal", "share", "of the memory while busy: reserved by sequences and not used",
           sum(&S::internal)},
          {"kept", "share", "of the memory while busy: of no sequence, kept for later ones", sum(&S::kept)},
          {"external", "share", "of the memory while a request waits for it: free, and not for this one",
           sum(&S::external)},
          {"peak", "share", "of the memory: the most that sequences had", sum(&S::peak)},
          {"runs", "", "pieces of memory in which a sequence lies at its end", sum(&S::runs)}};
  return all;
}

/// A request of a run.
struct ServedRequest {
  const ServingRun& run;
  std::size_t number;

  const serving::RequestOutcome& outcome() const { return run.result.requests[number]; }
};

// ---- for people

/// Its name; with the parameters where others of that name are there.
std::string label(const std::vector<Policy>& among, const Policy& policy) {
  if (!policy) return "none";
  const auto same =
      std::ranges::count_if(among, [&](const Policy& other) { return other && other->spec == policy->spec; });
  return same > 1 ? policy->text() : policy->spec->name;
}

std::vector<Shown<ServingRun>> shown_columns(const ServingGrid& grid, bool skipped, bool cut) {
  using Run = ServingRun;
  std::vector<Shown<Run>> out;
  const auto setting = [&](const char* heading, std::function<std::string(const Run&)> text) {
    out.push_back({heading, Align::left, std::move(text), true});
  };
  const auto add = [&](const char* heading, std::function<std::string(const Run&)> text) {
    out.push_back({heading, Align::point, std::move(text)});
  };
  const auto number = [&](const char* heading, double ServingSummary::*field, double unit, int decimals) {
    add(heading, [=](const Run& run) { return real_text(unit * (run.summary.*field), decimals); });
  };
  const auto spread = [&](const char* heading, Spread ServingSummary::*of, double Spread::*part, double unit,
                          int decimals) {
    add(heading, [=](const Run& run) { return real_text(unit * (run.summary.*of.*part), decimals); });
  };
  const auto count = [&](const char* heading, std::uint64_t ServingSummary::*field) {
    add(heading, [=](const Run& run) { return std::to_string(run.summary.*field); });
  };
  setting("memory", [](const Run& run) { return bytes_text(run.memory); });
  setting("allocator", [](const Run& run) { return allocator_name(run.settings.engine.allocator); });
  setting("policy", [&](const Run& run) { return label(grid.policies, run.settings.engine.prefix_cache); });
  setting("host policy",
          [&](const Run& run) { return label(grid.host_policies, run.settings.engine.host_cache.policy); });
  setting("rate", [](const Run& run) { return rounded_text(run.settings.rate); });
  setting("replicas", [](const Run& run) {
    if (run.settings.replicas == 1) return std::string("1");
    return std::to_string(run.settings.replicas) + ", " + routing_name(run.settings.routing.routing);
  });
  spread("TTFT p50 s", &ServingSummary::ttft, &Spread::p50, 1, 3);
  spread("p99", &ServingSummary::ttft, &Spread::p99, 1, 3);
  spread("TPOT p50 ms", &ServingSummary::tpot, &Spread::p50, 1e3, 2);
  spread("p99", &ServingSummary::tpot, &Spread::p99, 1e3, 2);
  spread("queue p50 s", &ServingSummary::queueing, &Spread::p50, 1, 3);
  number("requests /s", &ServingSummary::requests_per_second, 1, 3);
  number("tokens /s", &ServingSummary::generated_per_second, 1, 1);
  if (grid.slo.any())
    add("good %", [](const Run& run) { return real_text(100 * run.summary.good_share.value_or(0), 1); });
  number("hits %", &ServingSummary::hit_rate, 100, 1);
  number("of host %", &ServingSummary::host_hit_rate, 100, 1);
  number("busy %", &ServingSummary::busy, 100, 1);
  number("used %", &ServingSummary::used, 100, 1);
  number("internal %", &ServingSummary::internal, 100, 1);
  number("kept %", &ServingSummary::kept, 100, 1);
  number("running", &ServingSummary::running, 1, 1);
  count("preemp- tions", &ServingSummary::preemptions);
  if (grid.replicas > 1) count("computed elsewhere", &ServingSummary::elsewhere_tokens);
  if (skipped) count("skipped", &ServingSummary::skipped);
  if (cut) count("cut", &ServingSummary::cut);
  return out;
}

}  // namespace

Value capacity_tokens(const serving::AllocatorSettings& memory) {
  if (!memory.sizes) return memory.capacity;
  const std::uint64_t longest = longest_in_bytes(memory);
  return longest == serving::kAnyLength ? Value() : Value(longest);
}

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

Records serving_records(const std::vector<ServingRun>& runs) {
  return table_of(serving_fields(), runs);
}

Records request_outcome_records(const std::vector<ServingRun>& runs, const requests::RequestTrace& trace) {
  using Outcome = serving::RequestOutcome;
  const auto of = [](auto read) {
    return [read](const ServedRequest& row) { return std::invoke(read, row.outcome()); };
  };
  const auto served = [](auto read) {
    return [read](const ServedRequest& row) {
      return row.outcome().skipped ? Value() : as_field(std::invoke(read, row.outcome()));
    };
  };
  std::vector<ServedRequest> rows;
  for (const ServingRun& run : runs)
    for (std::size_t i = 0; i < run.result.requests.size(); ++i) rows.push_back({run, i});
  return table_of(
      run_columns<ServedRequest>([](const ServedRequest& row) -> const ServingRun& { return row.run; }) +
          Columns<ServedRequest>{
              {"request", "", "as the trace has it, from 0", &ServedRequest::number},
              {"session", "", "of the trace; null: it names none",
               [&trace](const ServedRequest& row) {
                 const std::uint32_t session = trace.requests[row.number].session;
                 return session < trace.sessions.size() ? Value(trace.sessions[session]) : Value();
               }},
              {"prompt", "tokens", "of the prompt", of(&Outcome::prompt_tokens)},
              {"generated", "tokens", "generated", of(&Outcome::generated_tokens)},
              {"cut_tokens", "tokens",
               "of prompt and answer, left away because the memory does not hold them",
               of(&Outcome::cut_tokens)},
              {"replica", "", "that served it, from 0; null, as all times: it was skipped",
               served(&Outcome::replica)},
              {"arrival", "s", "since the beginning of the trace", of(&Outcome::arrival)},
              {"queueing", "s", "from arrival to the first step with it", served(&Outcome::queueing)},
              {"ttft", "s", "from arrival to the first token", served(&Outcome::ttft)},
              {"tpot", "s", "per further token; null: there is none", served(&Outcome::tpot)},
              {"gap", "s", "longest time between two tokens; null: there is one token at most",
               served([](const Outcome& o) { return o.tpot() ? Value(o.longest_gap) : Value(); })},
              {"end", "s", "when the last token was there, since the beginning of the trace",
               served(&Outcome::end)},
              {"hit_tokens", "tokens", "of the prompt, found when it first started",
               of(&Outcome::hit_tokens)},
              {"host_tokens", "tokens", "of these, copied from the host", of(&Outcome::host_tokens)},
              {"computed_tokens", "tokens", "as often as they were computed", of(&Outcome::computed_tokens)},
              {"preemptions", "", "times it gave its memory up", of(&Outcome::preemptions)},
              {"swap_seconds", "s", "in which the engine waited for its copies", of(&Outcome::swap_seconds)},
              {"runs", "", "pieces of memory in which it lay at its end", of(&Outcome::runs)}},
      rows);
}

std::string real_text(double value, int decimals) {
  return std::isfinite(value) ? fixed_text(value, decimals) : "-";
}

void write_serving_table(std::ostream& out, const ServingGrid& grid, const std::vector<ServingRun>& runs) {
  const auto write_line = [&](std::string name, const std::string& text) {
    name.resize(14, ' ');
    out << name << text << '\n';
  };
  write_line("model", described(grid.served.model));
  write_line("machine", described(grid.served.machine));
  const auto any = [&](std::uint64_t ServingSummary::*count) {
    return std::ranges::any_of(runs, [=](const ServingRun& run) { return run.summary.*count > 0; });
  };
  TextTable table = shown_table(shown_columns(grid, any(&ServingSummary::skipped), any(&ServingSummary::cut)),
                                runs, write_line);
  out << '\n';
  table.print(out);
}

}  // namespace kvsim::analysis
