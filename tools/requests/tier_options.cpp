#include "tools/requests/tier_options.hpp"

#include <cmath>
#include <vector>

#include "analysis/requests/prefix_costs.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/results/reading/read_tables.hpp"
#include "analysis/results/records.hpp"
#include "policies/api/composition.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "tools/options/cost_options.hpp"
#include "tools/printing/front_end.hpp"
#include "tools/requests/served_options.hpp"

namespace kvsim::tools {
namespace {

/// "25GB/s" or "25GB/s,6us".
cost::Link parse_link(const std::string& text, const std::string& option) {
  const std::string hint = "Say its rate and its latency, like 25GB/s,6us.";
  const std::vector<std::string> parts = comma_list(text);
  if (parts.size() > 2 || !parts.front().ends_with("/s"))
    usage_error(in_quotes(text) + " is no link", option, hint);
  const std::optional<double> rate =
      bytes_of(std::string_view(parts.front()).substr(0, parts.front().size() - 2));
  if (!rate || !(*rate >= 1) || !std::isfinite(*rate))
    usage_error(in_quotes(parts.front()) + " is no rate", option, hint);
  return {.bandwidth = *rate, .latency = parts.size() == 2 ? parse_seconds(parts[1], option) : 0};
}

/// Of rows of a replay with this representation: sent_bytes over kept_bytes.
double sent_share(const std::string& file, const policy::Composition& stored, const std::string& option) {
  double sent = 0, kept = 0;
  for (const analysis::NamedTable& table : analysis::read_tables(file)) {
    const analysis::Records& records = table.records;
    if (!has_column(records, "params") || !has_column(records, "sent_bytes") ||
        !has_column(records, "kept_bytes"))
      continue;
    for (const std::vector<analysis::Value>& row : records.rows) {
      const auto sent_here = analysis::number(row[records.column("sent_bytes")]);
      const auto kept_here = analysis::number(row[records.column("kept_bytes")]);
      if (analysis::exact_field(row[records.column("params")], "") != stored.params || !sent_here ||
          !kept_here)
        continue;
      sent += *sent_here;
      kept += *kept_here;
    }
  }
  if (!(kept > 0) || !(sent > 0))
    input_error("no row has sent_bytes and kept_bytes of " + stored.params, file,
                option + " takes results of kvsim replay --policy 'full+cachegen', or a share like 95%.");
  return sent / kept;
}

/// Above 0: in percent, or from a file.
double parse_sent(const std::string& text, const policy::Composition& stored, const std::string& option) {
  if (text.empty()) return 1;
  if (!text.ends_with('%')) return sent_share(text, stored, option);
  const double share = parse_share(text, option);
  if (!(share > 0)) usage_error("nothing is left of what is stored", option, "Say it like 95%.");
  return share;
}

struct Kept {
  double token_bytes = 0;
  std::string name{};
};

Kept kept_as(const serving::ServedModel& served, const std::string& kind, const std::string& sent,
             const std::string& tier, std::uint32_t block_tokens) {
  const std::string option = tier.empty() ? "--kv" : "--" + tier + "-kv";
  const policy::Composition stored = whole_prompt(kind, option);
  serving::ServedModel as = served;
  as.serving.layout.storage.element_bits = plain_bits(kind).value_or(16);
  const double share = parse_sent(sent, stored, "--" + tier + "-sent");
  Kept out{share * analysis::stored_token_bytes(as, stored, std::nullopt, block_tokens), kind};
  if (share < 1) out.name += " x " + analysis::rounded_text(share);
  return out;
}

const std::string& or_else(const std::string& text, const std::string& other) {
  return text.empty() ? other : text;
}

}  // namespace

void add_tier_options(Command command, TierOptions& options) {
  const Command tiers = command.in_group("Tiers");
  tiers.add_option("--kv", options.kv, "KIND",
                   "How keys and values are stored: fp16, fp32 or a representation (kvsim policy list)");
  tiers.add_option("--host-kv", options.host_kv, "KIND",
                   "How they are stored in host memory (default: as --kv)");
  tiers.add_option("--ssd-kv", options.ssd_kv, "KIND",
                   "How they are stored on the SSD (default: as in host memory)");
  tiers.add_option(
      "--host-sent", options.host_sent, "SHARE|FILE",
      "What an entropy coder leaves of these bytes: a share like 95%, or results of kvsim replay\n"
      "with sent_bytes of this representation (default: all)");
  tiers.add_option("--ssd-sent", options.ssd_sent, "SHARE|FILE",
                   "The same on the SSD (default: as --host-sent if both are stored alike)");
  tiers.add_option("--host-link", options.host_link, "LINK",
                   "Rate and latency to host memory, like 25GB/s,6us (default: the machine's)");
  tiers.add_option("--ssd-link", options.ssd_link, "LINK",
                   "Rate and latency to the SSD, like 7GB/s,100us (default: the machine's)");
  tiers.add_option("--tensor-parallel", options.tensor_parallel, "N",
                   "Devices that share every layer; bytes are of one of them");
  tiers.add_option("--weight-bits", options.weight_bits, "BITS",
                   "Of a parameter of matrices (default: as of kvsim cost estimate)");
}

serving::ServedModel tier_served(const TierOptions& options, const std::string& model,
                                 const std::string& machine) {
  serving::ServedModel served;
  served.model = cost::find_model(model);
  served.machine = cost::find_machine(machine);
  ServingOptions serving;
  serving.kv = plain_bits(options.kv) ? options.kv : "fp16";
  serving.tensor_parallel = options.tensor_parallel;
  serving.weight_bits = options.weight_bits;
  served.serving = parse_serving(serving, served.model);
  return served;
}

TierStorage tier_storage(const TierOptions& options, const serving::ServedModel& served,
                         std::uint32_t block_tokens) {
  const std::string& host_kind = or_else(options.host_kv, options.kv);
  const std::string& ssd_kind = or_else(options.ssd_kv, host_kind);
  const std::string& ssd_sent =
      ssd_kind == host_kind ? or_else(options.ssd_sent, options.host_sent) : options.ssd_sent;
  const Kept device = kept_as(served, options.kv, "", "", block_tokens);
  const Kept host = kept_as(served, host_kind, options.host_sent, "host", block_tokens);
  const Kept ssd = kept_as(served, ssd_kind, ssd_sent, "ssd", block_tokens);
  TierStorage out{.device_token_bytes = device.token_bytes,
                  .device_kv = device.name,
                  .host_kv = host.name,
                  .ssd_kv = ssd.name};
  out.links.links.host =
      options.host_link.empty() ? served.machine.host : parse_link(options.host_link, "--host-link");
  out.links.links.ssd =
      options.ssd_link.empty() ? served.machine.ssd : parse_link(options.ssd_link, "--ssd-link");
  out.links.token_bytes = {.host = host.token_bytes, .ssd = ssd.token_bytes};
  // Keys and values of each layer of a block lie apart.
  out.links.token_pieces = 2 * static_cast<double>(served.model.layers) / block_tokens;
  return out;
}

}  // namespace kvsim::tools
