#include "analysis/figures/cost_points.hpp"

#include <cmath>

#include "analysis/figures/chart_parts.hpp"
#include "analysis/results/numbers.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// What tells points apart beside the policy, and how it is said.
struct Trait {
  const char *key, *before, *after;
};
constexpr Trait kTraits[] = {
    {"model", "", ""},  {"machine", "on ", ""},  {"trace", "held as in ", ""},  {"prompt", "prompt ", ""},
    {"budget", "", ""}, {"batch", "batch ", ""}, {"generate", "", " generated"}};

bool is(const Trait& trait, std::string_view key) {
  return trait.key == key;
}

/// Empty where nothing is defined.
std::string said(const Trait& trait, const Value& value) {
  const std::string text = exact_field(value, "");
  if (text.empty()) return "";
  const auto count = number(value);
  const bool tokens = count && (is(trait, "prompt") || is(trait, "generate"));
  return trait.before + (tokens ? tokens_text(*count) : text) + trait.after;
}

/// Beside others, a budget is told from other numbers.
std::string named(const Trait& trait, const std::string& said) {
  return is(trait, "budget") && !said.empty() ? "budget " + said : said;
}

}  // namespace

std::string tokens_text(double tokens) {
  constexpr double kUnit = 1024;
  return tokens >= kUnit && std::fmod(tokens, kUnit) == 0 ? rounded_text(tokens / kUnit, 0) + "K"
                                                          : rounded_text(tokens, 0);
}

Axis token_axis(const std::string& name) {
  return {.label = name + " (K = 1024 tokens)", .log = true, .at_values = true};
}

CostPoints::CostPoints(const Records& costs, const FigureChoice& choice)
    : costs_(costs), policies_(distinct(costs, "policy")) {
  for (const std::string& policy : choice.policies) known_name(policy, policies_, "--policy");
  if (!choice.budget.empty()) known_name(choice.budget, distinct(costs, "budget"), "--budget");
  for (std::size_t row = 0; row < costs.rows.size(); ++row)
    if (number(row, "peak_bytes") && choice.wants(text(row, "policy")) &&
        (choice.budget.empty() || own_size(row) || text(row, "budget") == choice.budget))
      rows_.push_back(row);
  for (const Trait& trait : kTraits) {
    std::vector<std::string>& there = said_.emplace_back();
    for (const std::size_t row : rows_)
      if (const std::string own = said(trait, costs.rows[row][costs.column(trait.key)]); !own.empty())
        add_once(there, own);
  }
}

std::string memory_text(double gib) {
  return rounded_text(gib, 1) + " GiB of memory";
}

std::optional<double> CostPoints::number(std::size_t row, const std::string& key) const {
  return analysis::number(costs_.rows[row][costs_.column(key)]);
}

std::string CostPoints::text(std::size_t row, const std::string& key) const {
  return exact_field(costs_.rows[row][costs_.column(key)], "");
}

std::string CostPoints::label(std::size_t row, const std::vector<std::string>& apart) const {
  std::string out = text(row, "policy");
  for (std::size_t i = 0; i < said_.size(); ++i) {
    const std::string own = said(kTraits[i], costs_.rows[row][costs_.column(kTraits[i].key)]);
    if (said_[i].size() > 1 && !own.empty() && place_in(apart, kTraits[i].key) < 0) out += ", " + own;
  }
  return out;
}

std::vector<std::string> CostPoints::traits() const {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < said_.size(); ++i)
    if (said_[i].size() > 1) out.emplace_back(kTraits[i].key);
  return out;
}

std::string CostPoints::trait(std::size_t row, const std::string& key) const {
  for (const Trait& trait : kTraits)
    if (is(trait, key)) return named(trait, said(trait, costs_.rows[row][costs_.column(key)]));
  return "";
}

std::string CostPoints::setting(const std::vector<std::string>& apart) const {
  std::string out;
  for (std::size_t i = 0; i < said_.size(); ++i)
    if (said_[i].size() == 1 && place_in(apart, kTraits[i].key) < 0)
      out += (out.empty()                 ? ""
              : is(kTraits[i], "machine") ? " "
                                          : ", ") +
             named(kTraits[i], said_[i].front());
  return out;
}

}  // namespace kvsim::analysis
