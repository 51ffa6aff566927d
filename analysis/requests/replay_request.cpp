#include "analysis/requests/replay_request.hpp"

#include <algorithm>

#include "analysis/requests/policy_choice.hpp"
#include "sim/base/split.hpp"

namespace kvsim::analysis {
namespace {

template <class T, class Key>
void add_once(std::vector<T>& all, T item, Key key, const NoteListener& note) {
  if (std::any_of(all.begin(), all.end(), [&](const T& other) { return key(other) == key(item); })) {
    note(key(item) + " is asked for more than once; it is replayed once");
  } else {
    all.push_back(std::move(item));
  }
}

}  // namespace

std::vector<AskedPolicy> asked_policies(const std::vector<std::string>& texts,
                                        const policy::Registry& registry, const NoteListener& note) {
  std::vector<AskedPolicy> out;
  for (const std::string& text : chosen_policies(texts, registry))
    add_once(
        out, AskedPolicy{text, policy::parse_composition(text, registry)},
        [](const AskedPolicy& asked) { return asked.composition.params; }, note);
  return out;
}

std::vector<sim::Budget> asked_budgets(const std::vector<std::string>& lists, const NoteListener& note) {
  std::vector<sim::Budget> out;
  for (const std::string& list : lists)
    for (sim::Budget& budget : sim::parse_budgets(list))
      add_once(
          out, std::move(budget), [](const sim::Budget& b) { return b.text; }, note);
  return out;
}

std::vector<trace::Cut> asked_cuts(std::string_view list, const NoteListener& note) {
  std::vector<trace::Cut> out;
  for (const std::string& item : comma_list(list))
    add_once(
        out, trace::parse_cut(item), [](const trace::Cut& cut) { return "cut " + cut.text(); }, note);
  return out;
}

std::vector<sim::Cell> cells_of(const std::vector<AskedPolicy>& policies,
                                const std::vector<sim::Budget>& budgets) {
  std::vector<sim::Cell> out;
  for (const sim::Budget& budget : budgets)
    for (const AskedPolicy& asked : policies) out.push_back({asked.composition, budget});
  return out;
}

}  // namespace kvsim::analysis
