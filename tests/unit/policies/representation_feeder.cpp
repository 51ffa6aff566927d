#include "tests/unit/policies/representation_feeder.hpp"

#include <cmath>
#include <random>

#include "policies/builtin.hpp"

namespace kvsim::policy::test {
namespace {

class LanePrompt final : public Prompt {
 public:
  LanePrompt(const std::vector<float>& keys, const std::vector<float>& values,
             const std::vector<float>& queries, const CacheShape& shape, const std::vector<float>& inv_freq)
      : keys_(&keys), values_(&values), queries_(&queries), shape_(shape), inv_freq_(inv_freq) {}
  std::size_t length() const override { return shape_.prompt; }
  MatrixView keys(int lane) const override { return of(*keys_, lane, shape_.n_lanes); }
  MatrixView values(int lane) const override { return of(*values_, lane, shape_.n_lanes); }
  MatrixView queries(int head) const override { return of(*queries_, head, shape_.n_lanes * shape_.group); }
  Rotary rotary() const override { return {.inv_freq = inv_freq_}; }
  double scale() const override { return 1 / std::sqrt(static_cast<double>(shape_.dim)); }

 private:
  MatrixView of(const std::vector<float>& numbers, int head, std::size_t n_heads) const {
    return {numbers.data() + static_cast<std::size_t>(head) * shape_.dim, shape_.prompt, shape_.dim,
            n_heads * shape_.dim};
  }
  const std::vector<float>*keys_, *values_, *queries_;
  CacheShape shape_;
  std::span<const float> inv_freq_;
};

}  // namespace

RepresentedCache::RepresentedCache(const CacheShape& shape)
    : part_(*parse_composition("full+" + shape.representation, builtin()).representation),
      rows_({shape.n_lanes, shape.dim, shape.dim, 16, shape.layer, shape.n_layers}, shape.length,
            shape.length),
      keys_(shape.keys),
      values_(shape.values) {
  std::mt19937 random(static_cast<std::uint32_t>(shape.seed));
  std::normal_distribution<float> normal;
  for (std::size_t i = keys_.size(); i < shape.length * shape.n_lanes * shape.dim; ++i) {
    keys_.push_back(shape.scale * normal(random));
    values_.push_back(shape.scale * normal(random));
  }
  const std::size_t n_query_heads = shape.n_lanes * shape.group;
  queries_ = shape.queries;
  for (std::size_t i = queries_.size(); i < shape.length * n_query_heads * shape.dim; ++i)
    queries_.push_back(shape.scale * normal(random));
  other_keys_ = shape.other_keys;
  other_values_ = shape.other_values;
  for (std::size_t i = other_keys_.size(); i < keys_.size(); ++i) {
    other_keys_.push_back(shape.scale * normal(random));
    other_values_.push_back(shape.scale * normal(random));
  }
  group_ = shape.group;
  inv_freq_ = shape.inv_freq;
  prompt_ = shape.prompt;
  attend(n_query_heads);
  CacheUnit unit;
  unit.layer = static_cast<int>(shape.layer);
  unit.n_layers = static_cast<int>(shape.n_layers);
  unit.n_lanes = static_cast<int>(shape.n_lanes);
  unit.head_dim = unit.value_dim = static_cast<int>(shape.dim);
  unit.group = static_cast<int>(shape.group);
  unit.seed = shape.run_seed;
  unit.tables = shape.tables;
  // Only what stores layers together may be of another layer than the first.
  if (shape.tables == nullptr) {
    CacheUnit paired = unit;
    paired.layer = shape.pair_layer;
    paired.n_layers = 7;
    paired_ = part_.make_representation(paired)->partner().has_value();
    if (paired_) unit = paired;
  }
  const LanePrompt prompt(keys_, values_, queries_, shape, inv_freq_);
  representation_ = part_.make_representation(unit);
  observe(n_query_heads, shape.columns);
  representation_->finish_prompt(prompt);
  if (paired_)
    representation_->finish_pair(prompt, LanePrompt(other_keys_, other_values_, queries_, shape, inv_freq_));
  codec_ = representation_->codec();
  for (; next_ < shape.prompt; ++next_)
    if (next_ % shape.every == 0) join({});
  codec_->begin(prompt, rows_);
  kept_ = rows_.slots();
}

void RepresentedCache::attend(std::size_t n_query_heads) {
  const std::size_t dim = rows_.shape().key_dim;
  attention_.assign(n_query_heads * prompt_ * prompt_, 0);
  for (std::size_t head = 0; head < n_query_heads; ++head)
    for (std::size_t i = 0; i < prompt_; ++i) {
      float* row = attention_.data() + (head * prompt_ + i) * prompt_;
      double sum = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        double logit = 0;
        for (std::size_t c = 0; c < dim; ++c)
          logit +=
              static_cast<double>(query(i, c, head)) * static_cast<double>(recorded_key(j, c, head / group_));
        row[j] = static_cast<float>(std::exp(logit / std::sqrt(static_cast<double>(dim))));
        sum += static_cast<double>(row[j]);
      }
      for (std::size_t j = 0; j <= i; ++j) row[j] = static_cast<float>(static_cast<double>(row[j]) / sum);
    }
}

