#include "sim/base/param_value.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kLargestPool = 1023;
constexpr std::size_t kMostShown = 80;  ///< characters of a value in a message
constexpr std::string_view kNoPad = ":nopad";

// The readers of single values fill in neither name nor type; nothing is an illegal value.

std::optional<ParamValue> count_value(const ParamSpec& spec, std::string_view text) {
  const auto count = number_of<std::uint64_t>(text);
  if (!count || static_cast<double>(*count) < spec.min || static_cast<double>(*count) > spec.max)
    return std::nullopt;
  return ParamValue{.text = std::to_string(*count), .whole = *count, .number = static_cast<double>(*count)};
}

std::optional<ParamValue> real_value(const ParamSpec& spec, std::string_view text) {
  auto real = number_of<double>(text);
  if (!real || !std::isfinite(*real) || *real < spec.min || *real > spec.max) return std::nullopt;
  if (*real == 0) real = 0.0;  // -0 is the same value and must have the same text
  return ParamValue{.text = shortest(*real), .number = *real};
}

std::optional<ParamValue> share_value(std::string_view text) {
  const bool percent = text.ends_with('%');
  const auto number = number_of<double>(percent ? text.substr(0, text.size() - 1) : text);
  const double share = number ? (percent ? *number / 100 : *number) : -1;
  if (!(share >= 0 && share <= 1)) return std::nullopt;
  return ParamValue{.text = std::string(text), .number = share};
}

std::optional<ParamValue> amount_value(std::string_view text) {
  if (text.find_first_of(".%") == std::string_view::npos) {
    const auto count = number_of<std::uint64_t>(text);
    if (!count || *count == 0) return std::nullopt;
    return ParamValue{.text = std::to_string(*count), .whole = *count, .number = static_cast<double>(*count)};
  }
  std::optional<ParamValue> share = share_value(text);
  return share && share->number > 0 ? share : std::nullopt;
}

std::optional<ParamValue> flag_value(std::string_view text) {
  if (text != "true" && text != "false") return std::nullopt;
  return ParamValue{.text = std::string(text), .number = text == "true" ? 1.0 : 0.0};
}

std::optional<ParamValue> pool_value(std::string_view text) {
  if (text == "none") return ParamValue{.text = "none", .number = 1};
  if (!text.starts_with("avg:") && !text.starts_with("max:")) return std::nullopt;
  const std::string_view unpadded = text.starts_with("avg:") && text.ends_with(kNoPad) ? kNoPad : "";
  text.remove_suffix(unpadded.size());
  const auto kernel = text.size() < 4 ? std::nullopt : number_of<std::uint64_t>(text.substr(4));
  if (!kernel || *kernel % 2 == 0 || *kernel > kLargestPool) return std::nullopt;
  return ParamValue{.text = std::string(text.substr(0, 4)) + std::to_string(*kernel) + std::string(unpadded),
                    .number = static_cast<double>(*kernel)};
}

std::optional<ParamValue> word_value(std::string_view text) {
  if (text.find_first_of("(),") != std::string_view::npos) return std::nullopt;
  return ParamValue{.text = std::string(text)};
}

std::optional<ParamValue> value_of(const ParamSpec& spec, std::string_view text) {
  if (std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end())
    return ParamValue{.text = std::string(text)};
  switch (spec.type) {
    case ParamType::count:
      return count_value(spec, text);
    case ParamType::real:
      return real_value(spec, text);
    case ParamType::share:
      return share_value(text);
    case ParamType::amount:
      return amount_value(text);
    case ParamType::flag:
      return flag_value(text);
    case ParamType::pool:
      return pool_value(text);
    case ParamType::word:
      return word_value(text);
    case ParamType::text:
      return ParamValue{.text = std::string(text)};
    case ParamType::choice:
    case ParamType::policy:
    case ParamType::counts:
    case ParamType::shares:
    case ParamType::texts:
      break;
  }
  return std::nullopt;
}

