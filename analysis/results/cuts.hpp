#pragma once
/// The cuts of a table: where the prompt ended for policies (traces/format/cut.hpp),
/// as its column `cut` says. What a policy keeps with the question known and
/// what it keeps without are two questions: numbers of different cuts are never
/// averaged, and compared only where that is said.
#include <string>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

/// In order of appearance; a table without the column has none.
std::vector<std::string> cuts_of(const Records& table);
/// The rows of one cut; all of a table without the column.
Records at_cut(const Records& table, const std::string& cut);

/// What a policy knows there: "question known to the policy", "question not
/// known to the policy", "cut after 1000 tokens"; empty for an empty cut.
std::string cut_meaning(const std::string& cut);
/// The same with the cut's name, for titles: "cut question: question not known
/// to the policy".
std::string cut_title(const std::string& cut);

}  // namespace kvsim::analysis
