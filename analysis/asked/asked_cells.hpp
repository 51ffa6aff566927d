#pragma once
/// What a replay is asked for, in the words that command lines and study files share.
#include <string>
#include <string_view>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/base/notes.hpp"
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

}  // namespace kvsim::analysis
