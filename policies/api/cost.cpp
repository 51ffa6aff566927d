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

Cost combined(const Cost& eviction, const Cost& allocation) {
  Cost both = eviction;
  both.metadata = eviction.metadata + allocation.metadata;
  both.scratch_bytes = std::max(eviction.scratch_bytes, allocation.scratch_bytes);
  both.prompt_rows = std::max(eviction.prompt_rows, allocation.prompt_rows);
  both.decode_rows = eviction.decode_rows || allocation.decode_rows;
  both.prompt = eviction.prompt + allocation.prompt;
  both.step = eviction.step + allocation.step;
  both.step_slot = eviction.step_slot + allocation.step_slot;
  both.extra_prefills = eviction.extra_prefills + allocation.extra_prefills;
  return both;
}

}  // namespace kvsim::policy
