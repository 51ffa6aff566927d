#pragma once
/// Ids of blocks from the tokens themselves, for traces that have these.
#include <span>

#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

/// Appends the ids of a prompt's blocks to `out`: an id is a digest of 64 bits of the block's tokens and,
/// with Hashing::chained, all before them, so that equal ids are equal blocks, or prefixes, but for one
/// chance in 2^64 per pair. With Tail::partial the rest is a block, too.
void append_ids(std::span<const std::uint64_t> tokens, std::uint32_t block_tokens, Hashing hashing, Tail tail,
                std::vector<BlockId>& out);

}  // namespace kvsim::requests
