#pragma once
/// The digest of a block of a tensor's rows: XXH3-64 with seed 0 (xxHash 0.8) over the block's stored bytes,
/// row after row. It costs a small part of reading the block, and unlike Fletcher32 it differs from 0 for a
/// block of zeros, so that a lost block is noticed.
#include <cstddef>
#include <cstdint>

namespace kvsim::trace {

std::uint64_t block_digest(const void* data, std::size_t bytes);

}  // namespace kvsim::trace
