#pragma once
/// What tables say of cells beside their policy: where the prompt ended for it (traces/format/cut.hpp), as
/// the column `cut` says, and its budget as numbers, which can be sorted and drawn without reading "5%". What
/// a policy keeps with the question known and what it keeps without are two questions: numbers of different
/// cuts are never averaged, and compared only where that is said.
#include <array>
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

/// `budget_kind` (tokens, share or bytes) and `budget_number` (128, 0.05, 67108864), which stand behind
/// `budget` in every table that has both.
const std::vector<ColumnInfo>& budget_columns();

/// Their fields for a budget as it was given; undefined without one. Throws Error(usage) for text that is no
/// budget.
std::array<Value, 2> budget_fields(const std::string& budget);

/// The same table with these columns, if it has a column `budget` and not yet its numbers.
Records with_budget_numbers(Records records);

}  // namespace kvsim::analysis
