#include "traces/format/chunk_filters.hpp"

#include <zlib.h>

#include <algorithm>
#include <type_traits>

#include "sim/base/error.hpp"

namespace kvsim::hdf5 {
namespace {

/// Sorts the bytes of elements by their place in the element (`Apart`), or puts them together again. Bytes
/// beyond the last whole element stay where they are.
template <bool Apart>
std::vector<std::byte> shuffled(std::span<const std::byte> data, std::size_t element_bytes) {
  std::vector<std::byte> out(data.begin(), data.end());
  const std::size_t n = element_bytes > 1 ? data.size() / element_bytes : 0;
  // A size known to the compiler makes this a few vector instructions.
  const auto move_bytes = [&](auto bytes) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t b = 0; b < bytes; ++b) {
        const std::size_t together = i * bytes + b, apart = b * n + i;
        out[Apart ? apart : together] = data[Apart ? together : apart];
      }
  };
  if (element_bytes == 2)
    move_bytes(std::integral_constant<std::size_t, 2>{});
  else if (element_bytes == 4)
    move_bytes(std::integral_constant<std::size_t, 4>{});
  else
    move_bytes(element_bytes);
  return out;
}

std::uint32_t folded(std::uint64_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint32_t>(sum);
}

/// The Fletcher checksum as HDF5 has it: sums modulo 65,535 of big-endian words of 16 bits, an odd byte being
/// the upper half of one. The sums of 2^23 words, 16 MiB, do not overflow.
std::uint32_t fletcher32(std::span<const std::byte> data) {
  std::uint64_t sum = 0, sum_of_sums = 0;
  const auto add = [&](std::byte upper, std::byte lower) {
    sum += static_cast<std::uint64_t>(upper) << 8 | static_cast<std::uint64_t>(lower);
    sum_of_sums += sum;
  };
  const std::size_t even = data.size() / 2 * 2;
  for (std::size_t i = 0; i < even; i += 2) add(data[i], data[i + 1]);
  if (even < data.size()) add(data[even], std::byte{0});
  return folded(sum_of_sums) << 16 | folded(sum);
}

/// Whether `stored`, four bytes in little-endian order, is the checksum. HDF5 before 1.6.3 stored it with the
/// bytes of each half exchanged, and its readers take both.
bool matches(std::uint32_t checksum, std::span<const std::byte> stored) {
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < kChecksumBytes; ++i) found |= static_cast<std::uint32_t>(stored[i]) << 8 * i;
  const std::uint32_t exchanged = (found & 0x00ff00ffU) << 8 | (found >> 8 & 0x00ff00ffU);
  return checksum == found || checksum == exchanged;
}

std::vector<std::byte> deflated(std::span<const std::byte> data, unsigned level) {
  uLongf bytes = compressBound(static_cast<uLong>(data.size()));
  std::vector<std::byte> out(bytes);
  if (compress2(reinterpret_cast<Bytef*>(out.data()), &bytes, reinterpret_cast<const Bytef*>(data.data()),
                static_cast<uLong>(data.size()), static_cast<int>(level)) != Z_OK)
    bug("zlib cannot compress a chunk");
  out.resize(bytes);
  return out;
}

/// Returns at most `most` bytes; nothing if the data would be more, or are not deflated data.
std::vector<std::byte> inflated(std::span<const std::byte> data, std::size_t most) {
  std::vector<std::byte> out(most);
  auto bytes = static_cast<uLongf>(most);
  const int end = uncompress(reinterpret_cast<Bytef*>(out.data()), &bytes,
                             reinterpret_cast<const Bytef*>(data.data()), static_cast<uLong>(data.size()));
  out.resize(end == Z_OK ? bytes : 0);
  return out;
}

}  // namespace

std::vector<std::byte> filtered(std::span<const std::byte> chunk, const ChunkFilters& filters,
                                std::size_t element_bytes) {
  std::vector<std::byte> out = filters.deflate > 0
                                   ? deflated(shuffled<true>(chunk, element_bytes), filters.deflate)
                                   : std::vector<std::byte>(chunk.begin(), chunk.end());
  if (!filters.checksum) return out;
  const std::uint32_t checksum = fletcher32(out);
  for (std::size_t i = 0; i < kChecksumBytes; ++i)
    out.push_back(static_cast<std::byte>(checksum >> 8 * i & 0xff));
  return out;
}

Unfiltered unfilter(std::span<const std::byte> stored, std::span<const StoredFilter> filters,
                    std::uint32_t left_out, bool verify, std::span<std::byte> out) {
  std::span<const std::byte> data = stored;
  std::vector<std::byte> made;
  for (std::size_t i = filters.size(); i-- > 0;) {
    if ((left_out >> i & 1U) != 0) continue;
    if (filters[i].kind == H5Z_FILTER_FLETCHER32) {
      if (data.size() < kChecksumBytes) return Unfiltered::wrong_size;
      const auto checksum = data.last(kChecksumBytes);
      data = data.first(data.size() - kChecksumBytes);
      if (verify && !matches(fletcher32(data), checksum)) return Unfiltered::wrong_checksum;
      continue;
    }
    // Filters before this one may have added a checksum each.
    std::vector<std::byte> next = filters[i].kind == H5Z_FILTER_DEFLATE
                                      ? inflated(data, out.size() + kChecksumBytes * i)
                                      : shuffled<false>(data, filters[i].element_bytes);
    made = std::move(next);
    data = made;
  }
  if (data.size() != out.size()) return Unfiltered::wrong_size;
  std::copy(data.begin(), data.end(), out.begin());
  return Unfiltered::sound;
}

}  // namespace kvsim::hdf5
