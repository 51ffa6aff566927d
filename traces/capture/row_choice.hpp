#pragma once
/// Chooses the tokens whose attention rows a trace stores.
#include <cstdint>
#include <string>

namespace kvsim::capture {

/// No rows; the rows of the last `window` prompt tokens and all generated tokens; or all rows.
struct RowChoice {
  enum class Kind { none, window, all };
  Kind kind = Kind::none;
  std::uint64_t window = 0;
};

/// "none", "window:W" or "full". Throws Error(usage).
RowChoice parse_row_choice(const std::string& text, const std::string& option);
std::string row_choice_text(const RowChoice& choice);

/// First position whose row is stored; the rows of all later positions are stored too. The largest number if
/// no row is stored.
std::uint64_t first_row(const RowChoice& choice, std::uint64_t prompt);

}  // namespace kvsim::capture
