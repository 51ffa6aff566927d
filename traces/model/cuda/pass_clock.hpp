#pragma once
/// Measures how the device's time of one pass divides into layers and attention, with events in the compute
/// stream.
#include <cstdint>
#include <vector>

#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/model_run.hpp"

namespace kvsim::model::cuda {

/// Kind of work between two marks.
enum class Span { other, layer, attention, waiting };

class PassClock {
 public:
  /// Starts a pass.
  void start(const Stream& stream);
  /// Attributes the stream's work between the previous mark and this one to `span`, and to `layer` if the
  /// span belongs to one. Attention is part of its layer; waiting is not counted.
  void mark(const Stream& stream, Span span, std::uint32_t layer = 0);
  /// Waits until the device has reached the last mark, then returns the times.
  PassTiming read(std::uint32_t layers) const;

 private:
  struct Mark {
    Event event{Event::Timing::on};
    Span span = Span::other;
    std::uint32_t layer = 0;
  };
  void add(const Stream& stream, Span span, std::uint32_t layer);

  std::vector<Mark> marks_;  // kept from pass to pass; the first used_ belong to this one
  std::size_t used_ = 0;
};

}  // namespace kvsim::model::cuda
