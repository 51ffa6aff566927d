#pragma once
/// Which tokens' attention rows a trace stores.
#include <cstdint>
#include <string>

namespace kvsim::capture {

/// None, those of the last `window` prompt tokens and all generated ones, or all.
struct RowChoice {
  enum class Kind { none, window, all };
  Kind kind = Kind::none;
  std::uint64_t window = 0;
};

/// "none", "window:W" or "full". Throws Error(usage).
RowChoice parse_row_choice(const std::string& text, const std::string& option);
std::string row_choice_text(const RowChoice& choice);

/// First position whose row is stored, as those of all after it are; none: the largest number.
std::uint64_t first_row(const RowChoice& choice, std::uint64_t prompt);

}  // namespace kvsim::capture
