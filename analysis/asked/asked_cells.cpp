#include "analysis/asked/asked_cells.hpp"

#include <fnmatch.h>

#include <functional>
#include <set>

#include "sim/base/error.hpp"
#include "sim/base/split.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::size_t kManyCells = 100'000;

template <class T>
void add_asked(std::vector<T>& all, T item, const std::string& key, std::set<std::string>& known,
               const NoteListener& note) {
  if (known.insert(key).second)
    all.push_back(std::move(item));
  else
    note(key + " is asked for more than once; it is replayed once");
}

}  // namespace

std::vector<AskedPolicy> asked_policies(const std::vector<std::string>& texts,
                                        const policy::Registry& registry, const NoteListener& note) {
  std::vector<AskedPolicy> out;
  std::set<std::string> known;
  for (const std::string& text : chosen_policies(texts, registry)) {
    AskedPolicy asked{policy::respelled(text, registry), policy::parse_composition(text, registry)};
    const std::string params = asked.composition.params;
    add_asked(out, std::move(asked), params, known, note);
  }
  return out;
}

std::vector<sim::Budget> asked_budgets(const std::vector<std::string>& lists, const NoteListener& note) {
  std::vector<sim::Budget> out;
  std::set<std::string> known;
  for (const std::string& list : lists)
    for (const sim::Budget& budget : sim::parse_budgets(list))
      add_asked(out, budget, budget.text, known, note);
  return out;
}

std::vector<sim::Budget> asked_budgets(const std::vector<std::string>& lists,
                                       const std::vector<AskedPolicy>& policies, const NoteListener& note) {
  if (!lists.empty()) return asked_budgets(lists, note);
  for (const AskedPolicy& policy : policies) refuse_no_budget(policy.composition);
  return sim::parse_budgets("100%");
}

void refuse_no_budget(const policy::Composition& policy) {
  if (!policy.eviction.spec->own_budget())
    usage_error("is missing", "--budget",
                policy.name + " needs to be told how much it may keep: --budget 10%");
}

std::vector<trace::Cut> asked_cuts(std::string_view list, const NoteListener& note) {
  std::vector<trace::Cut> out;
  std::set<std::string> known;
  for (const std::string& item : comma_list(list)) {
    const trace::Cut cut = trace::parse_cut(item);
    add_asked(out, cut, "cut " + cut.text(), known, note);
  }
  return out;
}

void tell_many_cells(std::size_t cells, const NoteListener& note) {
  if (cells >= kManyCells)
    note(std::to_string(cells) + " cells are asked for, policies times budgets, on each trace or prompt");
}

std::vector<sim::Cell> cells_of(const std::vector<AskedPolicy>& policies,
                                const std::vector<sim::Budget>& budgets) {
  std::vector<sim::Cell> out;
  for (const sim::Budget& budget : budgets)
    for (const AskedPolicy& asked : policies) out.push_back({asked.composition, budget});
  return out;
}

sim::Cell asked_cell(const std::string& text, const std::string& where, const policy::Registry& registry,
                     const NoteListener& note) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos)
    usage_error("does not say how much it may hold", where, "Say streaming_llm(sinks=16)@256, for example.");
  const std::vector<AskedPolicy> policies = asked_policies({text.substr(0, at)}, registry, note);
  const std::vector<sim::Cell> cells =
      cells_of(policies, asked_budgets({text.substr(at + 1)}, policies, note));
  if (cells.size() != 1) usage_error("is one cache", where, "Name one policy and one budget.");
  return cells.front();
}

namespace {

using policy::Kind;
using policy::PolicySpec;
using policy::PresetSpec;
using Filter = std::function<bool(const std::string& name, bool oracle)>;

/// Evictions, then presets. Traces have the log probabilities of their prompts only where they were asked
/// for.
std::vector<std::string> names(const policy::Registry& registry, const Filter& wanted) {
  std::vector<std::string> out;
  for (const PolicySpec& spec : registry.policies())
    if (spec.kind() == Kind::eviction && policy::complete(spec) && !spec.needs.surprises &&
        wanted(spec.name, spec.is_oracle()))
      out.push_back(spec.name);
  for (const PresetSpec& preset : registry.presets())
    if (wanted(preset.name, false)) out.push_back(preset.name);
  return out;
}

std::vector<std::string> meant_by(const std::string& text, const policy::Registry& registry) {
  if (text == "all")
    return names(registry, [](const std::string& name, bool oracle) {
      return !oracle && name.find('.') == std::string::npos;
    });
  if (text == "oracles") return names(registry, [](const std::string&, bool oracle) { return oracle; });
  if (text.find('*') == std::string::npos) return {text};
  std::vector<std::string> matching = names(
      registry, [&](const std::string& name, bool) { return fnmatch(text.c_str(), name.c_str(), 0) == 0; });
  if (matching.empty())
    usage_error("no policy matches", "--policy " + text, "kvsim policy list names them all.");
  return matching;
}

}  // namespace

std::vector<std::string> chosen_policies(const std::vector<std::string>& given,
                                         const policy::Registry& registry) {
  std::vector<std::string> out;
  for (const std::string& text : listed_policies(given)) {
    const std::vector<std::string> meant = meant_by(text, registry);
    out.insert(out.end(), meant.begin(), meant.end());
  }
  return out;
}

std::vector<std::string> listed_policies(const std::vector<std::string>& given) {
  std::vector<std::string> out;
  for (const std::string& list : given)
    for (std::string& item : comma_list(list)) out.push_back(std::move(item));
  return out;
}

}  // namespace kvsim::analysis
