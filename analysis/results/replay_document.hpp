#pragma once
/// Rows of a replay as a document.
#include <string>
#include <vector>

#include "analysis/results/document.hpp"
#include "analysis/results/records.hpp"
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

// What a person should know of the rows of a replay: policies that are all the same, and cells that were
// skipped.

/// Groups (of two or more `params`, in order of appearance) whose rows agree in every trace, budget, layer
/// and head of a replay's result. Cells that were skipped say nothing: policies skipped everywhere are in no
/// group.
std::vector<std::vector<std::string>> identical_policies(const Records& rows);

/// A line for each reason that cells were skipped for: "snapkv, h2o at 10%: REASON". Traces and cuts are
/// named where there are several.
std::vector<std::string> skip_reasons(const std::vector<Row>& rows);

}  // namespace kvsim::analysis
