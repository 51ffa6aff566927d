// kvsim requests tiers: prompts of a trace against caches on the device, in host memory and on an SSD.

#include "analysis/cost/cost_table.hpp"
#include "analysis/requests/tier_tables.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/split.hpp"
#include "tools/requests/cache_options.hpp"
#include "tools/requests/request_options.hpp"
#include "tools/requests/requests_commands.hpp"
#include "tools/requests/served_options.hpp"
#include "tools/requests/tier_options.hpp"

namespace kvsim::tools {
namespace {

using analysis::CacheCapacity;
using analysis::TierCache;
using analysis::TierGrid;

/// Tokens of an engine's steps, whose activations the memory of the device has beside cached blocks.
constexpr std::uint64_t kStepTokens = 2048;
constexpr std::size_t kMostPlans = 10'000;

struct RequestsTiersOptions : RequestRun {
  TierOptions tiers{};
  std::string model{}, machine{}, device{}, host = "none", ssd = "none";
  std::vector<std::string> policies{"lru"}, host_policies{}, ssd_policies{};
};

/// Each with every policy, none first where it is asked for, then the smallest.
std::vector<std::optional<TierCache>> caches(const std::string& sizes, const std::string& option,
                                             const std::vector<policy::Part>& policies, double token_bytes,
                                             std::uint32_t block_tokens) {
  std::vector<std::string> items = comma_list(sizes);
  const bool none = std::erase(items, "none") > 0;
  std::vector<std::optional<TierCache>> out;
  if (!items.empty())
    for (const CacheCapacity& capacity :
         parse_capacities(joined(items, ","), option, block_tokens, token_bytes))
      for (const policy::Part& policy : policies) out.emplace_back(TierCache{policy, capacity});
  if (none) out.insert(out.begin(), std::nullopt);
  return out;
}

/// Every device with every host and every SSD. Without policies of their own the tiers of a plan share one.
std::vector<analysis::TierPlan> plans_of(const RequestsTiersOptions& options, const TierStorage& storage,
                                         const serving::ServedModel& served, std::uint32_t block_tokens) {
  const std::string device =
      options.device.empty() ? std::to_string(usual_memory(served, kStepTokens)) + "B" : options.device;
  std::vector<analysis::TierPlan> out;
  for (const policy::Part& policy : parse_replacements(options.policies)) {
    const auto chosen = [&](const std::vector<std::string>& own) {
      return own.empty() ? std::vector<policy::Part>{policy} : parse_replacements(own);
    };
    for (const auto& on_device :
         caches(device, "--device", {policy}, storage.device_token_bytes, block_tokens))
      for (const auto& on_host : caches(options.host, "--host", chosen(options.host_policies),
                                        storage.links.token_bytes.host, block_tokens))
        for (const auto& on_ssd : caches(options.ssd, "--ssd", chosen(options.ssd_policies),
                                         storage.links.token_bytes.ssd, block_tokens)) {
          out.push_back({.device = on_device, .tiers = {.host = on_host, .ssd = on_ssd}});
          if (out.size() > kMostPlans)
            usage_error("more than 10,000 plans", "--device, --host, --ssd and --policy");
        }
  }
  return out;
}

void run_requests_tiers(const RequestsTiersOptions& options) {
  FormattedOutput output(options);
  const serving::ServedModel served = tier_served(options.tiers, options.model, options.machine);
  const requests::RequestTrace trace = read_shown(options);
  require_blocks(trace, options.file,
                 "There is nothing to find in a cache: kvsim requests serve takes it for queues.");
  const TierStorage storage = tier_storage(options.tiers, served, trace.block_tokens);
  const TierGrid grid{.plans = plans_of(options, storage, served, trace.block_tokens),
                      .links = storage.links,
                      .prefill = {served.model, served.machine, served.serving},
                      .threads = options.threads};
  const auto rows =
      followed("tiers", options.quiet, [&](Progress& progress) { return tier_rows(trace, grid, &progress); });
  analysis::Document document{
      .analysis = "requests tiers", .traces = {}, .records = tier_records(grid, rows)};
  document.settings = {{"model", served.model.name},
                       {"machine", served.machine.name},
                       {"tensor_parallel", served.serving.tensor_parallel},
                       {"weight_bits", served.serving.runtime.weight_bits.value_or(served.model.weight_bits)},
                       {"device_kv", storage.device_kv},
                       {"host_kv", storage.host_kv},
                       {"ssd_kv", storage.ssd_kv},
                       {"device_token_bytes", storage.device_token_bytes},
                       {"host_token_bytes", storage.links.token_bytes.host},
                       {"ssd_token_bytes", storage.links.token_bytes.ssd},
                       {"host_link_bandwidth", storage.links.links.host.bandwidth},
                       {"host_link_latency", storage.links.links.host.latency},
                       {"ssd_link_bandwidth", storage.links.links.ssd.bandwidth},
                       {"ssd_link_latency", storage.links.links.ssd.latency},
                       {"block_tokens", std::uint64_t{trace.block_tokens}},
                       {"file", options.file}};
  document.console = [&](std::ostream& out) {
    const auto stored = [](const cost::Link& link, const std::string& kv, double bytes) {
      return analysis::link_text(link) + "; " + kv + ", " +
             std::to_string(static_cast<std::uint64_t>(bytes)) + " bytes per token";
    };
    analysis::TableHead head{{"model", analysis::described(served.model)},
                             {"machine", analysis::described(served.machine)}};
    const cost::TierLinks& links = storage.links;
    if (options.host != "none")
      head.emplace_back("host link", stored(links.links.host, storage.host_kv, links.token_bytes.host));
    if (options.ssd != "none")
      head.emplace_back("SSD link", stored(links.links.ssd, storage.ssd_kv, links.token_bytes.ssd));
    write_tier_table(out, std::move(head), grid, rows);
  };
  output.commit(document);
}

}  // namespace

void add_requests_tiers(Command requests) {
  Command command = requests.add_subcommand(
      "tiers",
      "What prompts find on the device, in host memory and on an SSD, and whether to load or compute it",
      R"(Examples:
  kvsim requests tiers traces/sample/requests/mooncake_conversation.jsonl.gz --model llama-3.1-8b --machine h100-sxm --device 20GiB --host 64GiB..512GiB:x2
  kvsim requests tiers mine.jsonl --model llama-3.1-8b --machine a100-80-sxm --host 200GiB --ssd 2TiB --ssd-link 7GB/s,100us --policy lru,slru
  kvsim requests tiers mine.jsonl --model llama-3.1-8b --machine a100-80-sxm --host 200GiB --host-kv cachegen --host-sent 95%
)");
  const auto options = std::make_shared<RequestsTiersOptions>();
  add_request_file(command, *options);
  command.add_required("--model", options->model, "MODEL", "As of kvsim cost estimate");
  command.add_required("--machine", options->machine, "MACHINE", "As of kvsim cost estimate");
  command.add_option(
      "--device", options->device, "LIST",
      "Comma list of what each device has for blocks of prompts: bytes, tokens, ranges like\n"
      "8GiB..64GiB:x2, or none (default: 90% of its memory without weights, activations and what\n"
      "the runtime takes)");
  command.add_option("--host", options->host, "LIST", "The same of host memory, for each device");
  command.add_option("--ssd", options->ssd, "LIST", "The same of the SSD");
  command.add_option("--policy", options->policies, "LIST",
                     "Comma list: which blocks stay (kvsim policy list: replacements)");
  command.add_option("--host-policy", options->host_policies, "LIST",
                     "Which stay in host memory (default: as --policy)");
  command.add_option("--ssd-policy", options->ssd_policies, "LIST",
                     "Which stay on the SSD (default: as --policy)");
  add_tier_options(command, options->tiers);
  add_run_options(command, *options);
  command.callback([options] { run_requests_tiers(*options); });
}

}  // namespace kvsim::tools
