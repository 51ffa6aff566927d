#include "traces/capture/token_choice.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/split.hpp"

namespace kvsim::capture {
namespace {

/// The number N of a text "word:N"; 0 for any other text.
std::uint64_t number_after(std::string_view text, std::string_view word) {
  return text.starts_with(word) ? tokens_of(text.substr(word.size())).value_or(0) : 0;
}

}  // namespace

QueryChoice parse_query_choice(const std::string& text, const std::string& option) {
  if (text == "all") return {};
  QueryChoice choice{.all = false};
  for (const std::string& part : comma_list(text)) {
    const std::uint64_t window = number_after(part, "window:"), sample = number_after(part, "sample:");
    const bool again = (window > 0 && choice.window > 0) || (sample > 0 && choice.sample > 0);
    if (again || (window == 0 && sample == 0))
      usage_error("\"" + text + "\" is not a choice of queries", option,
                  "Expected all, window:W, sample:K or window:W,sample:K with numbers from 1 on, such as "
                  "window:64,sample:256.");
    choice.window += window;
    choice.sample += sample;
  }
  return choice;
}

std::string query_choice_text(const QueryChoice& choice) {
  if (choice.all) return "all";
  const std::string window = "window:" + std::to_string(choice.window),
                    sample = "sample:" + std::to_string(choice.sample);
  if (choice.sample == 0) return window;
  return choice.window == 0 ? sample : window + "," + sample;
}

std::vector<std::uint64_t> chosen_queries(const QueryChoice& choice, std::uint64_t prompt,
                                          std::uint64_t seed) {
  const std::uint64_t others = choice.all ? 0 : prompt - std::min(prompt, choice.window);
  const std::uint64_t drawn = std::min(choice.sample, others);
  std::vector<std::uint64_t> positions;
  positions.reserve(drawn + prompt - others);
  for (std::uint64_t i = 0; i < drawn; ++i) {
    const std::uint64_t begin = others * i / drawn, end = others * (i + 1) / drawn;
    const double at = uniform01(combine({seed, key_of("sampled queries"), i}));
    positions.push_back(begin + static_cast<std::uint64_t>(at * static_cast<double>(end - begin)));
  }
  positions.resize(drawn + prompt - others);
  std::iota(positions.begin() + static_cast<std::ptrdiff_t>(drawn), positions.end(), others);
  return positions;
}

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
