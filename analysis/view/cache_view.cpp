#include "analysis/view/cache_view.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "sim/attention/prompt_pass.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {
namespace {

/// Entries of attention rows that are held at once: 2 GiB.
constexpr std::uint64_t kMostEntries = 1ULL << 28;
/// Largest entries of lanes that a page holds: some 600 KB.
constexpr std::size_t kMostLaneEntries = 1ULL << 18;

/// Shows `look` the rows of each lane's query heads at positions from `first` on.
void for_rows_of_lanes(const trace::Sequence& sequence, std::uint64_t first, Progress& progress,
                       const std::function<void(std::size_t lane, const sim::RowBlock&)>& look) {
  const std::vector<sim::LaneGroup> lanes = sim::lane_groups(sequence.model(), false);
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const sim::GroupTensors tensors(sequence, lanes[lane], {});
    sim::for_lane_rows(tensors, first, sequence.length(), progress,
                       [&](const sim::RowBlock& rows) { look(lane, rows); });
  }
}

/// The least that a page can say.
constexpr double kLeastShare = 0x1p-16;

AttendedRow largest_of(std::span<const double> row, std::size_t most) {
  AttendedRow out;
  out.position.resize(row.size());
  std::iota(out.position.begin(), out.position.end(), 0U);
  const std::size_t n = std::min(most, row.size());
  // Of equal ones the first, so that the choice depends on nothing else.
  std::partial_sort(
      out.position.begin(), out.position.begin() + static_cast<std::ptrdiff_t>(n), out.position.end(),
      [&](std::uint32_t a, std::uint32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; });
  out.position.resize(n);
  std::erase_if(out.position, [&](std::uint32_t at) { return row[at] < kLeastShare; });
  std::ranges::sort(out.position);
  for (const std::uint32_t at : out.position) out.share.push_back(row[at]);
  return out;
}

/// The rows of all positions from view.first_row on.
void add_largest_attention(const trace::Sequence& sequence, Progress& progress, CacheView& view) {
  const std::size_t length = sequence.length(), group = sequence.model().group();
  const std::size_t lanes = view.n_layers * view.n_kv_heads, n_rows = length - view.first_row;
  const std::size_t of_lane = std::min(kMostAttendedOfLane, kMostLaneEntries / (lanes * n_rows));
  std::vector<double> sums(n_rows * length), mean;
  if (of_lane > 0) view.lane_rows.assign(n_rows, std::vector<AttendedRow>(lanes));
  for_rows_of_lanes(sequence, view.first_row, progress, [&](std::size_t lane, const sim::RowBlock& rows) {
    for (std::size_t s = 0; s < rows.size(); ++s) {
      const std::size_t row = rows.first() + s - view.first_row;
      mean.assign(rows.first() + s + 1, 0);
      for (std::size_t g = 0; g < group; ++g)
        for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += rows.row(0, g, s)[j];
      for (std::size_t j = 0; j < mean.size(); ++j) sums[row * length + j] += mean[j];
      for (double& entry : mean) entry /= static_cast<double>(group);
      if (of_lane > 0) view.lane_rows[row][lane] = largest_of(mean, of_lane);
    }
  });
  for (double& sum : sums) sum /= sequence.model().n_layers * sequence.model().n_q_heads;
  for (std::size_t at = view.first_row; at < length; ++at)
    view.rows.push_back(largest_of({sums.data() + (at - view.first_row) * length, at + 1}, kMostAttended));
}

/// Whether a lane holds a position at a step.
class LaneStays {
 public:
  LaneStays(const std::vector<sim::ResidentInterval>& stays, std::size_t length) : stays_(&stays) {
    begin_.resize(length + 1);
    for (const sim::ResidentInterval& stay : stays) begin_[static_cast<std::size_t>(stay.position) + 1] += 1;
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  }
  bool hold(std::size_t position, std::uint64_t step) const {
    for (std::size_t i = begin_[position]; i < begin_[position + 1]; ++i)
      if ((*stays_)[i].first <= step && step < (*stays_)[i].last) return true;
    return false;
  }

