#pragma once
/// How well hashes tell what a query attends, as text. Definitions: analysis/METRICS.md.
#include <iosfwd>
#include <string>
#include <vector>

#include "analysis/tables.hpp"
#include "sim/hash_correlation.hpp"

namespace kvsim::analysis {

/// Of one trace.
struct HashReport {
  std::string trace;
  std::vector<sim::HashCorrelation> lengths;
};

/// Failures of `out` are the caller's to look for.
void write_hash_reports(std::ostream& out, Format format, const std::vector<HashReport>& reports,
                        const std::vector<Inputs::TraceId>& traces, const sim::HashStudy& study);

}  // namespace kvsim::analysis
