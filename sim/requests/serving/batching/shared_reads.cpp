#include "sim/requests/serving/batching/shared_reads.hpp"

#include <algorithm>

namespace kvsim::serving {

SharedReads SharedReader::count(std::span<const std::uint32_t> running, std::uint64_t private_tokens) {
  for (const std::uint32_t request : running)
    for (const prefix::Node node : tree_.prompt(request)) ++readers_[node];
  SharedReads out;
  for (const std::uint32_t request : running) {
    std::uint64_t left = trace_.requests[request].prompt_tokens;
    out.separate_tokens += left + private_tokens;
    std::uint32_t before = 0;
    bool alone = private_tokens > 0;
    std::uint64_t levels = 0;
    for (const prefix::Node node : tree_.prompt(request)) {
      left -= std::min<std::uint64_t>(left, trace_.block_tokens);
      const std::uint32_t readers = readers_[node];
      // What it reads alone is one kernel, with the tokens behind the prompt.
      if (readers == 1)
        alone = true;
      else if (readers != before)
        ++levels;
      before = readers;
    }
    if (alone || left > 0) ++levels;
    out.shared_tokens += left + private_tokens;  // left: a tail without an id
    out.partials += levels > 1 ? levels : 0;
    out.levels = std::max(out.levels, levels);
  }
  // Every block counts once, and its readers are forgotten.
  for (const std::uint32_t request : running) {
    std::uint64_t left = trace_.requests[request].prompt_tokens;
    for (const prefix::Node node : tree_.prompt(request)) {
      const std::uint64_t here = std::min<std::uint64_t>(left, trace_.block_tokens);
      left -= here;
      if (readers_[node] > 0) out.shared_tokens += here;
      readers_[node] = 0;
    }
  }
  return out;
}

}  // namespace kvsim::serving
