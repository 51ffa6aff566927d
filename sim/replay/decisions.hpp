#pragma once
/// Decisions of a replay as HDF5: which positions each lane held after the prompt and at each step.
#include <string>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvsim::sim {

/// Writes PATH (through PATH.partial). One group per cell, /cells/0000 with attributes policy, params,
/// budget, budget_tokens, skipped; in it, per lane, dataset `lane_ptr` u64 [lanes+1] and `position` i32,
/// `first_step` u32, `last_step` u32 [total]: position is held at steps first_step <= s < last_step; step 0
/// is right after the prompt.
void write_decisions(const std::string& path, const Request& request, const Outcome& outcome, bool overwrite);

/// What such a file says.
struct Decisions {
  struct Cell {
    std::string policy, params, budget, skipped;
    std::vector<std::vector<ResidentInterval>>
        resident_intervals;  ///< per lane, layer-major; empty when skipped
  };
  std::uint64_t prompt = 0, decode = 0;
  std::uint32_t n_layers = 0, n_kv_heads = 0;
  std::vector<Cell> cells;
};

/// Throws Error(input) for what is no such file, or one that contradicts itself.
Decisions read_decisions(const std::string& path);

}  // namespace kvsim::sim
