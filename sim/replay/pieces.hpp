#pragma once
/// Pieces of a prompt whose keys and values were made elsewhere: in a run of a document alone, or of the
/// text before an edit.
#include <cstdint>
#include <span>
#include <vector>

#include "traces/format/memory_trace.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::sim {

/// Tokens [begin, end) of a prompt, and the run that they are taken from, in which they begin at row `lead`.
struct Piece {
  std::uint64_t begin = 0, end = 0;
  const trace::Source* alone = nullptr;
  std::uint64_t lead = 0;
  std::vector<std::uint64_t> again{};  ///< positions in the prompt that are to be computed again, ascending
};

/// What an edit leaves of a text: the tokens that both versions begin with, and those that both end with, but
/// for the last one, which the next token is predicted from. `before` and `after`: the versions.
std::vector<Piece> unedited_pieces(std::span<const std::int32_t> before, std::span<const std::int32_t> after);

/// The pieces where they stand in the prompt, keys and queries rotated to there and rounded to the type of
/// the cache; every other row is no number. `exact`: a run of the prompt, of which only header and output
/// weights are read. `pieces`: ascending, not overlapping, without the prompt's last token. Throws
/// Error(usage) for a model whose values are parts of its keys.
trace::MemoryTrace place_pieces(const trace::MemoryTrace& exact, std::span<const Piece> pieces,
                                unsigned threads);

/// A prompt, and other runs of its trace, as kvsim capture --pieces writes them.
struct RecordedPieces {
  trace::MemoryTrace whole;              ///< of the prompt
  std::vector<trace::MemoryTrace> runs;  ///< that the pieces are taken from
  std::vector<Piece> pieces;
};

/// `prompt`: the first sequence of its trace. The pieces are those others, in their order, whose tokens all
/// stand in it behind the piece before and before its last token, but perhaps for the first, if the prompt
/// begins with the same; only those with the role of documents, where there are any. `edited`: what is left
/// of the last sequence without that role. Throws Error(usage) where the trace holds none, or not all queries
/// of both.
RecordedPieces recorded_pieces(const trace::Sequence& prompt, bool edited);

// How far an assembled prompt is from the one that is read whole, by layer and by how far a token stands
// behind the seam at which its document begins.

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
