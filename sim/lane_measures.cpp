#include "sim/lane_measures.hpp"

#include <algorithm>
#include <cmath>

#include "sim/attention_rows.hpp"
#include "sim/largest_sums.hpp"

namespace kvsim::sim {
namespace {

using policy::Position;

/// What a set of positions holds of a row, beside the row's largest entries.
struct HeldAttention {
  double sum = 0;
  double cosine = 1;  ///< of the row restricted to the set to the row restricted to the largest entries
};

/// Chains of sums that run side by side: their order never depends on anything but the slots, and compilers
/// make vector instructions of them.
constexpr std::size_t kChains = 8;
struct Chains {
  double sum[kChains] = {}, squares[kChains] = {}, shared[kChains] = {};
  double ties[kChains] = {};

  void add(const float* row, const Position* slots, std::size_t n, float least) {
    float a[kChains] = {};
    for (std::size_t c = 0; c < n; ++c) a[c] = row[slots[c]];
    for (std::size_t c = 0; c < kChains; ++c) {
      const double value = a[c], square = value * value;
      sum[c] += value;
      squares[c] += square;
      shared[c] += a[c] > least ? square : 0.0;
      ties[c] += a[c] == least ? 1.0 : 0.0;
    }
  }
  static double total(const double (&chains)[kChains]) {
    double out = 0;
    for (const double chain : chains) out += chain;
    return out;
  }
};

HeldAttention held_attention(const float* row, std::span<const Position> slots, const LargestEntries& best) {
  Chains chains;
  std::size_t i = 0;
  for (; i + kChains <= slots.size(); i += kChains) chains.add(row, slots.data() + i, kChains, best.least);
  // Chains without a slot add zeros, which may be ties if the least of the best is zero: their square is too.
  if (i < slots.size()) chains.add(row, slots.data() + i, slots.size() - i, best.least);
  // Of entries that equal the least of the best, any may be among the best: the set's own come first.
  const double ties = std::min(Chains::total(chains.ties), static_cast<double>(best.ties));
  const double shared = Chains::total(chains.shared) + ties * double{best.least} * best.least;
  const double scale = std::sqrt(Chains::total(chains.squares) * best.squares);
  return {Chains::total(chains.sum), scale > 0 ? std::min(1.0, shared / scale) : 1.0};
}

}  // namespace

void measure_importance(const std::vector<double>& w, const std::vector<MeasuredFamily>& families) {
  const std::vector<double> best = largest_sums(w);
  for (const MeasuredFamily& family : families)
    for (const auto& [cell, out] : family) {
      out->budget_tokens = cell->budget;
      out->kept_tokens = out->held_at_end = cell->residents.slots().size();
      out->candidates = w.size();
      out->importance = best.back();
      for (const Position position : cell->residents.slots()) {
        if (static_cast<std::size_t>(position) >= w.size()) continue;
        out->kept_candidates += 1;
        out->importance_kept += w[static_cast<std::size_t>(position)];
      }
      out->importance_oracle = best[out->kept_candidates];
      // The same numbers in another order: all of it is all of it.
      if (out->kept_candidates == w.size()) out->importance_kept = out->importance;
    }
}

void LaneMeasures::attention(const RowBlock& rows, std::size_t lane, std::size_t s,
                             const std::vector<MeasuredFamily>& families) {
  const std::size_t group = rows.lane(lane).rows / rows.size(), seen = rows.first() + s + 1;
  mean_row_.assign(rows.row(lane, 0, s), rows.row(lane, 0, s) + seen);
  for (std::size_t g = 1; g < group; ++g) {
    const float* other = rows.row(lane, g, s);
    for (std::size_t j = 0; j < seen; ++j) mean_row_[j] += other[j];
  }
  counts_.clear();
  for (const MeasuredFamily& family : families)
    for (const MeasuredCell& measured : family) counts_.push_back(measured.cell->held[s]);
  std::sort(counts_.begin(), counts_.end());
  counts_.erase(std::unique(counts_.begin(), counts_.end()), counts_.end());
  best_.resize(counts_.size());
  selection_ = mean_row_;
  largest_entries(selection_, counts_, best_);

  double total = 0;
  for (const float a : mean_row_) total += a;
  for (const MeasuredFamily& family : families)
    for (const auto& [cell, out] : family) {
      out->steps += 1;
      out->held_at_end = cell->held[s];
      if (cell->held[s] == seen) {  // nothing dropped: no loss, exactly
        out->oracle_cosine += 1;
        if (each_step_) out->each_step.push_back({0, 0, seen});
        continue;
      }
      const auto index = std::lower_bound(counts_.begin(), counts_.end(), cell->held[s]) - counts_.begin();
      const LargestEntries& best = best_[static_cast<std::size_t>(index)];
      const HeldAttention held = held_attention(mean_row_.data(), cell->residents.slots(), best);
      const double loss = std::max(0.0, 1.0 - held.sum / total);
      const double least = std::max(0.0, 1.0 - best.share);
      out->attention_loss += loss;
      out->attention_loss_oracle += least;
      out->oracle_cosine += held.cosine;
      if (each_step_) out->each_step.push_back({loss, least, cell->held[s]});
    }
}

void LaneMeasures::outputs(const RowBlock& rows, std::size_t lane, std::uint32_t first_step,
                           MatrixView values, const std::vector<MeasuredFamily>& families) {
  const MatrixView attended = rows.lane(lane);
  const std::size_t n = rows.size(), group = attended.rows / n, dim = values.cols;
  const MatrixView seen_values{values.data, rows.width(), dim, values.stride};
  output_.resize(attended.rows * dim);
  multiply(attended, seen_values, output_.data());
  by_position_.resize(attended.rows * rows.width());
  transpose(attended, by_position_.data());
  const AttendedBlock block{{by_position_.data(), rows.width(), attended.rows, attended.rows},
                            seen_values,
                            first_step,
                            static_cast<std::uint32_t>(n)};
  const auto all = [&](std::size_t s) { return rows.first() + s + 1; };  // positions before and at step s
  for (const MeasuredFamily& family : families) {
    stays_.clear();
    dropping_.clear();
    for (const MeasuredCell& measured : family) {
      // A cell that holds everything at its first and last step of the block dropped nothing in between.
      const std::vector<std::size_t>& held = measured.cell->held;
      if (held[0] == all(0) && held[n - 1] == all(n - 1)) continue;
      dropping_.push_back(measured);
      stays_.push_back(measured.cell->residents.stays());
    }
    if (dropping_.empty()) continue;
    held_outputs_.compute(block, stays_, kept_output_);
    for (std::size_t c = 0; c < dropping_.size(); ++c)
      for (std::size_t s = 0; s < n; ++s) {
        if (dropping_[c].cell->held[s] == all(s)) continue;
        double errors = 0;
        for (std::size_t g = 0; g < group; ++g)
          errors += relative_error(kept_output_[c], (g * n + s) * dim, dim);
        dropping_[c].out->output_error += errors / static_cast<double>(group);
      }
  }
}

double LaneMeasures::relative_error(const std::vector<float>& kept, std::size_t offset,
                                    std::size_t dim) const {
  double dropped = 0, whole = 0;
  for (std::size_t c = offset; c < offset + dim; ++c) {
    const double difference = static_cast<double>(output_[c]) - kept[c];
    dropped += difference * difference;
    whole += static_cast<double>(output_[c]) * output_[c];
  }
  if (whole == 0) return dropped == 0 ? 0 : 1;
  return std::sqrt(dropped / whole);
}

}  // namespace kvsim::sim
