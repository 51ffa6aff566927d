// kvsim requests serve: a trace through engines in time: queues, batches, memory, latencies.
#include <algorithm>

#include "analysis/asked/asked_cells.hpp"
#include "analysis/requests/compression.hpp"
#include "analysis/requests/prefix_costs.hpp"
#include "analysis/requests/serving_tables.hpp"
#include "policies/api/composition.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"
#include "tools/requests/served_options.hpp"

namespace kvsim::tools {
namespace {

using analysis::ServingGrid;

struct RequestsServeOptions : RequestRun {
  ServedOptions served{};
  std::vector<std::string> policies{}, host_policies{"lru"};
  std::string memory{}, allocator = "paged", rate = "1";
  std::string host_cache{}, preemption = "recompute", routing = "least_loaded", page = "2MiB",
                            over_long = "refuse";
  LimitOptions limits{};
  std::uint64_t max_sequences = 256, step_tokens = 2048, block = 16, max_tokens = 0, replicas = 1, seed = 0,
                hashed_blocks = 1;
  bool each = false;
};

/// "none", or replacements.
std::vector<std::optional<policy::Part>> parse_policies(const std::vector<std::string>& lists) {
  std::vector<std::optional<policy::Part>> out;
  for (const std::string& item : analysis::listed_policies(lists)) {
    out.emplace_back();
    if (item != "none") out.back() = policy::parse_replacement(item, front_end().policies());
  }
  return out;
}

ServingGrid grid_of(const RequestsServeOptions& options) {
  ServingGrid grid;
  ServedOptions served = options.served;
  if (!plain_bits(served.serving.kv)) served.serving.kv = "fp16";
  grid.served = parse_served(served);
  grid.memories = parse_memories(options.memory, grid.served, options.step_tokens);
  grid.rates = parse_rates(options.rate);
  grid.allocators.clear();
  for (const std::string& item : comma_list(options.allocator))
    grid.allocators.push_back(serving::parse_allocator(item));
  grid.routings.clear();
  for (const std::string& item : comma_list(options.routing))
    grid.routings.push_back(serving::parse_routing(item));
  if (!options.policies.empty()) grid.policies = parse_policies(options.policies);
  if (!options.host_cache.empty()) {
    grid.host_memory = parse_bytes(options.host_cache, "--host-cache");
    grid.host_policies = parse_policies(options.host_policies);
  }
  if (options.preemption != "recompute" && options.preemption != "swap")
    usage_error("unknown preemption " + in_quotes(options.preemption), "--preemption",
                "Say recompute or swap.");
  grid.engine.preemption =
      options.preemption == "swap" ? serving::Preemption::swap : serving::Preemption::recompute;
  grid.engine.max_sequences = small_count(options.max_sequences, "--max-sequences");
  grid.engine.step_tokens = options.step_tokens;
  grid.engine.memory.block = options.block;
  grid.engine.memory.max_tokens = options.max_tokens;
  grid.page_bytes = parse_bytes(options.page, "--page-bytes");
  grid.over_long = serving::parse_over_long(options.over_long);
  grid.replicas = small_count(options.replicas, "--replicas");
  grid.seed = options.seed;
  grid.hashed_blocks = small_count(options.hashed_blocks, "--hashed-blocks");
  const analysis::CostLimits limits = parse_limits(options.limits, grid.served.machine.memory);
  grid.slo = {limits.first_token, limits.per_token};
  grid.threads = options.threads;
  return grid;
}

std::vector<std::pair<std::string, analysis::Value>> settings_of(const ServingGrid& grid,
                                                                 const RequestsServeOptions& options) {
  return {{"model", grid.served.model.name},
          {"machine", grid.served.machine.name},
          {"tensor_parallel", grid.served.serving.tensor_parallel},
          {"max_sequences", std::uint64_t{grid.engine.max_sequences}},
          {"step_tokens", grid.engine.step_tokens},
          {"kv", options.served.serving.kv},
          {"over_long", options.over_long},
          {"block", grid.engine.memory.block},
          {"page_bytes", grid.page_bytes},
          {"host_memory", grid.host_memory},
          {"seed", grid.seed},
          {"hashed_blocks", std::uint64_t{grid.hashed_blocks}},
          {"ttft_limit", analysis::value_of(grid.slo.ttft)},
          {"tpot_limit", analysis::value_of(grid.slo.tpot)},
          {"file", options.file}};
}

/// Whether every token takes as much as any other, so that blocks of prompts can be shared.
bool layers_alike(const cost::Model& model) {
  return model.window == 0 && model.remembering_layers() == 0;
}

std::vector<std::string> notes_of(const std::vector<analysis::ServingRun>& runs,
                                  const requests::RequestTrace& trace, const ServingGrid& grid,
                                  const RequestsServeOptions& options) {
  std::vector<std::string> out;
  std::uint64_t skipped = 0, cut = 0;
  bool shared = false;
  for (const analysis::ServingRun& run : runs) {
    skipped = std::max(skipped, run.summary.skipped);
    cut = std::max(cut, run.summary.cut);
    shared |= run.settings.engine.prefix_cache.has_value();
  }
  const std::string longer =
      " of " + std::to_string(trace.requests.size()) + " requests are longer than the least memory holds: ";
  if (skipped > 0)
    out.push_back(std::to_string(skipped) + longer +
                  "skipped when they arrive, and in no number; what waits for one comes its pause later.");
  if (cut > 0)
    out.push_back(std::to_string(cut) + longer +
                  "their answers are cut, and then the ends of their prompts.");
  if (layers_alike(grid.served.model)) return out;
  if (shared)
    out.emplace_back("A prefix cache keeps every block in all layers, whatever their window.");
  else if (options.policies.empty() && trace.has_blocks())
    out.emplace_back("No prompts are shared: layers hold their window, or a state, alone.");
  return out;
}

void run_requests_serve(const RequestsServeOptions& options) {
  FormattedOutput output(options);
  ServingGrid grid = grid_of(options);
  const std::string& kind = options.served.serving.kv;
  const policy::Composition stored = whole_prompt(kind, "--kv");
  const requests::RequestTrace trace = read_shown(options);
  if (stored.representation)
    grid.served = analysis::represented_model(grid.served, stored, analysis::mean_prompt(trace));
  if (options.policies.empty() && trace.has_blocks() && options.allocator == "paged" &&
      layers_alike(grid.served.model))
    grid.policies = parse_policies({"lru"});
  const auto runs = followed("serving", options.quiet, [&](Progress& progress) {
    auto made = serving_runs(trace, grid, &progress);
    progress.check();
    return made;
  });
  analysis::Document document{.analysis = "requests serve", .traces = {}, .records = {}};
  document.settings = settings_of(grid, options);
  document.notes = notes_of(runs, trace, grid, options);
  if (options.each) {
    document.records = request_outcome_records(runs, trace);
  } else {
    document.records = serving_records(runs);
    document.console = [&](std::ostream& out) {
      write_serving_table(out, grid, runs);
      for (const std::string& note : document.notes) out << '\n' << note << '\n';
    };
  }
  output.commit(document);
}

void add_engine_options(Command command, RequestsServeOptions& options) {
  const Command engine = command.in_group("Engine");
  engine.add_option("--max-sequences", options.max_sequences, "N", "That run at a time");
  engine.add_option("--step-tokens", options.step_tokens, "TOKENS",
                    "That a step computes, at most: longer prompts come in chunks", token_count());
  engine.add_option("--preemption", options.preemption, "recompute|swap",
                    "Of the sequence that came last, when memory is short");
  engine.add_option("--block", options.block, "TOKENS", "Tokens of a block; a prefix cache has the trace's",
                    token_count());
  engine.add_option("--max-tokens", options.max_tokens, "TOKENS",
                    "What the static allocator reserves (0: the model's context)");
  engine.add_option("--page-bytes", options.page, "BYTES", "Of the pages of page_groups");
}

void add_question_options(Command command, RequestsServeOptions& options) {
  add_request_file(command, options);
  add_served_options(command, options.served);
  command.add_option("--memory", options.memory, "LIST",
                     "Comma list of bytes for keys and values on each device (default: 90% of its memory\n"
                     "without weights, activations and what the runtime takes)");
  command.add_option("--allocator", options.allocator, "LIST",
                     "Comma list: static, paged, page_groups, buddy");
  command.add_option(
      "--policy", options.policies, "LIST",
      "Comma list: which blocks of prompts stay on the device for later ones, beside those of\n"
      "running sequences (kvsim policy list: replacements), or none (default: lru where the trace\n"
      "has blocks, memory is paged, and no layer has a window or holds a state)");
  Option host = command.add_option(
      "--host-cache", options.host_cache, "BYTES",
      "Bytes of the host's memory, for each device, in which blocks of prompts stay behind\n"
      "those of the device: what is found there is copied instead of computed");
  command
      .add_option("--host-policy", options.host_policies, "LIST",
                  "Comma list: which blocks stay there, or none")
      .needs(host);
  command.add_option("--over-long", options.over_long, "refuse|skip|cut",
                     "Requests that the empty memory cannot hold: an error, served to nobody, or cut");
  command.add_option("--rate", options.rate, "LIST", "Comma list: so many times as fast as the trace");
  command.add_option("--replicas", options.replicas, "N", "Engines that share the requests");
  command.add_option("--routing", options.routing, "LIST",
                     "Comma list: random, hashed, longest_prefix, least_loaded");
  command.add_option("--hashed-blocks", options.hashed_blocks, "N",
                     "By how many first blocks of a prompt hashed routing goes, at most");
  command.add_option("--seed", options.seed, "N", "Of random and hashed routing");
  command.add_option("--ttft", options.limits.first_token, "TIME", "Limit of a good request, like 2s");
  command.add_option("--tpot", options.limits.per_token, "TIME", "Limit of a good request, like 50ms");
  command.add_flag("--each", options.each, "A row for each request instead of one for each run");
}

}  // namespace

void add_requests_serve(Command requests) {
  Command command = requests.add_subcommand(
      "serve", "Serve a trace in time: queues, batches, memory; TTFT, TPOT, throughput, goodput", R"(Examples:
  kvsim requests serve traces/sample/requests/mooncake_conversation.jsonl.gz --model llama-3.1-8b --machine h100-sxm --rate 0.5,1 --ttft 2s --tpot 50ms
  kvsim requests serve azure_code.csv --model llama-3.1-8b --machine a100-80-sxm --allocator static,paged,page_groups,buddy
  kvsim requests serve mine.jsonl --model llama-3.1-70b --machine h100-sxm --tensor-parallel 4 --replicas 4 --routing random,hashed,longest_prefix
)");
  const auto options = std::make_shared<RequestsServeOptions>();
  add_question_options(command, *options);
  add_engine_options(command, *options);
  add_run_options(command, *options);
  command.callback([options] { run_requests_serve(*options); });
}

}  // namespace kvsim::tools
