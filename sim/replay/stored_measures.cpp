#include "sim/replay/stored_measures.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/cap_logits.hpp"
#include "sim/base/dot.hpp"

namespace kvsim::sim {
namespace {

using policy::Position;

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

double squared_norm(std::span<const float> a) {
  double sum = 0;
  for (const float x : a) sum += static_cast<double>(x) * static_cast<double>(x);
  return sum;
}

}  // namespace

StoredMeasures::StoredMeasures(const GroupTensors& tensors, std::size_t lane, std::size_t lane_of_unit,
                               Cache& cache, LaneOutcome& out)
    : tensors_(&tensors), lane_(lane), lane_of_unit_(lane_of_unit), cache_(&cache), out_(&out) {
  out.stored.emplace();
  out.stored->kept_bits = lane_part(cache.stored->ledger().bits());
  if (const std::optional<std::uint64_t> bits = cache.stored->sent_bits())
    out.stored->sent_bits = lane_part(*bits);
}

double StoredMeasures::lane_part(std::uint64_t bits) const {
  return static_cast<double>(bits) / static_cast<double>(cache_->stored->rows().shape().n_lanes);
}

void StoredMeasures::step(const RecordedStep& recorded, bool each_step) {
  const trace::Model& model = tensors_->sequence().model();
  const policy::CacheRows& rows = cache_->stored->rows();
  const std::size_t group = recorded.group(), position = recorded.position(),
                    value_dim = rows.shape().value_dim;
  StoredAttention::Sight sight{.scale = model.attn_scale, .cap = model.logit_softcap};
  sight.first = static_cast<Position>(model.first_seen(tensors_->group().layer, position));
  if (cache_->attended.size() > rows.slots()) {
    sight.own_key = tensors_->keys(lane_).row(position);
    sight.own_value = tensors_->values(lane_).row(position);
  }
  if (lane_of_unit_ == 0)
    cache_->stored->begin_step(rows.shape().n_lanes * group, sight.columns(rows.slots()));
  const std::size_t first = outputs_.size();
  outputs_.resize(first + group * value_dim);
  variation_ = overlap_ = 0;
  for (std::size_t g = 0; g < group; ++g) {
    const std::span<float> weights = cache_->stored->weights(lane_of_unit_ * group + g);
    if (cache_->reads) sight.read = cache_->reads->of(lane_of_unit_ * group + g);
    sight.sink = model.sink(tensors_->group().layer, tensors_->model_head(lane_ * group + g));
    attention_.attend(rows, lane_of_unit_, recorded.query(g), sight, weights,
                      outputs_.data() + first + g * value_dim);
    compare(recorded, g, weights);
  }
  out_->steps += 1;
  out_->attended_tokens += cache_->attended.size();
  out_->held_at_end = cache_->residents.slots().size();
  out_->stored->total_variation += variation_ / static_cast<double>(group);
  out_->stored->top_overlap += overlap_ / static_cast<double>(group);
  if (each_step) {
    StepOutcome& outcome = out_->each_step.emplace_back();
    outcome.held = cache_->attended.size();
    outcome.total_variation = variation_ / static_cast<double>(group);
  }
}

void StoredMeasures::compare(const RecordedStep& recorded, std::size_t g, std::span<const float> weights) {
  const std::span<const float> row = recorded.row(g);
  const std::span<const Position> attended = cache_->attended;
  double held = 0, differences = 0;
  for (std::size_t slot = 0; slot < weights.size(); ++slot) {
    const auto position = static_cast<std::size_t>(attended[slot]);
    const double exact = static_cast<double>(row[position]);
    held += exact;
    differences += std::abs(exact - static_cast<double>(weights[slot]));
  }
  for (const std::size_t slot : attention_.seen()) {
    const auto position = static_cast<std::size_t>(attended[slot]);
    const double difference =
        static_cast<double>(attention_.logits()[slot]) - static_cast<double>(recorded.logit(g, position));
    out_->stored->logit_squares += difference * difference;
    out_->stored->logits += 1;
  }
  double lost = std::max(0.0, 1 - held);
  if (!tensors_->sequence().model().sinks.empty()) {
    // What neither row gives to keys is the sink's, an outcome like a key.
    const double of_sink = sink_share(row);
    lost = std::max(0.0, lost - of_sink);
    differences += std::abs(of_sink - static_cast<double>(attention_.sink_weight()));
  }
  variation_ += (differences + lost + static_cast<double>(attention_.rest_weight())) / 2;
  std::size_t shared = 0;
  for (const std::size_t slot : top_.of(weights))
    shared += std::binary_search(recorded.top(g).begin(), recorded.top(g).end(), attended[slot]) ? 1 : 0;
  overlap_ += static_cast<double>(shared) / static_cast<double>(recorded.top(g).size());
}

void StoredMeasures::end() {
  const policy::CacheRows& rows = cache_->stored->rows();
  const MatrixView keys = rows.keys(lane_of_unit_), values = rows.values(lane_of_unit_);
  for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
    const auto position = static_cast<std::size_t>(rows.positions()[slot]);
    const std::span<const float> key = tensors_->keys(lane_).row(position),
                                 value = tensors_->values(lane_).row(position);
    out_->stored->key_error += squared_distance(keys.row(slot), key);
    out_->stored->key_squares += squared_norm(key);
    out_->stored->value_error += squared_distance(values.row(slot), value);
    out_->stored->value_squares += squared_norm(value);
  }
  out_->stored->held_bits = lane_part(cache_->stored->ledger().bits());
}

