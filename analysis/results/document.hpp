#pragma once
/// One result of an analysis, whatever it is about: what it is a function of, a tidy table, and what people
/// should be told. Written in every format the command knows.
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "analysis/results/records.hpp"
#include "analysis/results/tables.hpp"

namespace kvsim::analysis {

struct Document {
  std::string analysis;                                   ///< its kind, as the command calls it
  std::vector<Inputs::TraceId> traces;                    ///< what was looked at
  std::vector<std::pair<std::string, Value>> settings{};  ///< everything else the table depends on
  Records records;
  std::vector<std::string> notes{};  ///< lines for people: how to read it, what was left out
};

/// Format::table: numbers rounded, columns that say the same in every row named above once, notes below;
/// policies by label, without their parameters.
/// json: inputs, columns (key, unit, description) and results. Failures of `out` are the caller's to look
/// for.
void write_document(std::ostream& out, Format format, const Document& document);

}  // namespace kvsim::analysis
