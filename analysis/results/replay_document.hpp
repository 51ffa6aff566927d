#pragma once
/// Rows of a replay as a document.
#include <string>
#include <vector>

#include "analysis/results/document.hpp"
#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// Said next to every result people read: what an open-loop replay cannot tell.
extern const char* const kOpenLoopNote;

/// What the rows are a pure function of.
struct ReplayInputs {
  std::vector<TraceId> traces;
  std::vector<std::string> policies, budgets;
  Scope scope = Scope::all;
  std::uint64_t seed = 0;
  std::string importance, peak;    ///< rules of sim::Request
  std::string machine{}, model{};  ///< that rows were priced for; empty: they were not
};

/// Keeps a reference to `rows` for Document::console, which is write_console_table().
Document replay_document(const std::vector<Row>& rows, const ReplayInputs& inputs);

}  // namespace kvsim::analysis
