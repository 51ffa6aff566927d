#pragma once
/// Requests for tests, made of their numbers alone.
#include <cstdint>
#include <vector>

#include "sim/base/rng.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

struct Made {
  double time_s = 0;
  std::uint32_t prompt = 0, generated = 0;
  std::vector<requests::BlockId> blocks{};
  std::uint32_t parent = requests::kNone;
  std::vector<requests::BlockId> final_blocks{};
};

/// `block_tokens` 0: a trace without blocks.
inline requests::RequestTrace made_trace(const std::vector<Made>& made, std::uint32_t block_tokens = 0) {
  requests::RequestTrace trace;
  trace.format = "made";
  trace.block_tokens = block_tokens;
  for (const Made& from : made) {
    requests::Request request;
    request.time_s = from.time_s;
    request.prompt_tokens = from.prompt;
    request.generated_tokens = from.generated;
    request.parent = from.parent;
    request.after_parent = from.parent != requests::kNone;
    request.first_block = trace.blocks.size();
    request.n_blocks = static_cast<std::uint32_t>(from.blocks.size());
    trace.blocks.insert(trace.blocks.end(), from.blocks.begin(), from.blocks.end());
    if (!from.final_blocks.empty()) {
      trace.generated = requests::Generated::given;
      request.first_final_block = trace.blocks.size();
      request.n_final_blocks = static_cast<std::uint32_t>(from.final_blocks.size());
      trace.blocks.insert(trace.blocks.end(), from.final_blocks.begin(), from.final_blocks.end());
    }
    trace.requests.push_back(request);
  }
  return trace;
}

/// A whole number from 0 to n - 1.
inline std::uint64_t pick(std::uint64_t key, std::uint64_t n) {
  return static_cast<std::uint64_t>(uniform01(key) * static_cast<double>(n));
}

}  // namespace kvsim::serving