 private:
  const std::vector<sim::ResidentInterval>* stays_;
  std::vector<std::size_t> begin_{};
};

/// Of each row's entries, how much lies in lanes that hold them: sums at first, then shares of the entry.
void add_what_is_left(const trace::Sequence& sequence, Progress& progress, CacheView& view) {
  const std::size_t length = sequence.length(), group = sequence.model().group();
  for (ViewedCut& cut : view.cuts)
    for (ViewedCell& cell : cut.cells) {
      if (!cell.skipped.empty()) continue;
      for (std::uint64_t step = cut.first_step; step <= cut.decode; ++step)
        cell.left.emplace_back(view.rows[cut.prompt - 1 + step - view.first_row].position.size());
    }
  const std::vector<sim::ResidentInterval> none;
  std::size_t last_lane = view.n_layers * view.n_kv_heads;  // none yet
  std::vector<std::vector<LaneStays>> stays;                // [cut][cell]
  std::vector<double> paid;
  for_rows_of_lanes(sequence, view.first_row, progress, [&](std::size_t lane, const sim::RowBlock& rows) {
    if (lane != last_lane) {
      stays.assign(view.cuts.size(), {});
      for (std::size_t c = 0; c < view.cuts.size(); ++c)
        for (const ViewedCell& cell : view.cuts[c].cells)
          stays[c].emplace_back(cell.skipped.empty() ? cell.lanes[lane] : none, length);
      last_lane = lane;
    }
    for (std::size_t s = 0; s < rows.size(); ++s) {
      const std::size_t at = rows.first() + s;
      const std::vector<std::uint32_t>& keys = view.rows[at - view.first_row].position;
      paid.assign(keys.size(), 0);
      for (std::size_t g = 0; g < group; ++g)
        for (std::size_t k = 0; k < keys.size(); ++k) paid[k] += rows.row(0, g, s)[keys[k]];
      for (std::size_t c = 0; c < view.cuts.size(); ++c) {
        ViewedCut& cut = view.cuts[c];
        if (at + 1 < cut.prompt + cut.first_step) continue;
        const std::uint64_t step = at + 1 - cut.prompt;
        for (std::size_t i = 0; i < cut.cells.size(); ++i) {
          if (!cut.cells[i].skipped.empty()) continue;
          std::vector<double>& left = cut.cells[i].left[step - cut.first_step];
          for (std::size_t k = 0; k < keys.size(); ++k)
            if (stays[c][i].hold(keys[k], step)) left[k] += paid[k];
        }
      }
    }
  });
  const double heads = sequence.model().n_layers * sequence.model().n_q_heads;
  for (ViewedCut& cut : view.cuts)
    for (ViewedCell& cell : cut.cells)
      for (std::size_t s = 0; s < cell.left.size(); ++s) {
        const AttendedRow& row = view.rows[cut.prompt - 1 + cut.first_step + s - view.first_row];
        for (std::size_t k = 0; k < row.share.size(); ++k) cell.left[s][k] /= row.share[k] * heads;
      }
}

std::vector<std::uint8_t> ranks_of(const sim::PromptScores& scores) {
  const std::vector<double>& of = *scores.of;
  const auto [sinks, window] = scores.protection;
  std::vector<std::uint8_t> out(scores.first + of.size(), kProtected);
  std::vector<std::size_t> order;
  for (std::size_t at = sinks - std::min(sinks, scores.first); at + window < of.size(); ++at)
    order.push_back(at);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return of[a] > of[b]; });
  std::size_t better = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && of[order[i]] != of[order[i - 1]]) better = i;
    const double share = static_cast<double>(better) / static_cast<double>(order.size());
    const auto within = std::ranges::upper_bound(kBestShares, share);
    out[scores.first + order[i]] = static_cast<std::uint8_t>(within - kBestShares.begin() + 1);
  }
  return out;
}

