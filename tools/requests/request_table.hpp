#pragma once
/// What kvsim requests info says of traces.
#include <iosfwd>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/requests/prefix/request_summary.hpp"

namespace kvsim::tools {

struct NamedRequests {
  std::string name{}, format{};
  std::uint32_t block_tokens = 0;  ///< 0: it has no blocks
  requests::Hashing hashing{};
  requests::Tail tail{};
  requests::Generated generated{};
  prefix::RequestSummary summary{};
};

/// One row per trace.
analysis::Records request_records(const std::vector<NamedRequests>& traces);

/// For people: a paragraph per trace.
void write_requests_text(std::ostream& out, const std::vector<NamedRequests>& traces);

}  // namespace kvsim::tools