ParamValue list_value(const ParamSpec& spec, std::string_view text, std::string_view where) {
  const ParamSpec item = item_spec(spec);
  ParamValue out;
  for (const std::string& one : comma_list(text)) {
    if (one.empty()) refuse_value(spec, text, where);
    out.items.push_back(parse_value(item, one, where));
    out.text += (out.items.size() > 1 ? "," : "") + out.items.back().text;
  }
  return out;
}

std::string range_text(const ParamSpec& spec) {
  const bool whole = spec.type == ParamType::count || spec.type == ParamType::counts;
  const auto end = [&](double at) {
    return whole ? std::to_string(static_cast<std::uint64_t>(at)) : shortest(at);
  };
  return end(spec.min) + (spec.max == kNoLimit ? " or more" : " to " + end(spec.max));
}

std::string kind_of_number(const ParamSpec& spec, const char* kind) {
  return kind + std::string(spec.max == kNoLimit ? ", " : " from ") + range_text(spec);
}

std::string legal_without_choices(const ParamSpec& spec) {
  switch (spec.type) {
    case ParamType::count:
      return kind_of_number(spec, "a whole number");
    case ParamType::real:
      return kind_of_number(spec, "a number");
    case ParamType::share:
      return "a share from 0 to 1, such as 0.1 or 10%";
    case ParamType::amount:
      return "a whole number from 1, or a share such as 10% or 0.1";
    case ParamType::flag:
      return "true or false";
    case ParamType::choice:
      return "one of " + joined(spec.choices);
    case ParamType::pool:
      return "none, avg:K, avg:K:nopad or max:K with odd K up to " + std::to_string(kLargestPool);
    case ParamType::policy:
      return "an eviction that ranks by a score, with its own parameters if need be";
    case ParamType::word:
      return "text without commas and parentheses";
    case ParamType::text:
      return "text";
    case ParamType::counts:
    case ParamType::shares:
    case ParamType::texts:
      return "a list, each item " + legal_values(item_spec(spec));
  }
  bug("a parameter without a type");
}

}  // namespace

bool is_list(ParamType type) {
  return type == ParamType::counts || type == ParamType::shares || type == ParamType::texts;
}

ParamSpec item_spec(const ParamSpec& spec) {
  ParamSpec out = spec;
  out.type = spec.type == ParamType::counts   ? ParamType::count
             : spec.type == ParamType::shares ? ParamType::share
             : spec.choices.empty()           ? ParamType::text
                                              : ParamType::choice;
  return out;
}

ParamValue parse_value(const ParamSpec& spec, std::string_view text, std::string_view where) {
  if (spec.type == ParamType::policy) bug("a policy is not a single value", spec.name);
  std::optional<ParamValue> value = is_list(spec.type) ? list_value(spec, text, where) : value_of(spec, text);
  if (!value) refuse_value(spec, text, where);
  value->name = spec.name;
  value->type = spec.type;
  return std::move(*value);
}

void refuse_value(const ParamSpec& spec, std::string_view shown, std::string_view where) {
  std::string value(shown.substr(0, kMostShown));
  if (shown.size() > kMostShown) value += "...";
  usage_error(spec.name + "=" + value + " is not legal: " + spec.name + " must be " + legal_values(spec),
              where, is_list(spec.type) ? std::string() : suggestion(shown, spec.choices));
}

std::string legal_values(const ParamSpec& spec) {
  std::string out = legal_without_choices(spec);
  if (spec.type != ParamType::choice && !is_list(spec.type))
    for (const std::string& word : spec.choices) out += " or " + word;
  return out;
}

std::string allowed_values(const ParamSpec& spec) {
  if (!spec.form.empty()) return spec.form;
  switch (spec.type) {
    case ParamType::count:
    case ParamType::real:
      return range_text(spec);
    case ParamType::amount:
      return "1 or more, or a share";
    case ParamType::counts:
      return range_text(spec) + " each";
    case ParamType::choice:
      return joined(spec.choices, " | ");
    case ParamType::texts:
      return joined(spec.choices);
    default:
      return "";
  }
}

}  // namespace kvsim
