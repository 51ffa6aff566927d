#include "tests/unit/policies/selection_feeder.hpp"

#include <algorithm>
#include <random>
#include <stdexcept>

#include "policies/builtin.hpp"

namespace kvsim::policy::test {
namespace {

class NoisePrompt final : public Prompt {
 public:
  explicit NoisePrompt(const SelectedShape& shape) : shape_(&shape) {}
  std::size_t length() const override { return shape_->prompt; }
  MatrixView keys(int lane) const override { return of(shape_->keys, lane, shape_->n_lanes); }
  MatrixView values(int lane) const override { return of(shape_->values, lane, shape_->n_lanes); }
  MatrixView queries(int head) const override {
    return of(shape_->queries, head, shape_->n_lanes * shape_->group);
  }
  Rotary rotary() const override { return {.inv_freq = shape_->inv_freq}; }
  double scale() const override { return SelectedCache::kScale; }

 private:
  MatrixView of(const std::vector<float>& numbers, int head, std::size_t n_heads) const {
    return {numbers.data() + static_cast<std::size_t>(head) * shape_->dim, shape_->prompt, shape_->dim,
            n_heads * shape_->dim};
  }
  const SelectedShape* shape_;
};

}  // namespace

SelectedCache::SelectedCache(SelectedShape shape)
    : shape_(std::move(shape)), part_(*parse_composition("full+" + shape_.selection, builtin()).selection) {
  std::mt19937 random(static_cast<std::uint32_t>(shape_.seed));
  std::normal_distribution<float> normal;
  const std::size_t numbers = shape_.length * shape_.n_lanes * shape_.dim;
  while (shape_.keys.size() < numbers) shape_.keys.push_back(normal(random));
  while (shape_.values.size() < numbers) shape_.values.push_back(normal(random));
  while (shape_.queries.size() < numbers * shape_.group) shape_.queries.push_back(normal(random));
  for (std::size_t lane = 0; lane < shape_.n_lanes; ++lane) {
    const auto rows = [&](const std::vector<float>& of) {
      return MatrixView{of.data() + lane * shape_.dim, shape_.length, shape_.dim,
                        shape_.n_lanes * shape_.dim};
    };
    lanes_.push_back({.keys = rows(shape_.keys), .values = rows(shape_.values)});
  }
  CacheUnit unit;
  unit.layer = shape_.layer;
  unit.n_layers = shape_.n_layers;
  unit.n_lanes = static_cast<int>(shape_.n_lanes);
  unit.group = static_cast<int>(shape_.group);
  unit.head_dim = unit.value_dim = static_cast<int>(shape_.dim);
  unit.seed = shape_.run_seed;
  unit.tables = shape_.tables;
  selection_ = part_.make_selection(unit);
  if (selection_->prompt_rows() > 0) throw std::logic_error("attention rows of the prompt are not fed");
  const NoisePrompt prompt(shape_);
  selection_->finish_prompt(prompt);
  selector_ = selection_->selector();
  for (; next_ < shape_.prompt; ++next_)
    if (next_ % shape_.every == 0) slots_.push_back(static_cast<Position>(next_));
  selector_->begin(prompt, tokens());
}

void SelectedCache::append(const std::vector<std::size_t>& victims) {
  const auto position = static_cast<Position>(next_++);
  std::size_t own = slots_.size(), moved = slots_.size() + 1;
  if (victims.empty()) {
    slots_.push_back(position);
  } else {
    own = victims.front();
    slots_[own] = position;
    std::vector<std::size_t> gone(victims.begin() + 1, victims.end());
    std::sort(gone.rbegin(), gone.rend());
    for (const std::size_t slot : gone) slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(slot));
    own = static_cast<std::size_t>(std::find(slots_.begin(), slots_.end(), position) - slots_.begin());
    moved = gone.empty() ? slots_.size() : gone.back();
  }
  selector_->joined(own, std::min(moved, slots_.size()), tokens());
  ask(next_ - 1);
}

void SelectedCache::ask_again() {
  ask(shape_.prompt - 1);
}

void SelectedCache::ask(std::size_t position) {
  const std::size_t heads = shape_.n_lanes * shape_.group;
  reads_.begin(heads);
  Asking asking{
      .position = static_cast<Position>(position),
      .queries = {shape_.queries.data() + position * heads * shape_.dim, heads, shape_.dim, shape_.dim},
      .scale = kScale};
  const auto own = std::find(slots_.begin(), slots_.end(), asking.position);
  if (own != slots_.end()) asking.own_slot = static_cast<std::size_t>(own - slots_.begin());
  selector_->select(asking, tokens(), reads_);
  read_.assign(heads, {});
  for (std::size_t head = 0; head < heads; ++head) {
    for (const std::size_t slot : reads_.of(head))
      if (!read_[head].insert(slots_.at(slot)).second) throw std::logic_error("a slot is read twice");
    read_[head].insert(asking.position);
  }
}

double SelectedCache::logit(std::size_t query_position, std::size_t key_position,
                            std::size_t query_head) const {
  double sum = 0;
  for (std::size_t c = 0; c < shape_.dim; ++c)
    sum += static_cast<double>(query(query_position, c, query_head)) *
           static_cast<double>(key(key_position, c, query_head / shape_.group));
  return sum;
}

}  // namespace kvsim::policy::test
