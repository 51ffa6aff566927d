#include "tools/options/cost_request.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/sizes.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"
#include "tools/options/value_ranges.hpp"

namespace kvsim::tools {
namespace {

/// "name=value".
std::pair<std::string, std::string_view> assignment(std::string_view text, const std::string& option,
                                                    const char* example) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size())
    usage_error("is not NAME=VALUE", option + " " + in_quotes(text),
                std::string("Say it like ") + example + ".");
  return {std::string(text.substr(0, equals)), text.substr(equals + 1)};
}

[[noreturn]] void unknown(const std::string& what, std::string_view name, const std::string& option,
                          const std::vector<std::string>& known) {
  usage_error("unknown " + what + " " + in_quotes(name), option, suggestion(name, known));
}

/// "weights=50%" "cache=80%" "cache-ssd=20%".
void parse_shares(const std::vector<std::string>& texts, cost::Offload& offload) {
  const std::vector<std::pair<std::string, double*>> shares = {{"weights", &offload.weights.host},
                                                               {"cache", &offload.cache.host},
                                                               {"weights-ssd", &offload.weights.ssd},
                                                               {"cache-ssd", &offload.cache.ssd}};
  std::vector<std::string> known, named;
  for (const auto& [name, share] : shares) known.push_back(name);
  for (const std::string& text : texts) {
    const auto [name, value] = assignment(text, "--offload", "weights=50% or cache=80%");
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) unknown("share", name, "--offload", known);
    if (std::ranges::find(named, name) != named.end()) usage_error("is given twice", "--offload " + name);
    *shares[static_cast<std::size_t>(found - known.begin())].second =
        parse_share(value, "--offload " + in_quotes(text));
    named.push_back(name);
  }
  for (const auto& [host, ssd, name] : {std::tuple{offload.weights.host, offload.weights.ssd, "weights"},
                                        std::tuple{offload.cache.host, offload.cache.ssd, "cache"}})
    if (host + ssd > 1 + 1e-12)
      usage_error(std::string(name) + " and " + name + "-ssd are more than 100% together", "--offload");
}

cost::Offload parse_offload(const ServingOptions& options) {
  cost::Offload offload;
  parse_shares(options.offload, offload);
  if (!options.buffer.empty()) offload.buffer = parse_tokens(options.buffer, "--buffer");
  if (!options.hit_rate.empty()) offload.hit_rate = parse_share(options.hit_rate, "--hit-rate");
  if (!options.prefetch.empty()) offload.prefetch = parse_share(options.prefetch, "--prefetch");
  if (offload.buffer > 0 && offload.cache_away() == 0)
    usage_error("is for what is not on the device", "--buffer", "Say what is not: --offload cache=100%");
  if (!options.hit_rate.empty() && offload.buffer == 0)
    usage_error("needs a buffer in which something is found", "--hit-rate",
                "Say how many tokens of a lane it has: --buffer 2048");
  if (offload.prefetch && !offload.any())
    usage_error("is of what is not on the device", "--prefetch", "Say what is not: --offload cache=100%");
  return offload;
}

template <class T>
T choice(const std::string& text, const std::string& option,
         const std::vector<std::pair<std::string, T>>& known) {
  std::vector<std::string> names;
  for (const auto& [name, value] : known) {
    if (name == text) return value;
    names.push_back(name);
  }
  unknown("value", text, option, names);
}

/// The bits of a number. What was once an encoding of keys and values is a representation of a policy now.
std::uint64_t parse_element_bits(const std::string& text) {
  static const std::vector<std::pair<std::string, std::string>> kRepresentations = {
      {"fp8", "fp8"},
      {"int8", "int8"},
      {"nvfp4", "nvfp4"},
      {"flexgen4", "scalar(bits=4,group=64)"},
      {"kivi2", "kivi(bits=2)"},
      {"kivi4", "kivi(bits=4)"}};
  for (const auto& [name, representation] : kRepresentations)
    if (text == name)
      usage_error(in_quotes(text) + " is how a policy stores what it keeps", "--kv",
                  "Say it with the policy: --policy 'full+" + representation + "'.");
  return choice<std::uint64_t>(text, "--kv", {{"fp16", 16}, {"bf16", 16}, {"fp32", 32}});
}

}  // namespace

