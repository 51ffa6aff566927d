#pragma once
/// Where the device's time of one pass goes, by events in the stream that computes.
#include <cstdint>
#include <vector>

#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/model_run.hpp"

namespace kvsim::model::cuda {

/// What lies between two marks.
enum class Span { other, layer, attention, waiting };

class PassClock {
 public:
  /// Starts a pass.
  void start(const Stream& stream);
  /// What the stream does between the mark before and this one is of `span`, and of `layer` unless it is of
  /// none. Attention is part of its layer; waiting is nobody's time.
  void mark(const Stream& stream, Span span, std::uint32_t layer = 0);
  /// Waits until the device has come to the last mark.
  PassTiming read(std::uint32_t layers) const;

 private:
  struct Mark {
    Event event;
    Span span = Span::other;
    std::uint32_t layer = 0;
  };
  void add(const Stream& stream, Span span, std::uint32_t layer);

  std::vector<Mark> marks_;  // kept from pass to pass; used_ of them are this one's
  std::size_t used_ = 0;
};

}  // namespace kvsim::model::cuda
