#pragma once
/// Finds which rows of a prompt a trace can show an observer, and refuses the observer if these are not
/// enough.
#include <cstddef>
#include <string>

#include "policies/api/eviction.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// The last `rows` rows of the prompt, preceded by the column sums of all its rows if `columns`.
struct RowRequirement {
  std::size_t rows = 0;  ///< at most the prompt's length
  bool columns = false;

  bool empty() const { return rows == 0 && !columns; }
};

/// Returns the rows that the observer asks for or, if the trace lacks their queries, those that it needs
/// beside column statistics. Throws Error(usage) about `who` when the trace has neither.
RowRequirement row_requirement(const trace::Sequence& sequence, const policy::PromptObserver& observer,
                               const std::string& who);

/// Throws Error(usage) about `who` unless the trace has the queries of the last `rows` prompt tokens.
void require_queries(const trace::Sequence& sequence, std::size_t rows, const std::string& who);

/// The same of its rows, or queries to compute them.
void require_rows(const trace::Sequence& sequence, std::size_t rows, const std::string& who);

/// Throws Error(usage) about `who` unless the trace has the queries of all tokens that a replay measures.
void require_measured_queries(const trace::Sequence& sequence, const std::string& who);

/// Describes which of the prompt's queries the trace holds: "those of the last 64 and of 256 others".
std::string held_queries(const trace::Sequence& sequence);

}  // namespace kvsim::sim
