#pragma once
/// What a replay is asked for, in the words that command lines and study files share.
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/composition.hpp"
#include "policies/api/registry.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::analysis {

/// A policy of a request, and how it was asked for: groups and patterns are told apart.
struct AskedPolicy {
  std::string text;
  policy::Composition composition;
};

// Each of these keeps one of several equal items, whose rows would be the same, and notes the others. All
// throw Error(usage) for what cannot be asked for.

std::vector<AskedPolicy> asked_policies(const std::vector<std::string>& texts,
                                        const policy::Registry& registry, const NoteListener& note);
/// Of comma lists.
std::vector<sim::Budget> asked_budgets(const std::vector<std::string>& lists, const NoteListener& note);
/// The same for these policies: those that keep what they like, such as `full`, need none and get 100%.
std::vector<sim::Budget> asked_budgets(const std::vector<std::string>& lists,
                                       const std::vector<AskedPolicy>& policies, const NoteListener& note);
/// Throws Error(usage) if the policy must be told how much it may keep.
void refuse_no_budget(const policy::Composition& policy);
/// Of a comma list.
std::vector<trace::Cut> asked_cuts(std::string_view list, const NoteListener& note);

/// Notes a grid that will take long, before anything else is done.
void tell_many_cells(std::size_t cells, const NoteListener& note);

/// Every policy at every budget. Budgets outside, policies inside: rows to be compared stand together.
std::vector<sim::Cell> cells_of(const std::vector<AskedPolicy>& policies,
                                const std::vector<sim::Budget>& budgets);

/// One cache, of SPEC@BUDGET. Errors are placed at `where`.
sim::Cell asked_cell(const std::string& text, const std::string& where, const policy::Registry& registry,
                     const NoteListener& note);

// What may be written for a policy besides a composition: groups of policies, and patterns of names.

/// Texts of the compositions that `given` stand for, in order:
///   all        every eviction with its defaults, and the systems of the papers (presets without a dot)
///   oracles    the bounds
///   a*b        every eviction, oracle or preset whose name matches, variants included (h2o*)
/// Everything else stands for itself, and each text may be a comma list. A policy that cannot run without a
/// value from its user (a file) is in no group. Throws Error(usage) when a pattern matches nothing.
std::vector<std::string> chosen_policies(const std::vector<std::string>& given,
                                         const policy::Registry& registry);

/// The items of comma lists, in order: options that name policies take either form, or both at once. A comma
/// inside parentheses belongs to a policy.
std::vector<std::string> listed_policies(const std::vector<std::string>& given);

}  // namespace kvsim::analysis