ViewedCell viewed_cell(const policy::Composition& composition, std::uint64_t steps, sim::CellOutcome&& cell) {
  ViewedCell out{std::move(cell.skipped), cell.budget_tokens, std::move(cell.resident_intervals)};
  if (!out.skipped.empty()) return out;
  if (std::ranges::all_of(cell.scores, [](const sim::PromptScores& lane) { return lane.of != nullptr; }))
    for (const sim::PromptScores& lane : cell.scores) out.ranks.push_back(ranks_of(lane));
  if (composition.representation || composition.selection) return out;
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::vector<double>& kept = out.kept.emplace_back();
    for (const sim::LaneOutcome& lane : cell.lanes) kept.push_back(1 - lane.each_step[step].attention_loss);
  }
  return out;
}

}  // namespace

CacheView viewed_text(const trace::Sequence& sequence, const std::string& name) {
  const trace::Header& header = sequence.source().header();
  CacheView view{name, header.model.name, header.model.n_layers, header.model.n_kv_heads};
  view.answer = sequence.recorded_prompt_length();
  for (std::uint64_t at = 0; at < sequence.length(); ++at) {
    const std::uint64_t token = sequence.token(at);
    if (header.text_offset.empty())
      view.tokens.push_back(" #" + std::to_string(header.token_id[token]));
    else
      view.tokens.push_back(header.text_bytes.substr(
          header.text_offset[token], header.text_offset[token + 1] - header.text_offset[token]));
    const std::uint32_t flags = sequence.flags(at);
    const bool generated = header.segments[header.token_segment[token]].phase != trace::Phase::prompt;
    view.flags.push_back(static_cast<std::uint8_t>((flags & trace::kFlagEvidence ? kViewedEvidence : 0) |
                                                   (generated ? kViewedGenerated : 0) |
                                                   (flags & trace::kFlagSpecial ? kViewedSpecial : 0)));
  }
  return view;
}

CacheView cache_view(const std::vector<trace::Sequence>& sequences, const std::string& name,
                     const sim::Request& asked, Progress& progress) {
  const trace::Sequence& sequence = sequences.front();
  CacheView view = viewed_text(sequence, name);
  view.first_row = sequence.length();
  for (const trace::Sequence& cut : sequences)
    view.first_row = std::min(view.first_row, cut.first_measured());
  if ((sequence.length() - view.first_row) * sequence.length() > kMostEntries)
    usage_error(std::to_string(sequence.length() - view.first_row) + " queries over " +
                    std::to_string(sequence.length()) + " tokens are too many to view",
                "--cut",
                "Cut later: --cut " + std::to_string(sequence.length() - kMostEntries / sequence.length()));
  sim::Request request = asked;
  request.decisions = request.each_step = request.scores = true;
  const double share = 0.8 / static_cast<double>(sequences.size());
  for (const trace::Sequence& cut : sequences) {
    progress.begin_part(share * static_cast<double>(view.cuts.size()), share);
    sim::Outcome outcome = sim::replay(cut, request, progress);
    ViewedCut& out = view.cuts.emplace_back(
        ViewedCut{cut.cut().text(), outcome.prompt, outcome.decode, outcome.first_step});
    for (std::size_t i = 0; i < outcome.cells.size(); ++i)
      out.cells.push_back(
          viewed_cell(request.cells[i].composition, outcome.measured_steps(), std::move(outcome.cells[i])));
  }
  progress.begin_part(0.8, 0.2);
  progress.total.store(2 * view.n_layers * view.n_kv_heads *
                           sim::lane_rows_work(sequence.model(), sequence.length() - view.first_row),
                       std::memory_order_relaxed);
  add_largest_attention(sequence, progress, view);
  add_what_is_left(sequence, progress, view);
  return view;
}

std::uint64_t answering_step(const CacheView& view, const ViewedCut& cut) {
  return view.answer > cut.prompt ? std::min(view.answer - cut.prompt, cut.decode) : 0;
}

std::vector<std::uint32_t> holding_lanes(const CacheView& view, const ViewedCell& cell, std::uint64_t step) {
  std::vector<std::uint32_t> out(view.tokens.size());
  for (const std::vector<sim::ResidentInterval>& lane : cell.lanes)
    for (const sim::ResidentInterval& stay : lane)
      out[static_cast<std::size_t>(stay.position)] += stay.first <= step && step < stay.last;
  return out;
}

}  // namespace kvsim::analysis
