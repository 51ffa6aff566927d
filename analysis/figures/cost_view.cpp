#include "analysis/figures/cost_view.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/results/numbers.hpp"

namespace kvsim::analysis {
namespace {

/// What tells points apart beside the policy, and how it is said.
struct Trait {
  const char* key;
  const char* before;
  const char* after;
};
constexpr Trait kTraits[] = {
    {"model", "", ""},  {"machine", "on ", ""},  {"trace", "held as in ", ""},  {"prompt", "prompt ", ""},
    {"budget", "", ""}, {"batch", "batch ", ""}, {"generate", "", " generated"}};

bool holds(const std::vector<std::string>& keys, const char* key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::string said(const Trait& trait, const Value& value) {
  const auto count = analysis::number(value);
  const std::string key = trait.key;
  const bool tokens = key == "prompt" || key == "generate";
  return trait.before + (count && tokens ? tokens_text(*count) : exact_field(value, "")) + trait.after;
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

CostView::CostView(const Records& costs, const FigureChoice& choice)
    : costs_(costs), policies_(distinct(costs, "policy")) {
  for (const std::string& policy : choice.policies) known_name(policy, policies_, "--policy");
  if (!choice.budget.empty()) known_name(choice.budget, distinct(costs, "budget"), "--budget");
  for (std::size_t row = 0; row < costs.rows.size(); ++row) {
    const std::string budget = text(row, "budget");
    if (number(row, "peak_bytes") && choice.wants(text(row, "policy")) &&
        (choice.budget.empty() || budget.empty() || budget == choice.budget))
      rows_.push_back(row);
  }
}

std::optional<double> CostView::number(std::size_t row, const std::string& key) const {
  return analysis::number(costs_.rows[row][costs_.column(key)]);
}

std::string CostView::text(std::size_t row, const std::string& key) const {
  return exact_field(costs_.rows[row][costs_.column(key)], "");
}

std::vector<double> CostView::values(const std::string& key) const {
  std::vector<double> out;
  for (const std::size_t row : rows_)
    if (const auto value = number(row, key)) out.push_back(*value);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string CostView::label(std::size_t row, const std::vector<std::string>& apart) const {
  std::string out = text(row, "policy");
  for (const Trait& trait : kTraits) {
    const Value& own = costs_.rows[row][costs_.column(trait.key)];
    if (holds(apart, trait.key) || exact_field(own, "").empty()) continue;
    const bool differs = std::any_of(rows_.begin(), rows_.end(), [&](std::size_t other) {
      const Value& value = costs_.rows[other][costs_.column(trait.key)];
      return value != own && !exact_field(value, "").empty();
    });
    if (differs) out += ", " + said(trait, own);
  }
  return out;
}

std::vector<std::string> CostView::traits() const {
  std::vector<std::string> out;
  for (const Trait& trait : kTraits) {
    std::set<std::string> values;
    for (const std::size_t row : rows_)
      if (const std::string value = text(row, trait.key); !value.empty()) values.insert(value);
    if (values.size() > 1) out.emplace_back(trait.key);
  }
  return out;
}

std::string CostView::trait(std::size_t row, const std::string& key) const {
  const Value& value = costs_.rows[row][costs_.column(key)];
  if (exact_field(value, "").empty()) return "";
  const Trait* found = std::find_if(std::begin(kTraits), std::end(kTraits),
                                    [&](const Trait& trait) { return key == trait.key; });
  return (key == "budget" ? "budget " : "") + said(*found, value);
}

int CostView::colour(std::size_t row) const {
  return static_cast<int>(std::find(policies_.begin(), policies_.end(), text(row, "policy")) -
                          policies_.begin());
}

std::string CostView::setting(const std::vector<std::string>& apart) const {
  std::string out;
  for (const Trait& trait : kTraits) {
    if (holds(apart, trait.key)) continue;
    const Value* shared = nullptr;
    bool one = true;
    for (const std::size_t row : rows_) {
      const Value& value = costs_.rows[row][costs_.column(trait.key)];
      if (exact_field(value, "").empty()) continue;
      if (shared == nullptr) shared = &value;
      one = one && value == *shared;
    }
    if (shared == nullptr || !one) continue;
    const std::string key = trait.key;
    out += (out.empty()        ? ""
            : key == "machine" ? " "
                               : ", ") +
           (key == "budget" ? "budget " : std::string()) + said(trait, *shared);
  }
  return out;
}

}  // namespace kvsim::analysis
