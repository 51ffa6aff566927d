#pragma once
/// Writes and reads decisions as HDF5: which positions are resident in each lane after the prompt and at each
/// step, of a replay or of a running model.
#include <string>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvsim::sim {

struct Decisions {
  struct Cell {
    std::string policy, params, budget, skipped;
    std::vector<std::vector<ResidentInterval>>
        resident_intervals;           ///< per lane, layer-major; empty when skipped
    std::uint64_t budget_tokens = 0;  ///< mean per lane
    std::string mode{};               ///< of a running model: teacher or greedy; empty: a recorded run
  };
  std::uint64_t prompt = 0, decode = 0;
  std::uint32_t n_layers = 0, n_kv_heads = 0;
  std::vector<Cell> cells;
  std::uint64_t seed = 0;
  std::string cut{};  ///< as trace::Cut::text()
};

/// Returns those of a replay with Request::decisions.
Decisions decisions_of(const Request& request, Outcome outcome);

/// Writes `path` (sim/base/partial_file.hpp). There is one group per cell, /cells/0000, with attributes
/// policy, params, budget, budget_tokens, skipped, and mode if it is not empty. Its lanes are in datasets
/// `lane_ptr` u64 [lanes + 1] and `position` i32, `first_step` u32, `last_step` u32 [total]: `position` is
/// resident at steps first_step <= s < last_step; step 0 is right after the prompt.
void write_decisions(const std::string& path, const Decisions& decisions, bool overwrite);

/// Throws Error(input) when `path` is not such a file, or contradicts itself.
Decisions read_decisions(const std::string& path);

}  // namespace kvsim::sim
