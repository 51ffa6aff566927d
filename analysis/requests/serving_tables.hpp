#pragma once
/// Runs of a trace on a served model as rows, one per run or one per request of every run, and as people read
/// them: what differs between runs, and what matters most.
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "analysis/results/records.hpp"
#include "sim/base/progress.hpp"
#include "sim/requests/serving/served_model.hpp"
#include "sim/requests/serving/serving_run.hpp"

namespace kvsim::analysis {

/// Every memory with every allocator, policy of the device and of the host, rate and routing.
struct ServingGrid {
  serving::ServedModel served{};
  std::vector<std::uint64_t> memories{};  ///< bytes of keys and values on a device
  std::vector<serving::AllocatorKind> allocators{serving::AllocatorKind::paged};
  /// Which blocks of prompts stay on the device; nothing: none do.
  std::vector<std::optional<policy::Part>> policies{std::nullopt};
  /// Which stay on the host; nothing: there is no cache there.
  std::vector<std::optional<policy::Part>> host_policies{std::nullopt};
  std::uint64_t host_memory = 0;  ///< bytes of it for each device
  std::vector<double> rates{1};
  std::vector<serving::Routing> routings{serving::Routing::least_loaded};
  /// What all runs share; memory, allocator and prefix cache are each run's.
  serving::EngineSettings engine{};
  std::uint32_t replicas = 1;
  serving::OverLong over_long = serving::OverLong::refuse;
  std::uint64_t seed = 0;
  std::uint32_t hashed_blocks = 1;
  std::uint64_t page_bytes = 2 << 20;  ///< of page groups
  serving::Slo slo{};
  unsigned threads = 0;  ///< never changes a result; 0: all
};

struct ServingRun {
  std::uint64_t memory = 0;
  serving::ServingSettings settings{};
  serving::ServingResult result{};
  serving::ServingSummary summary{};
};

/// Runs in the order of the grid, the last axis fastest. Throws what serving::serve throws. `progress` counts
/// runs.
std::vector<ServingRun> serving_runs(const requests::RequestTrace& trace, const ServingGrid& grid,
                                     Progress* progress = nullptr);

/// Tokens that the memory holds; of one sequence where not every token takes the same, nothing: of any
/// length.
Value capacity_tokens(const serving::AllocatorSettings& memory);

Records serving_records(const std::vector<ServingRun>& runs);
/// One row per request, in the order of the trace.
Records request_outcome_records(const std::vector<ServingRun>& runs, const requests::RequestTrace& trace);

/// So many decimals, "-" for what is not finite.
std::string real_text(double value, int decimals);

void write_serving_table(std::ostream& out, const ServingGrid& grid, const std::vector<ServingRun>& runs);

}  // namespace kvsim::analysis