void StoredAttention::attend(const policy::CacheRows& rows, std::size_t lane, std::span<const float> query,
                             const Sight& sight, std::span<float> weights, float* out) {
  const std::size_t slots = rows.slots(), dim = query.size(), value_dim = rows.shape().value_dim;
  const MatrixView keys = rows.keys(lane), values = rows.values(lane);
  const std::span<const float> biases = rows.biases(lane);
  const std::span<const policy::Position> positions = rows.positions();
  scaled_.resize(dim);
  for (std::size_t c = 0; c < dim; ++c) scaled_[c] = query[c] * static_cast<float>(sight.scale);
  logits_.resize(weights.size());
  seen_.clear();
  const auto see = [&](std::size_t slot) {
    if (slot < slots && positions[slot] < sight.first) return;
    logits_[slot] = dot(scaled_.data(), slot < slots ? keys.row(slot).data() : sight.own_key.data(), dim);
    cap_logits(&logits_[slot], 1, sight.cap);
    if (slot < slots) logits_[slot] += biases[slot];
    seen_.push_back(slot);
  };
  if (sight.read.empty())
    for (std::size_t column = 0; column < weights.size(); ++column) see(column);
  else
    for (const std::size_t column : sight.read) see(column);
  const bool rest = rows.has_rest(lane);
  seen_logits_.resize(seen_.size() + (rest ? 1 : 0));
  for (std::size_t j = 0; j < seen_.size(); ++j) seen_logits_[j] = logits_[seen_[j]];
  if (rest) {
    seen_logits_.back() = dot(scaled_.data(), rows.rest_key(lane).data(), dim);
    cap_logits(&seen_logits_.back(), 1, sight.cap);
    seen_logits_.back() += rows.rest_bias(lane);
  }
  sink_weight_ = softmax(seen_logits_.data(), seen_logits_.size(), sight.sink);
  std::ranges::fill(weights, 0.0F);
  std::fill_n(out, value_dim, 0.0F);
  for (std::size_t j = 0; j < seen_.size(); ++j) {
    const float weight = weights[seen_[j]] = seen_logits_[j];
    const float* value = seen_[j] < slots ? values.row(seen_[j]).data() : sight.own_value.data();
    for (std::size_t c = 0; c < value_dim; ++c) out[c] += weight * value[c];
  }
  rest_weight_ = rest ? seen_logits_.back() : 0;
  if (rest)
    for (std::size_t c = 0; c < value_dim; ++c) out[c] += rest_weight_ * rows.rest_value(lane)[c];
}

}  // namespace kvsim::sim
