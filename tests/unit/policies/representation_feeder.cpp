#include "tests/unit/policies/representation_feeder.hpp"

#include <random>

#include "policies/builtin.hpp"

namespace kvsim::policy::test {
namespace {

class LanePrompt final : public Prompt {
 public:
  LanePrompt(const std::vector<float>& keys, const std::vector<float>& values, std::size_t prompt,
             std::size_t n_lanes, std::size_t dim)
      : keys_(&keys), values_(&values), prompt_(prompt), n_lanes_(n_lanes), dim_(dim) {}
  std::size_t length() const override { return prompt_; }
  MatrixView keys(int lane) const override { return of(*keys_, lane); }
  MatrixView values(int lane) const override { return of(*values_, lane); }

 private:
  MatrixView of(const std::vector<float>& numbers, int lane) const {
    return {numbers.data() + static_cast<std::size_t>(lane) * dim_, prompt_, dim_, n_lanes_ * dim_};
  }
  const std::vector<float>*keys_, *values_;
  std::size_t prompt_, n_lanes_, dim_;
};

}  // namespace

RepresentedCache::RepresentedCache(const CacheShape& shape)
    : part_(*parse_composition("full+" + shape.representation, builtin()).representation),
      rows_({shape.n_lanes, shape.dim, shape.dim, 16}, shape.length, shape.length) {
  std::mt19937 random(static_cast<std::uint32_t>(shape.seed));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < shape.length * shape.n_lanes * shape.dim; ++i) {
    keys_.push_back(shape.scale * normal(random));
    values_.push_back(shape.scale * normal(random));
  }
  CacheUnit unit;
  unit.n_lanes = static_cast<int>(shape.n_lanes);
  unit.head_dim = unit.value_dim = static_cast<int>(shape.dim);
  const LanePrompt prompt(keys_, values_, shape.prompt, shape.n_lanes, shape.dim);
  representation_ = part_.make_representation(unit);
  representation_->finish_prompt(prompt);
  codec_ = representation_->codec();
  for (; next_ < shape.prompt; ++next_) join({});
  codec_->begin(prompt, rows_);
  kept_ = shape.prompt;
}

void RepresentedCache::append(const std::vector<std::size_t>& victims) {
  if (!victims.empty()) codec_->leave(victims, rows_);
  const std::size_t slot = join(victims);
  codec_->join(slot, rows_);
  codec_->settle(slot, rows_);
  ++next_;
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
