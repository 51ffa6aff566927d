#include "tools/requests/capacity_list.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/sizes.hpp"
#include "sim/base/split.hpp"
#include "tools/options/value_ranges.hpp"

namespace kvsim::tools {
namespace {

using analysis::CacheCapacity;

CacheCapacity capacity_of(const std::string& item, const std::string& option, std::uint32_t block_tokens,
                          std::optional<double> token_bytes) {
  const bool bytes = item.ends_with('B');
  if (bytes && !token_bytes)
    usage_error(in_quotes(item) + " is in bytes", option, "Say the --model whose keys and values they hold.");
  const std::uint64_t asked = bytes ? parse_bytes(item, option) : parse_tokens(item, option);
  const double tokens = bytes ? static_cast<double>(asked) / *token_bytes : static_cast<double>(asked);
  if (tokens >= 0x1p63) usage_error(in_quotes(item) + " is more than can be counted", option);
  CacheCapacity out;
  out.blocks = static_cast<std::uint64_t>(tokens) / block_tokens;
  if (out.blocks == 0)
    usage_error(in_quotes(item) + " holds no block of " + std::to_string(block_tokens) + " tokens", option);
  out.tokens = out.blocks * block_tokens;
  if (bytes)
    out.bytes = asked;
  else if (token_bytes && static_cast<double>(out.tokens) * *token_bytes < 0x1p63)
    out.bytes = static_cast<std::uint64_t>(static_cast<double>(out.tokens) * *token_bytes);
  return out;
}

}  // namespace

std::vector<CacheCapacity> parse_capacities(const std::string& text, const std::string& option,
                                            std::uint32_t block_tokens, std::optional<double> token_bytes) {
  constexpr std::size_t kMost = 1000;
  std::vector<std::string> items;
  for (const std::string& item : comma_list(text)) append_values(items, item, option + " " + in_quotes(item));
  if (items.size() > kMost)
    usage_error(std::to_string(items.size()) + " capacities are more than " + std::to_string(kMost), option);
  std::vector<CacheCapacity> out;
  for (const std::string& item : items) out.push_back(capacity_of(item, option, block_tokens, token_bytes));
  std::stable_sort(out.begin(), out.end(),
                   [](const CacheCapacity& a, const CacheCapacity& b) { return a.blocks < b.blocks; });
  const auto same = [](const CacheCapacity& a, const CacheCapacity& b) { return a.blocks == b.blocks; };
  out.erase(std::unique(out.begin(), out.end(), same), out.end());
  return out;
}

}  // namespace kvsim::tools
