#include "sim/requests/prefix/subtree_sampling.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::prefix {

std::uint64_t SubtreeSample::capacity(std::uint64_t of) const {
  const std::uint64_t held = std::min(of, trunk);
  const auto rest = static_cast<std::uint64_t>(std::llround(rate * static_cast<double>(of - held)));
  return std::max<std::uint64_t>(held + rest, 1);
}

SubtreeSample sampled_subtrees(const requests::RequestTrace& trace, const PrefixTree& tree, double rate,
                               std::uint64_t seed, double popular) {
  if (!(rate > 0 && rate <= 1))
    usage_error("a sample of subtrees has a rate above 0 and at most 1", {}, "Take e.g. 0.1.");
  std::vector<std::uint32_t> requests_of(tree.size(), 0);
  for (std::size_t r = 0; r < tree.requests(); ++r)
    for (const Node node : tree.prompt(r)) ++requests_of[node];
  const double most = popular * static_cast<double>(tree.requests());
  const auto in_trunk = [&](Node node) { return requests_of[node] > most; };

  SubtreeSample out{.rate = rate};
  out.trunk = static_cast<std::uint64_t>(
      std::count_if(requests_of.begin(), requests_of.end(), [&](std::uint32_t n) { return n > most; }));
  out.trace = {.format = trace.format,
               .block_tokens = trace.block_tokens,
               .hashing = trace.hashing,
               .tail = trace.tail,
               .generated = trace.generated,
               .sessions = trace.sessions,
               .categories = trace.categories};
  std::vector<std::uint32_t> numbers(trace.requests.size(), requests::kNone);  // in the sample
  for (std::size_t r = 0; r < trace.requests.size(); ++r) {
    if (trace.requests[r].after_parent)
      usage_error("requests that arrive after their parents cannot be sampled", {},
                  "Sample a trace that has the time of every arrival.");
    const std::span<const Node> prompt = tree.prompt(r);
    const auto first = std::find_if_not(prompt.begin(), prompt.end(), in_trunk);
    const std::uint64_t unit = first == prompt.end() ? combine({1, r}) : combine({0, *first});
    if (uniform01(combine({seed, unit})) >= rate) continue;
    requests::Request request = trace.requests[r];
    const auto copy = [&](std::span<const requests::BlockId> blocks) {
      const std::uint64_t at = out.trace.blocks.size();
      out.trace.blocks.insert(out.trace.blocks.end(), blocks.begin(), blocks.end());
      return at;
    };
    if (request.n_final_blocks > 0) request.first_final_block = copy(trace.final_blocks(request));
    request.first_block = copy(trace.prompt_blocks(trace.requests[r]));
    if (request.parent != requests::kNone) request.parent = numbers[request.parent];
    numbers[r] = static_cast<std::uint32_t>(out.trace.requests.size());
    out.trace.requests.push_back(request);
  }
  return out;
}

}  // namespace kvsim::prefix
