#include "analysis/results/policy_labels.hpp"

#include <algorithm>
#include <set>

namespace kvsim::analysis {
namespace {

/// The "name=value" items of "eviction(a=1,b=2)+allocation(c=3)", in order.
std::vector<std::string> items_of(const std::string& params) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin < params.size();) {
    const std::size_t end = std::min(params.find_first_of("(),+", begin), params.size());
    const std::string item = params.substr(begin, end - begin);
    if (item.find('=') != std::string::npos) items.push_back(item);
    begin = end + 1;
  }
  return items;
}

/// Items of `mine` that not all of them have. `having`: how many have an item.
std::string differing_items(const std::string& mine, const std::map<std::string, std::size_t>& having,
                            std::size_t all) {
  std::string text;
  for (const std::string& item : items_of(mine))
    if (having.at(item) < all) text += (text.empty() ? "" : ",") + item;
  return text;
}

using ParamsOf = std::map<std::string, std::set<std::string>>;

std::map<std::string, std::string> labels_of(const ParamsOf& params_of) {
  std::map<std::string, std::string> labels;
  for (const auto& [policy, all] : params_of) {
    std::map<std::string, std::size_t> having;
    for (const std::string& params : all) {
      const std::vector<std::string> items = items_of(params);
      for (const std::string& item : std::set<std::string>(items.begin(), items.end())) ++having[item];
    }
    for (const std::string& params : all) {
      const std::string differing = differing_items(params, having, all.size());
      std::string& label = labels[params] = policy;
      if (!differing.empty()) label.append("(").append(differing).append(")");
    }
  }
  return labels;
}

}  // namespace

std::map<std::string, std::string> policy_labels(const std::vector<Row>& rows) {
  ParamsOf params_of;
  for (const Row& row : rows) params_of[row.policy].insert(row.params);
  return labels_of(params_of);
}

std::map<std::string, std::string> policy_labels(const Records& rows) {
  const std::size_t policy = rows.column("policy"), params = rows.column("params");
  ParamsOf params_of;
  for (const std::vector<Value>& row : rows.rows)
    if (const auto* all = std::get_if<std::string>(&row[params])) params_of[text(row[policy])].insert(*all);
  return labels_of(params_of);
}

bool is_oracle(const policy::Composition& composition) {
  return composition.eviction.spec != nullptr && composition.eviction.spec->is_oracle();
}

bool has_own_budget(const policy::Composition& composition) {
  return composition.eviction.spec != nullptr &&
         (composition.eviction.spec->own_budget() || composition.allocation.own_total());
}

std::string role_name(bool oracle, bool own_budget) {
  return oracle ? "oracle" : own_budget ? "own_budget" : "policy";
}

}  // namespace kvsim::analysis
