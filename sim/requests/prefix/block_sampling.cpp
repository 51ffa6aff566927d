#include "sim/requests/prefix/block_sampling.hpp"

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::prefix {

requests::RequestTrace sampled_blocks(const requests::RequestTrace& trace, const PrefixTree& tree,
                                      double rate, std::uint64_t seed) {
  if (!(rate > 0 && rate <= 1))
    usage_error("a sample of blocks has a rate above 0 and at most 1", {}, "Take e.g. 0.01.");
  requests::RequestTrace out = trace;
  out.hashing = requests::Hashing::chained;
  out.generated = requests::Generated::none;
  out.blocks.clear();
  for (std::size_t r = 0; r < trace.requests.size(); ++r) {
    requests::Request& request = out.requests[r];
    request.first_block = out.blocks.size();
    request.n_final_blocks = 0;
    for (const Node node : tree.prompt(r))
      if (uniform01(combine({seed, node})) < rate) out.blocks.push_back(node);
    request.n_blocks = static_cast<std::uint32_t>(out.blocks.size() - request.first_block);
  }
  return out;
}

}  // namespace kvsim::prefix
