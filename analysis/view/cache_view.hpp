#pragma once
/// What `kvsim view` shows of one recorded run: its text, which lanes hold each token under every policy,
/// budget and cut, and what its queries attend.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/replay/replay.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::analysis {

/// What a token is, as bits.
enum ViewedToken : std::uint8_t { kViewedEvidence = 1, kViewedGenerated = 2, kViewedSpecial = 4 };

/// The largest entries of one query's attention, the mean over all query heads, by ascending position.
struct AttendedRow {
  std::vector<std::uint32_t> position{};
  std::vector<double> share{};
};
inline constexpr std::size_t kMostAttended = 64;
/// The same of one lane, of which there are many.
inline constexpr std::size_t kMostAttendedOfLane = 16;

/// How high a policy ranks a prompt token: kProtected is kept whatever its score; rank i > 0 is within the
/// best kBestShares[i - 1] of the others.
inline constexpr std::array<double, 7> kBestShares{0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1};
inline constexpr std::uint8_t kProtected = 0;

/// What the model generated through a cell's cache.
struct ViewedAnswer {
  std::string text{};
  std::optional<bool> right{};  ///< none: nothing says what would be
};

struct ViewedCell {
  std::string skipped{};                                    ///< why the cell is not run; empty if it is
  std::uint64_t budget_tokens = 0;                          ///< mean per lane
  std::vector<std::vector<sim::ResidentInterval>> lanes{};  ///< layer-major, by position
  /// [measured steps][lanes]: the share of the lane's attention that falls on what it holds; empty where that
  /// is not measured, with a representation or a selection.
  std::vector<std::vector<double>> kept{};
  /// [measured steps][positions of the step's row]: of the attention to the position, the share of lanes that
  /// hold it.
  std::vector<std::vector<double>> left{};
  std::vector<std::vector<std::uint8_t>> ranks{};  ///< [lanes][prompt]; empty: the policy ranks by no score
  std::optional<ViewedAnswer> answer{};
};

struct ViewedCut {
  std::string text{};  ///< as trace::Cut::text()
  std::uint64_t prompt = 0, decode = 0;
  /// The step of the first query. That of step s is at position prompt - 1 + s, and attends what is resident
  /// at step s.
  std::uint64_t first_step = 1;
  std::optional<bool> full_right{};  ///< whether the full cache's answer is right; none: nothing says so
  std::vector<ViewedCell> cells{};   ///< as Request::cells
};

struct CacheView {
  std::string trace{}, model{};
  std::uint32_t n_layers = 0, n_kv_heads = 0;
  std::vector<std::string> tokens{};  ///< the text of each position; its id where the trace stores no text
  std::vector<std::uint8_t> flags{};  ///< ViewedToken bits of each position
  std::uint64_t answer = 0;           ///< the first position after the recorded prompt
  std::uint64_t first_row = 0;        ///< position of rows[0]
  std::vector<AttendedRow> rows{};    ///< of every measured position of some cut
  /// [rows][lanes]: the largest entries of the lane's mean row; empty where these would be too many.
  std::vector<std::vector<AttendedRow>> lane_rows{};
  std::vector<ViewedCut> cuts{};
};

/// The text and the marks of a sequence alone.
CacheView viewed_text(const trace::Sequence& sequence, const std::string& name);

/// Replays `cells` of `request` at the cuts of `sequences`, which are all of one sequence of a trace. Throws
/// as sim::replay().
CacheView cache_view(const std::vector<trace::Sequence>& sequences, const std::string& name,
                     const sim::Request& request, Progress& progress);

/// The step at which the query attends that chooses the first token after the recorded prompt.
std::uint64_t answering_step(const CacheView& view, const ViewedCut& cut);

/// How many of a cell's lanes hold each position at `step`.
std::vector<std::uint32_t> holding_lanes(const CacheView& view, const ViewedCell& cell, std::uint64_t step);

}  // namespace kvsim::analysis
