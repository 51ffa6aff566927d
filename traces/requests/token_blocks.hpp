#pragma once
/// Ids of blocks from the tokens themselves, for traces that have these.
#include <algorithm>
#include <span>

#include "sim/base/rng.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

/// Appends the ids of a prompt's blocks to `out`: an id is a digest of 64 bits of the block's tokens and,
/// with Hashing::chained, all before them, so that equal ids are equal blocks, or prefixes, but for one
/// chance in 2^64 per pair. With Tail::partial the rest is a block, too.
inline void append_ids(std::span<const std::uint64_t> tokens, std::uint32_t block_tokens, Hashing hashing,
                       Tail tail, std::vector<BlockId>& out) {
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
