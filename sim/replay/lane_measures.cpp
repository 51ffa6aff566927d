#include "sim/replay/lane_measures.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "sim/attention/attention_rows.hpp"
#include "sim/attention/resident_outputs.hpp"
#include "sim/attention/step_oracle.hpp"

namespace kvsim::sim {
namespace {

using policy::Position;

/// How much of a row a set of positions retains, and how like the row's largest entries it is.
struct ResidentAttention {
  double sum = 0;
  double cosine = 1;  ///< between the row restricted to the set and the row restricted to the largest entries
};

/// Sums in chains side by side. Their order depends on the slots alone, and compilers turn them into vector
/// instructions: floats that are not negative compare as their bits do, which needs no branch.
constexpr std::size_t kChains = 8;
struct Chains {
  double sum[kChains] = {}, squares[kChains] = {}, shared[kChains] = {};
  std::int64_t ties[kChains] = {};

  void add(const float (&a)[kChains], float least) {
    const auto least_bits = std::bit_cast<std::int32_t>(least);
    for (std::size_t c = 0; c < kChains; ++c) {
      const double value = a[c], square = value * value;
      const std::int64_t bits = std::bit_cast<std::int32_t>(a[c]);
      const std::int64_t above = (least_bits - bits) >> 63;  // all ones, or none
      sum[c] += value;
      squares[c] += square;
      shared[c] += std::bit_cast<double>(std::bit_cast<std::int64_t>(square) & above);
      ties[c] += bits == least_bits ? 1 : 0;
    }
  }
  template <class T>
  static T total(const T (&chains)[kChains]) {
    return std::accumulate(chains, chains + kChains, T{0});
  }
};

ResidentAttention resident_attention(const float* row, std::span<const Position> slots,
                                     const LargestEntries& best) {
  Chains chains;
  float a[kChains];
  std::size_t i = 0;
  for (; i + kChains <= slots.size(); i += kChains) {
    for (std::size_t c = 0; c < kChains; ++c) a[c] = row[slots[i + c]];
    chains.add(a, best.least);
  }
  // Chains without a slot add zeros. These are ties if the least of the best is zero, which adds nothing: its
  // square is zero too.
  if (i < slots.size()) {
    std::fill(a, a + kChains, 0.0F);
    for (std::size_t c = 0; i + c < slots.size(); ++c) a[c] = row[slots[i + c]];
    chains.add(a, best.least);
  }
  // Any of the entries that equal the least of the best may be among the best; the set's own are taken first.
  const auto ties =
      static_cast<double>(std::min(Chains::total(chains.ties), static_cast<std::int64_t>(best.ties)));
  const double shared = Chains::total(chains.shared) + ties * double{best.least} * best.least;
  const double scale = std::sqrt(Chains::total(chains.squares) * best.squares);
  return {Chains::total(chains.sum), scale > 0 ? std::min(1.0, shared / scale) : 1.0};
}

/// Adds a row whose output is at `distance`, and whose attention is lost to the share `evicted`.
void add_direction(const OutputDistance& distance, double evicted, DirectionOutcome& out) {
  if (evicted <= 0 || evicted >= 1) return;
  const double weight = std::min(evicted / kWholeRow, 1.0);
  out.weight += weight;
  out.error += weight * distance.error / evicted;
  out.cosine += weight * distance.evicted_cosine(evicted);
}

}  // namespace

void measure_kept(const std::vector<std::optional<PromptSegment>>& segments, const std::vector<double>& w,
                  std::size_t first, const MeasuredCells& cells) {
  const std::vector<double> best = largest_sums(w);
  for (const auto& [cache, out, lane_of_unit] : cells) {
    out->budget_tokens = cache->budget;
    out->kept_tokens = out->held_at_end = cache->residents.slots().size();
    for (const Position position : cache->residents.slots())
      if (const auto segment = segments[static_cast<std::size_t>(position)])
        out->kept_of[static_cast<std::size_t>(*segment)] += 1;
    out->candidates = w.size();
    out->importance = best.back();
    for (const Position position : cache->residents.slots()) {
      const std::size_t row = static_cast<std::size_t>(position) - first;
      if (row >= w.size()) continue;
      out->kept_candidates += 1;
      out->importance_kept += w[row];
    }
    out->importance_oracle = best[out->kept_candidates];
    // Both sum the same numbers, in different orders; R of all candidates is exactly 1.
    if (out->kept_candidates == w.size()) out->importance_kept = out->importance;
  }
}

LaneMeasures::LaneMeasures(const MeasureRules& rules, const GroupTensors& tensors, std::size_t lane,
                           MeasuredCells cells)
    : rules_(rules), tensors_(&tensors), cells_(std::move(cells)), recorded_(tensors, lane) {
  for (const MeasuredCell& measured : cells_) {
    measured.out->whole_at_end = whole(tensors.sequence().length());
    measured.out->peak.heads.resize(rules_.group);
    measured.out->holds_evidence.resize(rules_.evidence.size());
    measured.out->holds_prompt.resize((rules_.prompt + 63) / 64);
    const std::size_t length = tensors.sequence().length();
    measured.out->evidence_in_sight = rules_.evidence.size() - seen_evidence(length - whole(length)).size();
    std::optional<StoredMeasures>& stored = stored_.emplace_back();
    std::optional<ReadMeasures>& read = read_.emplace_back();
    if (measured.cache->stored)
      stored.emplace(tensors, lane, measured.lane_of_unit, *measured.cache, *measured.out);
    if (measured.cache->reads)
      read.emplace(tensors, lane, measured.lane_of_unit, *measured.cache, *measured.out);
    if (is_exact(stored_.size() - 1)) exact_.push_back(measured);
  }
  compares_rows_ = exact_.size() < cells_.size();
  attends_recorded_ = std::any_of(stored_.begin(), stored_.end(), [](const auto& stored) { return !stored; });
  n_attended_.resize(cells_.size());
  peak_dropped_.resize(cells_.size());
}

void LaneMeasures::attention(const RowBlock& rows, std::size_t lane, std::size_t s) {
  const std::size_t seen = rows.first() + s + 1;
  mean_row_.assign(rows.row(lane, 0, s), rows.row(lane, 0, s) + seen);
  for (std::size_t g = 1; g < rules_.group; ++g) {
    const float* other = rows.row(lane, g, s);
    for (std::size_t j = 0; j < seen; ++j) mean_row_[j] += other[j];
  }
  total_ = 0;
  for (const float a : mean_row_) total_ += a;
  for (std::size_t c = 0; c < cells_.size(); ++c) {
    n_attended_[c].resize(rows.size());
    n_attended_[c][s] = cells_[c].cache->attended.size();
  }
  if (compares_rows_) recorded_.set(rows, s);
  for (std::size_t c = 0; c < cells_.size(); ++c) {
    if (stored_[c]) stored_[c]->step(recorded_, rules_.each_step);
    if (!read_[c]) continue;
    read_[c]->step(recorded_);
    if (!stored_[c]) read_[c]->attend(recorded_, seen_evidence(seen), rules_.each_step);
    if (rules_.each_step) read_[c]->note_step();
  }
  if (seen == tensors_->sequence().length()) note_held();
  if (!exact_.empty()) {
    lost(seen);
    if (!rules_.evidence.empty()) evidence(seen);
  }
  if (attends_recorded_) peaks(rows, lane, s);
}

void LaneMeasures::lost(std::size_t seen) {
  counts_.clear();
  for (const MeasuredCell& measured : exact_) counts_.push_back(measured.cache->attended.size());
  std::sort(counts_.begin(), counts_.end());
  counts_.erase(std::unique(counts_.begin(), counts_.end()), counts_.end());
  best_.resize(counts_.size());
  selection_ = mean_row_;
  largest_entries(selection_, counts_, best_);

  for (const auto& [cache, out, lane_of_unit] : exact_) {
    out->steps += 1;
    out->attended_tokens += cache->attended.size();
    out->held_at_end = cache->residents.slots().size();
    if (cache->attended.size() == whole(seen)) {  // nothing is evicted: the loss is exactly 0
      out->oracle_cosine += 1;
      if (rules_.each_step) out->each_step.push_back({0, 0, cache->attended.size()});
      continue;
    }
    const auto index =
        std::lower_bound(counts_.begin(), counts_.end(), cache->attended.size()) - counts_.begin();
    const LargestEntries& best = best_[static_cast<std::size_t>(index)];
    const ResidentAttention held = resident_attention(mean_row_.data(), cache->attended, best);
    const double loss = std::max(0.0, 1.0 - held.sum / total_);
    const double least = std::max(0.0, 1.0 - best.share);
    out->attention_loss += loss;
    out->attention_loss_oracle += least;
    out->oracle_cosine += held.cosine;
    if (rules_.each_step) out->each_step.push_back({loss, least, cache->attended.size()});
  }
}

std::span<const Position> LaneMeasures::seen_evidence(std::size_t seen) const {
  const auto end =
      std::lower_bound(rules_.evidence.begin(), rules_.evidence.end(), static_cast<Position>(seen));
  return {rules_.evidence.begin(), end};
}

void LaneMeasures::note_held() {
  for (const auto& [cache, out, lane_of_unit] : cells_) {
    for (std::size_t i = 0; i < rules_.evidence.size(); ++i)
      out->holds_evidence[i] = cache->residents.contains(rules_.evidence[i]) ? 1 : 0;
    for (const Position position : cache->residents.slots())
      if (const auto at = static_cast<std::size_t>(position); at < rules_.prompt)
        out->holds_prompt[at / 64] |= std::uint64_t{1} << (at % 64);
  }
}

void LaneMeasures::evidence(std::size_t seen) {
  const std::span<const Position> positions = seen_evidence(seen);
  double paid = 0;
  for (const Position position : positions) paid += mean_row_[static_cast<std::size_t>(position)];
  for (const auto& [cache, out, lane_of_unit] : exact_) {
    PaidAttention at_step{paid / total_, 0};
    if (cache->attended.size() < whole(seen))
      for (const Position position : positions)
        if (!cache->attends(position)) at_step.dropped += mean_row_[static_cast<std::size_t>(position)];
    at_step.dropped /= total_;
    out->evidence += at_step;
    if (rules_.each_step) out->each_step.back().evidence = at_step;
  }
}

void LaneMeasures::peaks(const RowBlock& rows, std::size_t lane, std::size_t s) {
  const std::size_t seen = rows.first() + s + 1;
  if (s == 0)
    for (std::vector<float>& dropped : peak_dropped_) dropped.assign(rules_.group * rows.size(), 0.0F);
  for (std::size_t g = 0; g < rules_.group; ++g) {
    const std::span<const float> row(rows.row(lane, g, s), seen);
    find_peak(rules_.peak, row, rules_.prompt, peak_);
    if (peak_.positions.empty()) continue;
    const bool counts = peak_.best >= rules_.peak.threshold;
    for (std::size_t c = 0; c < cells_.size(); ++c) {
      if (stored_[c]) continue;
      const auto& [cache, out, lane_of_unit] = cells_[c];
      PaidAttention paid{peak_.paid, 0};
      if (read_[c] || cache->attended.size() < whole(seen))
        for (const Position position : peak_.positions)
          if (const auto at = static_cast<std::size_t>(position);
              read_[c] ? !read_[c]->reads(g, at) : !cache->attends(position))
            paid.dropped += row[at];
      out->peak.low += paid;
      if (!counts) continue;
      out->peak.plain += paid;
      out->peak.heads[g] += paid;
      out->peak.weighted += {peak_.best * paid.paid, peak_.best * paid.dropped};
      peak_dropped_[c][g * rows.size() + s] = static_cast<float>(paid.dropped);
    }
  }
}

void LaneMeasures::outputs(const RowBlock& rows, std::size_t lane, std::uint32_t first_step,
                           MatrixView values, ProjectedOutputs* projected) {
  const MatrixView attended = rows.lane(lane);
  const std::size_t n = rows.size(), dim = values.cols;
  const MatrixView seen_values{values.data, rows.width(), dim, values.stride};
  by_position_.resize(attended.rows * rows.width());
  transpose(attended, by_position_.data());
  const AttendedBlock block{{by_position_.data(), rows.width(), attended.rows, attended.rows},
                            seen_values,
                            first_step,
                            static_cast<std::uint32_t>(n),
                            !tensors_->sequence().model().sinks.empty()};
  resident_outputs_.begin(block);
  if (projected) projected->add_whole(lane, resident_outputs_.whole());
  const auto all = [&](std::size_t s) { return whole(rows.first() + s + 1); };
  for (std::size_t c = 0; c < cells_.size(); ++c) {
    const auto& [cache, out, lane_of_unit] = cells_[c];
    if (!is_exact(c)) {
      if (stored_[c])
        computed_outputs(stored_[c]->outputs(), nullptr, c, n, dim);
      else
        computed_outputs(read_[c]->outputs(), &*read_[c], c, n, dim);
      if (stored_[c]) stored_[c]->clear();
      if (read_[c]) read_[c]->clear();
      if (projected) projected->add_difference(c, lane, difference_);
      continue;
    }
    const std::vector<std::size_t>& n_attended = n_attended_[c];
    // Nothing is dropped at one step and there at the next, but where a chunk of attention begins between
    // them.
    std::size_t whole_steps = 0;
    while (whole_steps < n && n_attended[whole_steps] == all(whole_steps)) ++whole_steps;
    if (whole_steps == n) {
      out->output_cosine += static_cast<double>(n);
      continue;
    }
    intervals_.assign(cache->residents.intervals().begin(), cache->residents.intervals().end());
    // At step 0 a query attends its own key even if the policy has evicted it.
    const auto own = static_cast<Position>(rows.first());
    if (first_step == 0 && !cache->own_is_resident) intervals_.push_back({own, 0, 1});
    resident_outputs_.difference(block, intervals_, difference_);
    for (std::size_t s = 0; s < n; ++s) {
      const bool dropped_nothing = n_attended[s] == all(s);
      double errors = 0, cosines = 0;
      for (std::size_t g = 0; g < rules_.group; ++g) {
        const std::size_t r = g * n + s;
        if (dropped_nothing)
          std::fill_n(difference_.begin() + static_cast<std::ptrdiff_t>(r * dim), dim, 0.0F);
        const OutputDistance distance =
            output_distance(resident_outputs_.whole().data() + r * dim, difference_.data() + r * dim, dim);
        errors += distance.error;
        cosines += distance.cosine;
        out->peak.dropped_times_error += peak_dropped_[c][r] * distance.error;
        if (!dropped_nothing) add_direction(distance, double{resident_outputs_.evicted()[r]}, out->direction);
      }
      out->output_error += errors / static_cast<double>(rules_.group);
      out->output_cosine += cosines / static_cast<double>(rules_.group);
    }
    if (projected) projected->add_difference(c, lane, difference_);
  }
}

void LaneMeasures::computed_outputs(std::span<const float> computed, const ReadMeasures* read,
                                    std::size_t cell, std::size_t n, std::size_t dim) {
  const std::span<const float> whole = resident_outputs_.whole();
  LaneOutcome& out = *cells_[cell].out;
  difference_.resize(whole.size());
  for (std::size_t s = 0; s < n; ++s) {
    double errors = 0, cosines = 0;
    for (std::size_t g = 0; g < rules_.group; ++g) {
      const std::size_t r = g * n + s;
      const std::size_t at = s * rules_.group + g;
      const float* from = computed.data() + at * dim;
      const bool same = read && read->everything()[at] != 0;
      for (std::size_t c = 0; c < dim; ++c)
        difference_[r * dim + c] = same ? 0.0F : from[c] - whole[r * dim + c];
      const OutputDistance distance =
          output_distance(whole.data() + r * dim, difference_.data() + r * dim, dim);
      errors += distance.error;
      cosines += distance.cosine;
      if (!read) continue;
      out.peak.dropped_times_error += peak_dropped_[cell][r] * distance.error;
      add_direction(distance, double{read->unread()[at]}, out.direction);
    }
    out.output_error += errors / static_cast<double>(rules_.group);
    out.output_cosine += cosines / static_cast<double>(rules_.group);
  }
}

void LaneMeasures::end() {
  for (std::optional<StoredMeasures>& stored : stored_)
    if (stored) stored->end();
  for (std::optional<ReadMeasures>& read : read_)
    if (read) read->end();
}

ProjectedOutputs::ProjectedOutputs(const GroupTensors& tensors, std::vector<LayerOutcome*> cells)
    : tensors_(&tensors),
      cells_(std::move(cells)),
      hidden_(tensors.sequence().model().hidden_size),
      differences_(cells_.size()) {}

void ProjectedOutputs::begin(std::size_t n_steps) {
  n_steps_ = n_steps;
  whole_.assign(n_steps * hidden_, 0.0F);
  for (std::vector<float>& sum : differences_) sum.clear();
}

void ProjectedOutputs::add_whole(std::size_t lane, std::span<const float> outputs) {
  add(lane, outputs, whole_);
}

void ProjectedOutputs::add_difference(std::size_t cell, std::size_t lane, std::span<const float> outputs) {
  differences_[cell].resize(n_steps_ * hidden_);
  add(lane, outputs, differences_[cell]);
}

void ProjectedOutputs::add(std::size_t lane, std::span<const float> outputs, std::vector<float>& sum) {
  const std::size_t group = tensors_->sequence().model().group(),
                    dim = tensors_->sequence().model().v_head_dim;
  product_.resize(n_steps_ * hidden_);
  for (std::size_t g = 0; g < group; ++g) {
    multiply({outputs.data() + g * n_steps_ * dim, n_steps_, dim, dim},
             tensors_->output_weights(lane * group + g), product_.data());
    for (std::size_t i = 0; i < product_.size(); ++i) sum[i] += product_[i];
  }
}

void ProjectedOutputs::end() {
  for (std::size_t cell = 0; cell < cells_.size(); ++cell)
    for (std::size_t s = 0; s < n_steps_; ++s) {
      OutputDistance distance;  // stays as it is for a cell that loses nothing in any lane
      if (!differences_[cell].empty())
        distance =
            output_distance(whole_.data() + s * hidden_, differences_[cell].data() + s * hidden_, hidden_);
      cells_[cell]->projected_error += distance.error;
      cells_[cell]->projected_cosine += distance.cosine;
    }
}

}  // namespace kvsim::sim
