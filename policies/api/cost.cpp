#include "policies/api/cost.hpp"

#include <algorithm>

namespace kvsim::policy {

Work operator+(const Work& a, const Work& b) {
  return {a.flops + b.flops, a.ops + b.ops, a.bytes + b.bytes, a.launches + b.launches};
}

Work operator*(double times, const Work& work) {
  return {times * work.flops, times * work.ops, times * work.bytes, times * work.launches};
}

Metadata operator+(const Metadata& a, const Metadata& b) {
  return {a.lane_slot + b.lane_slot, a.layer_slot + b.layer_slot, a.lane + b.lane, a.layer + b.layer};
}

Cost combined(const Cost& eviction, const Cost& other) {
  Cost both = eviction;
  both.metadata = eviction.metadata + other.metadata;
  both.scratch_bytes = std::max(eviction.scratch_bytes, other.scratch_bytes);
  both.prompt_rows = std::max(eviction.prompt_rows, other.prompt_rows);
  both.decode_rows = eviction.decode_rows || other.decode_rows;
  both.prompt = eviction.prompt + other.prompt;
  both.step = eviction.step + other.step;
  both.step_slot = eviction.step_slot + other.step_slot;
  both.leaving = eviction.leaving + other.leaving;
  both.leaving_slot = eviction.leaving_slot + other.leaving_slot;
  both.read_number = eviction.read_number + other.read_number;
  both.extra_prefills = eviction.extra_prefills + other.extra_prefills;
  both.repeated_at_once = std::max(eviction.repeated_at_once, other.repeated_at_once);
  return both;
}

}  // namespace kvsim::policy
