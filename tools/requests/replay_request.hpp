#pragma once
/// What people ask a replay for, as a request.
#include <string>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::tools {

/// What people should know although nothing failed, on standard error.
void note(const std::string& text);

/// A policy of a request, and how it was asked for: groups and patterns are told apart.
struct AskedPolicy {
  std::string text;
  policy::Composition composition;
};
/// Each once; a second mention, which would only repeat rows, is noted. Throws Error(usage).
std::vector<AskedPolicy> asked_policies(const std::vector<std::string>& texts);
/// Of comma lists, each once likewise.
std::vector<sim::Budget> asked_budgets(const std::vector<std::string>& lists);

/// Of a comma list, each once likewise.
std::vector<trace::Cut> asked_cuts(const std::string& list);

/// Every policy at every budget. Budgets outside, policies inside: rows to be compared stand together.
std::vector<sim::Cell> cells_of(const std::vector<AskedPolicy>& policies,
                                const std::vector<sim::Budget>& budgets);

}  // namespace kvsim::tools
