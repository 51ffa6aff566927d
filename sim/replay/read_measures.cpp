#include "sim/replay/read_measures.hpp"

#include <algorithm>
#include <cmath>

#include "sim/attention/attention_rows.hpp"

namespace kvsim::sim {

using policy::Position;

ReadMeasures::ReadMeasures(const GroupTensors& tensors, std::size_t lane, std::size_t lane_of_unit,
                           Cache& cache, LaneOutcome& out)
    : tensors_(&tensors),
      lane_(lane),
      lane_of_unit_(lane_of_unit),
      group_(tensors.sequence().model().group()),
      cache_(&cache),
      out_(&out) {
  out.read.emplace();
}

ReadMeasures::Retained ReadMeasures::retained(const RecordedStep& recorded, std::size_t g) const {
  const LargestEntries& best = recorded.largest(g, columns(g).size());
  const std::span<const float> row = recorded.row(g);
  Retained out;
  std::size_t ties = 0;
  for (const std::size_t column : columns(g)) {
    const float a = row[static_cast<std::size_t>(cache_->attended[column])];
    const double square = static_cast<double>(a) * static_cast<double>(a);
    out.sum += static_cast<double>(a);
    out.squares += square;
    out.shared += a > best.least ? square : 0;
    out.among_largest += a > best.least ? 1 : 0;
    ties += a == best.least ? 1 : 0;
  }
  // Any of the entries that equal the least of the best may be among the best; the head's own are taken
  // first.
  ties = std::min(ties, best.ties);
  out.among_largest += ties;
  out.shared += static_cast<double>(ties) * static_cast<double>(best.least) * static_cast<double>(best.least);
  return out;
}

void ReadMeasures::step(const RecordedStep& recorded) {
  seen_ = recorded.seen();
  whole_ = held_tokens(tensors_->sequence().model(), tensors_->group().layer, seen_);
  marks_.assign(group_ * seen_, 0);
  retained_.resize(group_);
  latest_ = {};
  const auto lanes = static_cast<double>(cache_->reads->n_lanes());
  for (std::size_t g = 0; g < group_; ++g) {
    for (const std::size_t column : columns(g))
      marks_[g * seen_ + static_cast<std::size_t>(cache_->attended[column])] = 1;
    const auto n = static_cast<double>(columns(g).size());
    latest_.read_tokens += n;
    retained_[g] = reads_all(g) ? Retained{} : retained(recorded, g);
    latest_.recall += reads_all(g) ? 1 : static_cast<double>(retained_[g].among_largest) / n;
  }
  latest_.read_tokens /= static_cast<double>(group_);
  latest_.recall /= static_cast<double>(group_);
  latest_.loaded_tokens = cache_->reads->lane_tokens(lane_of_unit_);
  latest_.hits = cache_->reads->lane_hits(lane_of_unit_);
  latest_.index_bits_read = static_cast<double>(cache_->reads->index_bits_read()) / lanes;
  ReadOutcome& read = *out_->read;
  read.read_tokens += latest_.read_tokens;
  read.recall += latest_.recall;
  read.loaded_tokens += static_cast<double>(latest_.loaded_tokens);
  if (cache_->reads->has_previous()) read.later_loaded_tokens += static_cast<double>(latest_.loaded_tokens);
  read.hits += static_cast<double>(latest_.hits);
  read.index_bits_read += latest_.index_bits_read;
}

void ReadMeasures::attend(const RecordedStep& recorded, std::span<const Position> evidence, bool each_step) {
  const MatrixView values = tensors_->values(lane_);
  const std::size_t dim = values.cols, first = outputs_.size();
  const auto heads = static_cast<double>(group_);
  outputs_.resize(first + group_ * dim, 0.0F);
  StepOutcome step;
  double cosine = 0;
  for (std::size_t g = 0; g < group_; ++g) {
    const std::span<const float> row = recorded.row(g);
    const double total = recorded.total(g);
    everything_.push_back(reads_all(g) ? 1 : 0);
    for (const Position position : evidence) {
      const auto paid = static_cast<double>(row[static_cast<std::size_t>(position)]) / total / heads;
      step.evidence.paid += paid;
      if (!reads(g, static_cast<std::size_t>(position))) step.evidence.dropped += paid;
    }
    if (reads_all(g)) {
      unread_.push_back(0);
      cosine += 1;
      continue;
    }
    const LargestEntries& best = recorded.largest(g, columns(g).size());
    const auto& [sum, squares, shared, among_largest] = retained_[g];
    const double scale = std::sqrt(squares * best.squares);
    cosine += scale > 0 ? std::min(1.0, shared / scale) : 1;
    step.attention_loss += std::max(0.0, 1 - sum / total) / heads;
    step.attention_loss_oracle += std::max(0.0, 1 - best.share) / heads;
    float* out = outputs_.data() + first + g * dim;
    // What a head reads shares a row with the sink.
    const double sink = tensors_->sequence().model().sinks.empty() ? 0 : sink_share(row);
    const double read = sum + sink;
    unread_.push_back(static_cast<float>((total - sum) / (total + sink)));
    const auto factor = static_cast<float>(read > 0 ? 1 / read : 0);
    for (const std::size_t column : columns(g)) {
      const auto position = static_cast<std::size_t>(cache_->attended[column]);
      const float weight = row[position] * factor;
      const float* value = values.row(position).data();
      for (std::size_t c = 0; c < dim; ++c) out[c] += weight * value[c];
    }
  }
  out_->steps += 1;
  out_->attended_tokens += cache_->attended.size();
  out_->held_at_end = cache_->residents.slots().size();
  out_->attention_loss += step.attention_loss;
  out_->attention_loss_oracle += step.attention_loss_oracle;
  out_->oracle_cosine += cosine / heads;
  out_->evidence += step.evidence;
  if (!each_step) return;
  step.held = cache_->attended.size();
  out_->each_step.push_back(step);
}

void ReadMeasures::note_step() {
  StepOutcome& step = out_->each_step.back();
  step.read_tokens = latest_.read_tokens;
  step.recall = latest_.recall;
  step.loaded_tokens = latest_.loaded_tokens;
  step.hits = latest_.hits;
  step.index_bits_read = latest_.index_bits_read;
}

void ReadMeasures::end() {
  out_->read->index_bits =
      static_cast<double>(cache_->reads->index_bits()) / static_cast<double>(cache_->reads->n_lanes());
}

}  // namespace kvsim::sim
