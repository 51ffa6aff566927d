#pragma once
/// What a trace can show of its prompt to somebody who looks at it, and the words for what it cannot.
#include <cstddef>
#include <string>

#include "policies/api/eviction.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// So many of the prompt's last rows, after the column sums of all of them if `columns`.
struct RowRequirement {
  std::size_t rows = 0;  ///< at most the prompt
  bool columns = false;

  bool empty() const { return rows == 0 && !columns; }
};

/// The rows that the observer asks for; if the trace lacks their queries, those that it needs beside column
/// statistics. Throws Error(usage) about `who` when the trace has neither.
RowRequirement row_requirement(const trace::Sequence& sequence, const policy::PromptObserver& observer,
                               const std::string& who);

/// Throws Error(usage) about `who` when the queries of the prompt's last `rows` tokens are not all there.
void require_queries(const trace::Sequence& sequence, std::size_t rows, const std::string& who);

/// "those of the last 64 and of 256 others": of the prompt, whose queries the trace holds.
std::string held_queries(const trace::Sequence& sequence);

}  // namespace kvsim::sim
