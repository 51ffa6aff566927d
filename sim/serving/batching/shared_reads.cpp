#include "sim/serving/batching/shared_reads.hpp"

#include <algorithm>
#include <vector>

namespace kvsim::serving {

SharedReads shared_reads(const requests::RequestTrace& trace, const prefix::PrefixTree& tree,
                         std::span<const std::uint32_t> running, std::uint64_t private_tokens) {
  std::vector<std::uint32_t> readers(tree.size(), 0);
  for (const std::uint32_t request : running)
    for (const prefix::Node node : tree.prompt(request)) ++readers[node];
  SharedReads out;
  std::vector<bool> counted(tree.size(), false);
  for (const std::uint32_t request : running) {
    const std::span<const prefix::Node> prompt = tree.prompt(request);
    std::uint64_t left = trace.requests[request].prompt_tokens;
    out.separate_tokens += left + private_tokens;
    std::uint32_t before = 0;
    bool alone = private_tokens > 0;
    for (const prefix::Node node : prompt) {
      const std::uint64_t here = std::min<std::uint64_t>(left, trace.block_tokens);
      left -= here;
      if (!counted[node]) out.shared_tokens += here;
      counted[node] = true;
      // What it reads alone is one kernel, with the tokens behind the prompt.
      if (readers[node] == 1)
        alone = true;
      else if (readers[node] != before)
        ++out.partials;
      before = readers[node];
    }
    out.shared_tokens += left + private_tokens;  // a tail without an id
    if (alone || left > 0) ++out.partials;
  }
  return out;
}

}  // namespace kvsim::serving
