#pragma once
/// Published numbers beside ours: as tidy rows, as a summary, as a page.
#include <iosfwd>
#include <string>

#include "analysis/results/records.hpp"
#include "policies/api/registry.hpp"

namespace kvsim::analysis {

/// One row per check. What recalled evidence says is in them, but not asserted.
Records validation_records(const policy::Registry& policies);

/// One row per source, and one of all: how many checks of which class, and the mean errors of times.
Records validation_summary(const policy::Registry& policies);

/// For people: the summary, the mean errors of what was held out, and every check that does not hold.
void write_validation_table(std::ostream& out, const policy::Registry& policies);

/// Markdown: the summary, then every source with its paper, its assumptions and its checks.
void write_validation_page(std::ostream& out, const policy::Registry& policies);

/// Whether every check holds and every mean error of held-out times that has an aim is within it.
bool validated(const policy::Registry& policies);

}  // namespace kvsim::analysis
