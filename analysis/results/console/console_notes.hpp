#pragma once
/// What people are told below the table of a replay.
#include <map>
#include <string>
#include <vector>

#include "analysis/results/rows.hpp"

namespace kvsim::analysis {

/// What the table above shows.
struct ShownTable {
  const std::vector<Row>& rows;
  const std::map<std::string, std::string>& labels;  ///< policy_labels()
  bool marked = false;                               ///< some policy loses least
  bool by_evidence = false;                          ///< it is lost evidence that decides that
  bool several_traces = false, several_cuts = false;
  bool bounded = false, priced = false, by_step = false;
};

/// One line each, none twice.
std::vector<std::string> console_notes(const ShownTable& table);

/// Where the cut is, and what stands before the context and so is known to every policy.
std::string cut_text(const Row& row);

}  // namespace kvsim::analysis
