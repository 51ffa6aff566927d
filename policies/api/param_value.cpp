#include "policies/api/param_value.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::policy {
namespace {

constexpr std::size_t kLargestPool = 1023;
constexpr std::string_view kNoPad = ":nopad";

std::string shortest(double number) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  return {buffer, end};
}

/// None of these fill in the name and the type; an empty result is an illegal value.
std::optional<Params::Entry> count_value(const ParamSpec& spec, std::string_view text) {
  const auto count = number_of<std::uint64_t>(text);
  if (!count || static_cast<double>(*count) < spec.min || static_cast<double>(*count) > spec.max)
    return std::nullopt;
  return Params::Entry{.text = std::to_string(*count), .number = static_cast<double>(*count)};
}

std::optional<Params::Entry> real_value(const ParamSpec& spec, std::string_view text) {
  auto real = number_of<double>(text);
  if (!real || !std::isfinite(*real) || *real < spec.min || *real > spec.max) return std::nullopt;
  if (*real == 0) real = 0.0;  // -0 is the same value and must have the same text
  return Params::Entry{.text = shortest(*real), .number = *real};
}

std::optional<Params::Entry> flag_value(std::string_view text) {
  if (text != "true" && text != "false") return std::nullopt;
  return Params::Entry{.text = std::string(text), .number = text == "true" ? 1.0 : 0.0};
}

std::optional<Params::Entry> choice_value(const ParamSpec& spec, std::string_view text) {
  if (std::find(spec.choices.begin(), spec.choices.end(), text) == spec.choices.end()) return std::nullopt;
  return Params::Entry{.text = std::string(text)};
}

std::optional<Params::Entry> pool_value(std::string_view text) {
  if (text == "none") return Params::Entry{.text = "none", .number = 1};
  if (!text.starts_with("avg:") && !text.starts_with("max:")) return std::nullopt;
  const std::string_view unpadded = text.starts_with("avg:") && text.ends_with(kNoPad) ? kNoPad : "";
  text.remove_suffix(unpadded.size());
  const auto kernel = text.size() < 4 ? std::nullopt : number_of<std::uint64_t>(text.substr(4));
  if (!kernel || *kernel % 2 == 0 || *kernel > kLargestPool) return std::nullopt;
  return Params::Entry{
      .text = std::string(text.substr(0, 4)) + std::to_string(*kernel) + std::string(unpadded),
      .number = static_cast<double>(*kernel)};
}

std::optional<Params::Entry> text_value(std::string_view text) {
  if (text.find_first_of("(),") != std::string_view::npos) return std::nullopt;
  return Params::Entry{.text = std::string(text)};
}

std::optional<Params::Entry> value_of(const ParamSpec& spec, std::string_view text) {
  switch (spec.type) {
    case ParamType::count:
      return count_value(spec, text);
    case ParamType::real:
      return real_value(spec, text);
    case ParamType::flag:
      return flag_value(text);
    case ParamType::choice:
      return choice_value(spec, text);
    case ParamType::pool:
      return pool_value(text);
    case ParamType::text:
      return text_value(text);
    case ParamType::policy:
      break;
  }
  return std::nullopt;
}

std::string nearest_choice(const ParamSpec& spec, std::string_view text) {
  return spec.type == ParamType::choice ? suggestion(text, spec.choices) : std::string();
}

}  // namespace

Params::Entry parse_value(const ParamSpec& spec, std::string_view text, std::string_view where) {
  if (spec.type == ParamType::policy) bug("a policy is not a single value", spec.name);
  std::optional<Params::Entry> entry = value_of(spec, text);
  if (!entry)
    usage_error(spec.name + "=" + std::string(text) + " is not legal: " + spec.name + " must be " +
                    legal_values(spec),
                where, nearest_choice(spec, text));
  entry->name = spec.name;
  entry->type = spec.type;
  return std::move(*entry);
}

std::string legal_values(const ParamSpec& spec) {
  switch (spec.type) {
    case ParamType::count:
      return "a whole number from " + shortest(spec.min) + " to " + shortest(spec.max);
    case ParamType::real:
      return "a number from " + shortest(spec.min) + " to " + shortest(spec.max);
    case ParamType::flag:
      return "true or false";
    case ParamType::pool:
      return "none, avg:K, avg:K:nopad or max:K with odd K up to " + std::to_string(kLargestPool);
    case ParamType::policy:
      return "an eviction that ranks by a score, with its own parameters if need be";
    case ParamType::text:
      return "text without commas and parentheses";
    case ParamType::choice:
      break;
  }
  std::string text = "one of ";
  for (std::size_t i = 0; i < spec.choices.size(); ++i) text += (i > 0 ? ", " : "") + spec.choices[i];
  return text;
}

}  // namespace kvsim::policy
