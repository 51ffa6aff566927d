#pragma once
/// How far an assembled prompt is from the one that is read whole, by layer and by how far a token stands
/// behind the seam at which its document begins.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/replay/pieces.hpp"

namespace kvsim::sim {

/// Means over the tokens that stand `from` to `to` - 1 tokens behind the seam.
struct SeamError {
  std::uint32_t layer = 0;
  std::uint64_t from = 0, to = 0, tokens = 0;
  double key = 0, value = 0;  ///< |k' - k| / |k| of the layer's keys, all heads together; the same of values
  /// What the whole prompt's query attends: half the sum of |a' - a| over keys, mean over heads.
  double attention = 0;
  double output = 0;  ///< |o' - o| / |o| of what it reads so, all heads together
};

/// By layer, then distance: 0, 1, 2 to 3, 4 to 7 and so on; distances that no token has are left out. Pieces
/// that begin the prompt have no seam.
std::vector<SeamError> seam_errors(const trace::MemoryTrace& assembled, const trace::MemoryTrace& whole,
                                   std::span<const Piece> pieces, unsigned threads);

}  // namespace kvsim::sim