void RepresentedCache::observe(std::size_t n_query_heads, bool columns) {
  if (representation_->prompt_rows() == 0 || prompt_ == 0) return;
  for (std::size_t head = 0; head < n_query_heads; ++head) {
    if (columns && representation_->rows_beside_columns() == 0) {
      std::vector<double> sum(prompt_), squares(prompt_);
      for (std::size_t i = 0; i < prompt_; ++i)
        for (std::size_t j = 0; j <= i; ++j) {
          const auto p = static_cast<double>(attention(i, head)[j]);
          sum[j] += p;
          squares[j] += p * p;
        }
      representation_->observe_columns({static_cast<int>(head), sum, squares});
    } else {
      const float* rows = attention_.data() + head * prompt_ * prompt_;
      representation_->observe({static_cast<int>(head), 0, prompt_, {rows, prompt_, prompt_, prompt_}});
    }
  }
}

void RepresentedCache::append(const std::vector<std::size_t>& victims) {
  if (!victims.empty()) codec_->leave(victims, rows_, {});
  const std::size_t slot = join(victims);
  codec_->join(slot, rows_);
  if (part_.needs().decode_rows) observe_step();
  codec_->settle(slot, rows_);
  if (paired_) codec_->pair(slot, token(other_keys_, next_), token(other_values_, next_), rows_);
  ++next_;
}

void RepresentedCache::observe_step() {
  const std::size_t n_query_heads = rows_.shape().n_lanes * group_, slots = rows_.slots();
  weights_.assign(n_query_heads * slots, 0);
  for (std::size_t head = 0; head < n_query_heads; ++head) {
    float* row = weights_.data() + head * slots;
    const MatrixView keys = rows_.keys(head / group_);
    double sum = 0;
    for (std::size_t slot = 0; slot < slots; ++slot) {
      double logit = 0;
      for (std::size_t c = 0; c < keys.cols; ++c)
        logit += static_cast<double>(query(next_, c, head)) * static_cast<double>(keys(slot, c));
      logit = logit / std::sqrt(static_cast<double>(keys.cols)) +
              static_cast<double>(rows_.biases(head / group_)[slot]);
      row[slot] = static_cast<float>(std::exp(logit));
      sum += static_cast<double>(row[slot]);
    }
    for (std::size_t slot = 0; slot < slots; ++slot)
      row[slot] = static_cast<float>(static_cast<double>(row[slot]) / sum);
  }
  codec_->observe({weights_.data(), n_query_heads, slots, slots}, rows_);
}

std::size_t RepresentedCache::join(const std::vector<std::size_t>& victims) {
  return rows_.join(victims, static_cast<Position>(next_), token(keys_, next_), token(values_, next_));
}

MatrixView RepresentedCache::token(const std::vector<float>& numbers, std::size_t position) const {
  const StorageShape& shape = rows_.shape();
  return {numbers.data() + position * shape.n_lanes * shape.key_dim, shape.n_lanes, shape.key_dim,
          shape.key_dim};
}

std::size_t RepresentedCache::exact_keys() const {
  std::size_t n = 0;
  for (const Position p : rows_.positions()) {
    bool same = true;
    for (std::size_t lane = 0; lane < rows_.shape().n_lanes; ++lane)
      for (std::size_t c = 0; c < rows_.shape().key_dim; ++c)
        same = same && key(static_cast<std::size_t>(p), c, lane) ==
                           recorded_key(static_cast<std::size_t>(p), c, lane);
    n += same ? 1 : 0;
  }
  return n;
}

std::size_t RepresentedCache::exact_values() const {
  std::size_t n = 0;
  for (const Position p : rows_.positions()) {
    bool same = true;
    for (std::size_t lane = 0; lane < rows_.shape().n_lanes; ++lane)
      for (std::size_t c = 0; c < rows_.shape().value_dim; ++c)
        same = same && value(static_cast<std::size_t>(p), c, lane) ==
                           recorded_value(static_cast<std::size_t>(p), c, lane);
    n += same ? 1 : 0;
  }
  return n;
}

}  // namespace kvsim::policy::test
