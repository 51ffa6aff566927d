// kvsim requests replay: what prefix caches hit, for all policies and capacities.

#include "analysis/requests/hit_tables.hpp"
#include "tools/requests/cache_options.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"
#include "traces/requests/generated_blocks.hpp"

namespace kvsim::tools {
namespace {

using analysis::HitGrid;
using analysis::HitParts;
using prefix::FoundTokens;

constexpr std::uint64_t kMostEach = 10'000'000;  ///< rows of --each

struct RequestsReplayOptions : RequestRun {
  CacheOptions cache{};
  std::vector<std::string> policies{"lru,opt"};
  std::string capacity{}, by = "none", found = "all", unit = "block";
  double sample = 1;
  std::uint64_t seed = 0;
  bool residency = false, each = false;
};

HitParts parts_of(const std::string& text) {
  if (text == "category") return HitParts::category;
  if (text == "session") return HitParts::session;
  if (text == "turn") return HitParts::turn;
  return text == "depth" ? HitParts::depth : HitParts::none;
}

FoundTokens found_of(const std::string& text) {
  return text == "whole" ? FoundTokens::whole : text == "vllm" ? FoundTokens::vllm : FoundTokens::all;
}

/// From a hundredth of all different blocks to all of them, each twice the one before.
std::string usual_capacities(const requests::RequestTrace& trace) {
  const std::uint64_t tokens = prefix::PrefixTree(trace).size() * std::uint64_t{trace.block_tokens};
  const std::uint64_t least = std::max<std::uint64_t>(tokens / 128, trace.block_tokens);
  return std::to_string(least) + ".." + std::to_string(std::max(tokens, least)) + ":x2";
}

std::vector<std::pair<std::string, analysis::Value>> settings_of(const RequestsReplayOptions& options,
                                                                 std::optional<double> token_bytes) {
  return {{"file", options.file},
          {"model", analysis::text_or_none(options.cache.model)},
          {"machine", analysis::text_or_none(options.cache.machine)},
          {"stored", analysis::text_or_none(options.cache.stored)},
          {"budget", analysis::text_or_none(options.cache.budget)},
          {"token_bytes", analysis::value_of(token_bytes)},
          {"unit", options.unit},
          {"sample", options.sample},
          {"seed", options.seed},
          {"found", options.found},
          {"by", options.by}};
}

/// Says what numbers rest on that the table does not show.
std::vector<std::string> notes_of(const HitGrid& grid, const requests::RequestTrace& trace) {
  std::vector<std::string> notes;
  for (const policy::Part& policy : grid.policies) {
    if (policy.spec->name == "queue_lru")
      notes.push_back("queue_lru is no online policy here: it knows the next " +
                      std::to_string(policy.params.count("window")) +
                      " requests of the trace before they arrive.");
    if (policy.spec->name == "opt" &&
        (trace.tail == requests::Tail::partial || grid.found == FoundTokens::vllm))
      notes.push_back(
          "opt hits the most blocks, and not always the most tokens: last blocks of prompts count fewer.");
  }
  for (const policy::Part& policy : grid.policies)
    if (!grid.prefill && (policy.spec->name == "gdsf" || policy.spec->name == "hpt")) {
      notes.push_back(
          "gdsf and hpt weigh every block alike: --model and --machine tell what computing it costs.");
      break;
    }
  return notes;
}

void run_requests_replay(const RequestsReplayOptions& options) {
  FormattedOutput output(options);
  HitGrid grid;
  grid.policies = parse_replacements(options.policies);
  grid.parts = parts_of(options.by);
  grid.found = found_of(options.found);
  grid.nodes = options.unit == "node";
  grid.residency = options.residency;
  if (options.sample < 1) {
    if (options.each) usage_error("has no rows of requests", "--sample", "Leave out --each.");
    grid.sample = analysis::HitSample{options.sample, options.seed};
  }
  grid.prefill = prefill_cost(options.cache);
  grid.threads = options.threads;
  requests::RequestTrace trace = read_shown(options);
  require_blocks(trace, options.file,
                 "It has no hits. It can be served (kvsim requests serve), or another one generated.");
  if (grid.found != FoundTokens::all) requests::forget_tails(trace);
  const std::optional<double> token_bytes = cached_token_bytes(options.cache, trace);
  grid.capacities = parse_capacities(options.capacity.empty() ? usual_capacities(trace) : options.capacity,
                                     "--capacity", trace.block_tokens, token_bytes);
  const std::uint64_t cells = grid.policies.size() * grid.capacities.size();
  if (options.each && (cells + 1) * trace.requests.size() > kMostEach)
    usage_error("needs a row for each of " + std::to_string(trace.requests.size()) + " requests in " +
                    std::to_string(cells + 1) + " caches, more than " + std::to_string(kMostEach),
                "--each", "Name fewer capacities or policies.");
  analysis::Document document{.analysis = "requests replay", .traces = {}, .records = {}};
  document.settings = settings_of(options, token_bytes);
  document.notes = notes_of(grid, trace);
  std::vector<analysis::HitRow> rows;
  {
    Progress progress;
    const std::shared_ptr<void> shown = front_end().follow(progress, "replaying", options.quiet);
    if (options.each)
      document.records = request_hit_records(request_hits(trace, grid, &progress), trace);
    else
      document.records = hit_records(rows = hit_rows(trace, grid, &progress));
    progress.check();
  }
  if (!options.each)
    document.console = [&](std::ostream& out) {
      write_hit_table(out, grid, rows);
      for (const std::string& note : document.notes) out << '\n' << note << '\n';
    };
  output.commit(document);
}

}  // namespace

void add_requests_replay(Command requests) {
  Command command = requests.add_subcommand(
      "replay", "What prefix caches hit: every replacement policy at every capacity, beside the ceiling",
      R"(Examples:
  kvsim requests replay traces/sample/requests/mooncake_conversation.jsonl.gz --policy all
  kvsim requests replay mine.jsonl --policy lru,s3_fifo,opt --capacity 1M..256M:x2 -o hits.csv
  kvsim requests replay mine.jsonl --model llama-3.1-8b --machine h100-sxm --capacity 16GiB..1TiB:x2 --policy lru,gdsf,opt
  kvsim requests replay mine.jsonl --model llama-3.1-8b --stored 'full+kivi(bits=2)' --capacity 64GiB --by depth
)");
  const auto options = std::make_shared<RequestsReplayOptions>();
  add_request_file(command, *options);
  command.add_option("--policy", options->policies, "LIST",
                     "Comma list of replacements (kvsim policy list), or all; opt knows the future");
  command.add_option("--capacity", options->capacity, "LIST",
                     "Comma list of tokens (64K), bytes (64GiB) and ranges (1K..1M:x2); default: from a\n"
                     "hundredth of the trace's different blocks to all of them");
  add_cache_options(command, options->cache);
  command.add_option("--unit", options->unit, "block|node",
                     "What is evicted: single blocks, or whole nodes of the radix tree, as SGLang does",
                     hidden(one_of({"block", "node"})));
  command.add_option("--by", options->by, "none|category|session|turn|depth",
                     "A row for each part of the requests, or of the prompts",
                     hidden(one_of({"none", "category", "session", "turn", "depth"})));
  command.add_option("--found", options->found, "all|whole|vllm",
                     "Which tokens of a leading run count: all; of whole blocks, which are then all that a\n"
                     "cache holds; as vllm, which also computes the last token of every prompt",
                     hidden(one_of({"all", "whole", "vllm"})));
  command.add_option(
      "--sample", options->sample, "SHARE",
      "So large a share of the prompts stands for all: whole subtrees of what they share, chosen\n"
      "by a hash (how far it is off: traces/requests/README.md)",
      between(1e-6, 1.0));
  command.add_option("--seed", options->seed, "N", "Of that choice");
  command.add_flag("--residency", options->residency,
                   "How long blocks stay, lie idle and wait to be used again, too");
  command.add_flag("--each", options->each, "A row for each request in every cache");
  add_run_options(command, *options);
  command.callback([options] { run_requests_replay(*options); });
}

}  // namespace kvsim::tools
