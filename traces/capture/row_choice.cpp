#include "traces/capture/row_choice.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/sizes.hpp"

namespace kvsim::capture {

RowChoice parse_row_choice(const std::string& text, const std::string& option) {
  const std::string_view window_word = "window:",
                         expected = "Expected none, window:W or full, such as window:64.";
  if (text == "full") return {RowChoice::Kind::all, 0};
  if (text == "none") return {};
  if (!text.starts_with(window_word))
    usage_error("\"" + text + "\" is not a choice of rows", option, expected);
  const auto window = tokens_of(std::string_view(text).substr(window_word.size()));
  if (window.value_or(0) == 0)
    usage_error("\"" + text + "\" needs a number of rows, at least 1", option, expected);
  return {RowChoice::Kind::window, *window};
}

std::string row_choice_text(const RowChoice& choice) {
  switch (choice.kind) {
    case RowChoice::Kind::none:
      return "none";
    case RowChoice::Kind::all:
      return "full";
    case RowChoice::Kind::window:
      break;
  }
  return "window:" + std::to_string(choice.window);
}

std::uint64_t first_row(const RowChoice& choice, std::uint64_t prompt) {
  if (choice.kind == RowChoice::Kind::none) return std::numeric_limits<std::uint64_t>::max();
  if (choice.kind == RowChoice::Kind::all) return 0;
  return prompt - std::min(prompt, choice.window);
}

}  // namespace kvsim::capture
