#include "traces/format/stored_chunk.hpp"

#include <zlib.h>

#include <algorithm>

namespace kvsim::hdf5 {
namespace {

constexpr std::uint64_t kChecksumBytes = 4;  ///< of fletcher32, at the end

std::uint64_t inflated_bytes(std::span<const std::byte> stored, std::uint64_t most) {
  std::vector<Bytef> out(most + 1);
  auto bytes = static_cast<uLongf>(out.size());
  const int end = uncompress(out.data(), &bytes, reinterpret_cast<const Bytef*>(stored.data()),
                             static_cast<uLong>(stored.size()));
  return end == Z_OK ? bytes : end == Z_BUF_ERROR && bytes == out.size() ? most + 1 : 0;
}

}  // namespace

std::uint64_t unfiltered_bytes(std::span<const std::byte> stored, const std::vector<H5Z_filter_t>& filters,
                               std::uint32_t left_out, std::uint64_t most) {
  std::uint64_t bytes = stored.size();
  bool inflated = false;
  for (std::size_t i = filters.size(); i-- > 0;) {
    if ((left_out >> i & 1U) != 0) continue;
    if (filters[i] == H5Z_FILTER_FLETCHER32) {
      if (bytes < kChecksumBytes) return 0;
      bytes -= kChecksumBytes;
    } else if (filters[i] == H5Z_FILTER_DEFLATE && !inflated) {
      bytes = inflated_bytes(stored.first(bytes), most + kChecksumBytes * i);
      inflated = true;
    }
  }
  return std::min(bytes, most + 1);
}

}  // namespace kvsim::hdf5