double parse_seconds(std::string_view text, const std::string& where) {
  struct Unit {
    std::string_view text;
    double seconds;
  };
  for (const Unit unit : {Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"s", 1}}) {
    if (!text.ends_with(unit.text)) continue;
    const std::optional<double> value = number_of<double>(text.substr(0, text.size() - unit.text.size()));
    if (value && *value > 0 && std::isfinite(*value)) return *value * unit.seconds;
    break;
  }
  usage_error(in_quotes(text) + " is no time above zero", where, "Say it like 2s, 50ms or 800us.");
}

double parse_share(std::string_view text, const std::string& where) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const std::optional<double> share = percent ? number_of<double>(text) : std::nullopt;
  if (!share || !(*share >= 0 && *share <= 100)) usage_error("is no share from 0% to 100%", where);
  return *share / 100;
}

std::uint64_t parse_count(std::string_view text, const std::string& where, const std::string& hint) {
  const bool whole = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!whole) usage_error(in_quotes(text) + " is no whole number", where, hint);
  const std::optional<std::uint64_t> value = number_of<std::uint64_t>(text);
  if (!value) usage_error(in_quotes(text) + " does not fit 64 bits", where, hint);
  if (*value == 0) usage_error("must be at least 1", where, hint);
  return *value;
}

SweepAxis parse_axis(std::string_view text) {
  static const std::vector<std::string> kAxes = {"prompt-tokens", "generate", "batch", "budget"};
  const auto [name, list] = assignment(text, "--sweep", "prompt-tokens=8K,32K or batch=1..64:x2");
  if (std::ranges::find(kAxes, name) == kAxes.end()) unknown("axis", name, "--sweep", kAxes);
  SweepAxis axis{name, {}};
  for (const std::string& item : comma_list(list))
    append_values(axis.values, item, "--sweep " + in_quotes(text));
  return axis;
}

analysis::CostLimits parse_limits(const LimitOptions& options, std::uint64_t machine_memory) {
  analysis::CostLimits limits;
  limits.memory = options.memory.empty() ? machine_memory : parse_bytes(options.memory, "--memory");
  if (!options.first_token.empty()) limits.first_token = parse_seconds(options.first_token, "--ttft");
  if (!options.per_token.empty()) limits.per_token = parse_seconds(options.per_token, "--tpot");
  return limits;
}

cost::Serving parse_serving(const ServingOptions& options, const cost::Model& model) {
  cost::Serving serving;
  cost::Layout& layout = serving.layout;
  if (options.stored_kv_heads == "expanded")
    layout.stored_kv_heads = model.query_heads;
  else if (!options.stored_kv_heads.empty())
    layout.stored_kv_heads = parse_count(options.stored_kv_heads, "--stored-kv-heads",
                                         "A number of heads, or expanded: one per query head.");
  layout.storage.element_bits = parse_element_bits(options.kv);
  if (!options.page.empty()) layout.page = parse_tokens(options.page, "--page");
  layout.head_pages = options.head_pages;
  layout.padded = options.padded;
  if (options.holes) layout.vacated = cost::Vacated::left;
  layout.preallocated = options.preallocated;
  if (layout.head_pages && layout.page == 0)
    usage_error("needs pages", "--head-pages", "Say how many tokens a page holds: --page 16.");
  if (!options.chunk.empty()) serving.chunk = parse_tokens(options.chunk, "--chunk");
  serving.tensor_parallel = parse_count(options.tensor_parallel, "--tp");
  cost::Runtime& runtime = serving.runtime;
  runtime.attention =
      choice<cost::Attention>(options.attention, "--attention",
                              {{"flash", cost::Attention::flash}, {"eager", cost::Attention::eager}});
  runtime.rows = choice<cost::RowSource>(
      options.rows, "--rows",
      {{"written", cost::RowSource::written}, {"recomputed", cost::RowSource::recomputed}});
  runtime.cache_traffic = options.cache_traffic;
  runtime.host_floor = options.host_floor_ms * 1e-3;
  runtime.weight_bits = options.weight_bits;
  runtime.row_share = options.row_share;
  serving.offload = parse_offload(options);
  return serving;
}

}  // namespace kvsim::tools
