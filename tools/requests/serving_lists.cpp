#include "tools/requests/serving_lists.hpp"

#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/sizes.hpp"
#include "sim/base/split.hpp"
#include "tools/requests/served_options.hpp"

namespace kvsim::tools {

std::vector<std::uint64_t> parse_memories(const std::string& text, const serving::ServedModel& served,
                                          std::uint64_t step_tokens) {
  if (text.empty()) return {usual_memory(served, step_tokens)};
  std::vector<std::uint64_t> out;
  for (const std::string& item : comma_list(text)) out.push_back(parse_bytes(item, "--memory"));
  return out;
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> out;
  for (const std::string& item : comma_list(text)) {
    const std::optional<double> rate = number_of<double>(item);
    if (!rate || !(*rate > 0))
      usage_error(in_quotes(item) + " is no number above zero", "--rate", "Say it like 0.5,1,2.");
    out.push_back(*rate);
  }
  return out;
}

}  // namespace kvsim::tools
