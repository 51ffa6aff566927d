#include "traces/model/cuda/pass_clock.hpp"

namespace kvsim::model::cuda {

void PassClock::start(const Stream& stream) {
  used_ = 0;
  add(stream, Span::waiting, 0);
}

void PassClock::mark(const Stream& stream, Span span, std::uint32_t layer) {
  add(stream, span, layer);
}

void PassClock::add(const Stream& stream, Span span, std::uint32_t layer) {
  if (used_ == marks_.size()) marks_.emplace_back();
  Mark& mark = marks_[used_++];
  mark.span = span;
  mark.layer = layer;
  mark.event.record(stream);
}

PassTiming PassClock::read(std::uint32_t layers) const {
  PassTiming timing;
  timing.layer.assign(layers, 0);
  timing.attention.assign(layers, 0);
  marks_[used_ - 1].event.synchronize();
  double total = 0;
  for (std::size_t i = 1; i < used_; ++i) {
    const Mark& mark = marks_[i];
    if (mark.span == Span::waiting) continue;
    const float took = nanoseconds_between(marks_[i - 1].event, mark.event);
    total += double{took};
    if (mark.span == Span::other) continue;
    timing.layer[mark.layer] += took;
    if (mark.span == Span::attention) timing.attention[mark.layer] += took;
  }
  timing.total = static_cast<std::int64_t>(total);
  return timing;
}

}  // namespace kvsim::model::cuda
