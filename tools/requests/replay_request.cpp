#include "tools/requests/replay_request.hpp"

#include <algorithm>
#include <iostream>

#include "policies/builtin.hpp"
#include "tools/requests/policy_choice.hpp"

namespace kvsim::tools {
namespace {

template <class T, class Key>
void add_once(std::vector<T>& all, T item, Key key) {
  if (std::any_of(all.begin(), all.end(), [&](const T& other) { return key(other) == key(item); })) {
    note(key(item) + " is asked for more than once; it is replayed once");
  } else {
    all.push_back(std::move(item));
  }
}

}  // namespace

void note(const std::string& text) {
  std::cerr << "kvsim: note: " << text << '\n';
}

std::vector<AskedPolicy> asked_policies(const std::vector<std::string>& texts) {
  std::vector<AskedPolicy> out;
  for (const std::string& text : chosen_policies(texts, policy::builtin()))
    add_once(out, AskedPolicy{text, policy::parse_composition(text, policy::builtin())},
             [](const AskedPolicy& asked) { return asked.composition.params; });
  return out;
}

std::vector<sim::Budget> asked_budgets(const std::vector<std::string>& lists) {
  std::vector<sim::Budget> out;
  for (const std::string& list : lists)
    for (sim::Budget& budget : sim::parse_budgets(list))
      add_once(out, std::move(budget), [](const sim::Budget& b) { return b.text; });
  return out;
}

std::vector<trace::Cut> asked_cuts(const std::string& list) {
  std::vector<trace::Cut> out;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    add_once(out, trace::parse_cut(std::string_view(list).substr(begin, comma - begin)),
             [](const trace::Cut& cut) { return "cut " + cut.text(); });
    begin = comma + 1;
  }
  return out;
}

std::vector<sim::Cell> cells_of(const std::vector<AskedPolicy>& policies,
                                const std::vector<sim::Budget>& budgets) {
  std::vector<sim::Cell> out;
  for (const sim::Budget& budget : budgets)
    for (const AskedPolicy& asked : policies) out.push_back({asked.composition, budget});
  return out;
}

}  // namespace kvsim::tools
