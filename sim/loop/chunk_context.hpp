#pragma once
/// Which tokens of a document are computed again when it is taken from a prompt where other documents stood
/// before it (Agarwal et al. 2025, "Cache-Craft"; arXiv 2502.15734). Its authors have published no code:
/// these are the formulas as others have written them down.
///
/// What a chunk C attends there, averaged over layers and query heads, says how much it depends on its
/// context: its impact is 1 / (1 + exp(-a / b)), where a is the sum over earlier chunks D of the attention
/// from C to D over |C||D|, and b the attention within C over |C|^2. Of the attention to earlier chunks, a
/// share falls on those that stand before C again; it counts as far as they stand in the same order (1 less
/// the share of their pairs that have changed places), and as 1 where nothing stood before C. alpha * impact
/// * (1 - that) of C's tokens are computed again, rounded up: those that attended earlier chunks most.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/loop/assembled_prompt.hpp"
#include "traces/format/source.hpp"

namespace kvsim::sim {

/// Tokens [begin, end) of a run.
struct Chunk {
  std::uint64_t begin = 0, end = 0;
};

/// What each token of a chunk attends in each chunk up to its own, mean over layers and query heads.
using ChunkAttention = std::vector<std::vector<double>>;  // [tokens, chunks up to its own]

/// Of each chunk of a run. `chunks`: ascending, not overlapping. All queries of the run are there.
std::vector<ChunkAttention> chunk_attention(const trace::Source& run, std::span<const Chunk> chunks,
                                            unsigned threads);

/// The tokens of the chunk to compute again, ascending, from 0; of those that attend alike the first.
/// `attention`: of the chunk behind chunks of these `sizes`, itself the last. `before`: which of these, by
/// number, stand before it in the prompt, in their order there.
std::vector<std::size_t> recomputed_tokens(const ChunkAttention& attention,
                                           std::span<const std::uint64_t> sizes,
                                           std::span<const std::size_t> before, double alpha);

/// Finds Piece::again. All pieces are of one run, where they stand in any order.
void choose_across(std::span<Piece> pieces, double alpha, unsigned threads);

}  // namespace kvsim::sim
