#include "sim/requests/serving/batching/prepacking.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/cost/checked.hpp"

namespace kvsim::serving {

Packing pack(std::span<const std::uint64_t> prompt_tokens) {
  if (prompt_tokens.empty()) usage_error("a batch of no prompts", "packing");
  Packing out;
  out.prompts = prompt_tokens.size();
  for (const std::uint64_t tokens : prompt_tokens) {
    if (tokens == 0) usage_error("a prompt of no tokens", "packing");
    out.longest = std::max(out.longest, tokens);
    out.tokens = cost::checked_sum("a batch", out.tokens, tokens);
  }
  cost::checked_product("a batch", out.prompts, out.longest, out.longest);
  std::vector<std::uint64_t> left;  // tokens of each row
  for (const std::uint32_t prompt : largest_first<std::uint32_t>(prompt_tokens)) {
    const std::uint64_t tokens = prompt_tokens[prompt];
    const auto row = static_cast<std::size_t>(
        std::find_if(left.begin(), left.end(), [&](std::uint64_t room) { return room >= tokens; }) -
        left.begin());
    if (row == left.size()) {
      left.push_back(out.longest);
      out.rows.emplace_back();
    }
    left[row] -= tokens;
    out.rows[row].push_back(prompt);
  }
  return out;
}

}  // namespace kvsim::serving
