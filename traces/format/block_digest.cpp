#include "traces/format/block_digest.hpp"

// Compiled here rather than linked, so that it uses the instructions this build is for.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvsim::trace {

std::uint64_t block_digest(const void* data, std::size_t bytes) {
  return XXH3_64bits(data, bytes);
}

}  // namespace kvsim::trace
