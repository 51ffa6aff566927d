#pragma once
/// Cost rows as people read them.
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "analysis/cost/cost_rows.hpp"

namespace kvsim::analysis {

/// What stands above and below a table.
struct CostReport {
  std::vector<std::string> head{};
  std::vector<CostRow> rows{};
  std::vector<std::string> notes{};
};

/// Rows of one workload: memory by class at the end and when the prefill needs most, time by class of
/// operations with its bound, of the prefill and of a decode step. Of several: one line each. Columns that
/// are zero in every row are left out; units stand in the headings. Throws Error(bug) without rows.
void write_cost_table(std::ostream& out, const CostReport& report);

/// policy_labels() of rows: by params.
std::map<std::string, std::string> cost_labels(const std::vector<CostRow>& rows);

/// Three decimals; what would round to nothing is "<0.001".
std::string people_text(double value);
/// Bytes in units of 2^30.
double gib(std::uint64_t bytes);

/// "llama-3-8b: 8.03 billion parameters, 32 layers, 32 query and 8 KV heads of 128".
std::string described(const cost::Model& model);
/// "a100-80-sxm: 312 TFLOP/s, 2039 GB/s, 80 GiB".
std::string described(const cost::Machine& machine);

}  // namespace kvsim::analysis
