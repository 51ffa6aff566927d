#include "sim/replay/recorded_step.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "sim/base/cap_logits.hpp"
#include "sim/base/dot.hpp"
#include "sim/replay/replay.hpp"

namespace kvsim::sim {

using policy::Position;

std::span<const std::size_t> TopEntries::of(std::span<const float> row) {
  const std::size_t n = std::min(row.size(), kTopTokens);
  const auto rest = row.begin() + static_cast<std::ptrdiff_t>(n);
  heap_.assign(row.begin(), rest);
  std::make_heap(heap_.begin(), heap_.end(), std::greater());
  for (auto x = rest; x != row.end(); ++x) {
    if (*x <= heap_.front()) continue;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater());
    heap_.back() = *x;
    std::push_heap(heap_.begin(), heap_.end(), std::greater());
  }
  const float least = heap_.front();
  auto equal = std::count(heap_.begin(), heap_.end(), least);
  top_.clear();
  for (std::size_t i = 0; i < row.size(); ++i)
    if (row[i] > least || (row[i] == least && equal > 0)) {
      top_.push_back(i);
      if (row[i] == least) --equal;
    }
  return top_;
}

void RecordedStep::set(const RowBlock& rows, std::size_t step_of_block) {
  rows_ = &rows;
  step_ = step_of_block;
  seen_ = rows.first() + step_of_block + 1;
  heads_.resize(tensors_->sequence().model().group());
  for (Head& head : heads_) {
    head.scaled.clear();
    head.logits.clear();
    head.top.clear();
    head.total = 0;
    head.largest.clear();
  }
}

float RecordedStep::logit(std::size_t g, std::size_t position) const {
  Head& head = heads_[g];
  if (head.logits.empty()) {
    head.logits.assign(seen_, std::numeric_limits<float>::quiet_NaN());
    const auto scale = static_cast<float>(tensors_->sequence().model().attn_scale);
    for (const float x : query(g)) head.scaled.push_back(x * scale);
  }
  float& known = head.logits[position];
  if (std::isnan(known)) {
    const MatrixView keys = tensors_->keys(lane_);
    known = dot(head.scaled.data(), keys.row(position).data(), keys.cols);
    cap_logits(&known, 1, tensors_->sequence().model().logit_softcap);
  }
  return known;
}

std::span<const Position> RecordedStep::top(std::size_t g) const {
  Head& head = heads_[g];
  if (head.top.empty()) {
    TopEntries entries;
    // What the layer's window does not reach is not among them.
    const std::size_t whole = held_tokens(tensors_->sequence().model(), tensors_->group().layer, seen_);
    for (const std::size_t i : entries.of(row(g).last(whole)))
      head.top.push_back(static_cast<Position>(seen_ - whole + i));
  }
  return head.top;
}

double RecordedStep::total(std::size_t g) const {
  Head& head = heads_[g];
  if (head.total == 0)
    for (const float a : row(g)) head.total += static_cast<double>(a);
  return head.total;
}

const LargestEntries& RecordedStep::largest(std::size_t g, std::size_t n) const {
  std::vector<Counted>& known = heads_[g].largest;
  for (const Counted& counted : known)
    if (counted.n == n) return counted.entries;
  scratch_.assign(row(g).begin(), row(g).end());
  Counted& counted = known.emplace_back();
  counted.n = n;
  largest_entries(scratch_, {&n, 1}, {&counted.entries, 1});
  return counted.entries;
}

}  // namespace kvsim::sim
