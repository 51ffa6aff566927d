#pragma once
/// Writes rows as text (h5 is none: hdf5_export.hpp): aligned table for people; csv, json, jsonl and md with
/// every column. Numbers are printed shortest-exact in the machine formats, so equal results are equal bytes.
/// Undefined is null in json and jsonl, empty in csv, "-" in table and md.
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

enum class Format { table, csv, json, jsonl, md, h5 };
/// Throws Error(usage) with the nearest names.
Format parse_format(std::string_view name);

/// Said next to every result people read: what an open-loop replay cannot tell.
extern const char* const kOpenLoopNote;

/// Number of the json document's shape; grows when a key changes or goes.
inline constexpr int kSchemaVersion = 2;

/// What the results are a pure function of; the `inputs` of the json document.
struct Inputs {
  struct TraceId {
    std::string name, content_sha256;  ///< hash empty: not known
    std::uint64_t prompt = 0, decode = 0;
    std::string cut{};  ///< where the prompt ends; empty: nothing was replayed
  };
  std::vector<TraceId> traces;
  std::vector<std::string> policies, budgets;
  Scope scope = Scope::all;
  std::uint64_t seed = 0;
  std::string importance{}, peak{};  ///< rules of sim::Request; empty: nothing was replayed
  std::string machine{}, model{};    ///< that rows were priced for; empty: they were not
};

/// {"trace": ..., "content_sha256": ..., "prompt": ..., "decode": ..., "cut": ...}.
std::string json_trace(const Inputs::TraceId& trace);

/// Failures of `out` are the caller's to look for.
void write_rows(std::ostream& out, Format format, const std::vector<Row>& rows, const Inputs& inputs);

/// Format::table: rows grouped by budget, constant columns named above, `*` at the policy that loses least of
/// those that kept to the budget.
void write_console_table(std::ostream& out, const std::vector<Row>& rows);

}  // namespace kvsim::analysis
