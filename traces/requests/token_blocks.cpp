#include "traces/requests/token_blocks.hpp"

#include <algorithm>

#include "sim/base/rng.hpp"

namespace kvsim::requests {

void append_ids(std::span<const std::uint64_t> tokens, std::uint32_t block_tokens, Hashing hashing, Tail tail,
                std::vector<BlockId>& out) {
  std::uint64_t id = key_of("blocks");
  while (!tokens.empty() && (tail == Tail::partial || tokens.size() >= block_tokens)) {
    const auto block = tokens.first(std::min<std::size_t>(block_tokens, tokens.size()));
    if (hashing == Hashing::content) id = key_of("blocks");
    for (const std::uint64_t token : block) id = mix(id ^ mix(token));
    id = mix(id ^ block.size());
    out.push_back(id);
    tokens = tokens.subspan(block.size());
  }
}

}  // namespace kvsim::requests
