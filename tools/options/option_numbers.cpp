#include "tools/options/option_numbers.hpp"

#include "sim/base/number_text.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/sizes.hpp"

namespace kvsim::tools {

Check whole_number() {
  const auto complaint = [](const std::string& text) -> std::string {
    if (number_of<std::uint64_t>(text)) return {};
    return in_quotes(text) + " is not a whole number from 0 to " + std::to_string(UINT64_MAX);
  };
  return {complaint};
}

Check token_count() {
  const auto convert = [](std::string& text) -> std::string {
    const std::optional<std::uint64_t> tokens = tokens_of(text);
    if (!tokens) return in_quotes(text) + " is no number of tokens; one is 8192, 8K (8 * 1024) or 1M";
    text = std::to_string(*tokens);
    return {};
  };
  return {convert};
}

Check byte_count() {
  const auto convert = [](std::string& text) -> std::string {
    const double bytes = bytes_of(text).value_or(0);
    if (!(bytes >= 1 && bytes < 0x1p63))
      return in_quotes(text) + " is no size in bytes; one is 512MiB, 80GiB (2^30 bytes) or 80GB (10^9 bytes)";
    text = std::to_string(static_cast<std::uint64_t>(bytes));
    return {};
  };
  return {convert};
}

void add_threads(Command command, unsigned& threads, unsigned most) {
  command.add_option("--threads", threads, "N", "Never changes a result (default: all)", between(1U, most));
}

void add_memory_limit(Command command, std::uint64_t& bytes, const std::string& help) {
  command.add_option("--memory-limit", bytes, "SIZE", help, byte_count()).default_str("");
}

}  // namespace kvsim::tools
