#pragma once
/// The checksums of HDF5 metadata, made to fit after a file was changed, so that the change gets past them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace kvsim::test {

/// Bob Jenkins' lookup3, the checksum of HDF5 metadata.
inline std::uint32_t metadata_checksum(const char* data, std::size_t length) {
  const auto rotate = [](std::uint32_t x, int k) { return x << k | x >> (32 - k); };
  std::uint32_t a = 0xdeadbeefU + static_cast<std::uint32_t>(length), b = a, c = a;
  std::array<unsigned char, 12> block{};
  while (length > 0) {
    const std::size_t n = std::min<std::size_t>(length, 12);
    block.fill(0);
    std::memcpy(block.data(), data, n);
    std::array<std::uint32_t, 3> word{};
    std::memcpy(word.data(), block.data(), 12);
    a += word[0], b += word[1], c += word[2];
    data += n;
    length -= n;
    if (length > 0) {
      a -= c, a ^= rotate(c, 4), c += b;
      b -= a, b ^= rotate(a, 6), a += c;
      c -= b, c ^= rotate(b, 8), b += a;
      a -= c, a ^= rotate(c, 16), c += b;
      b -= a, b ^= rotate(a, 19), a += c;
      c -= b, c ^= rotate(b, 4), b += a;
    } else {
      c ^= b, c -= rotate(b, 14);
      a ^= c, a -= rotate(c, 11);
      b ^= a, b -= rotate(a, 25);
      c ^= b, c -= rotate(b, 16);
      a ^= c, a -= rotate(c, 4);
      b ^= a, b -= rotate(a, 14);
      c ^= b, c -= rotate(b, 24);
    }
  }
  return c;
}

/// A piece of metadata that ends with its own checksum.
struct Sealed {
  std::size_t begin, end;  ///< end: first byte after the checksum
};

/// The superblock, if it has a checksum, and the object headers, found by their signatures.
inline std::vector<Sealed> sealed_pieces(std::string_view file) {
  std::vector<Sealed> out;
  if (file.size() >= 48 && (file[8] == 2 || file[8] == 3)) out.push_back({0, 48});
  for (std::size_t at = file.find("OHDR"); at != std::string_view::npos; at = file.find("OHDR", at + 4)) {
    if (at + 6 > file.size()) break;
    const auto flags = static_cast<unsigned char>(file[at + 5]);
    std::size_t cursor = at + 6 + ((flags & 0x20) != 0 ? 16 : 0) + ((flags & 0x10) != 0 ? 4 : 0);
    const std::size_t width = std::size_t{1} << (flags & 3);
    if (cursor + width > file.size()) continue;
    std::uint64_t size = 0;
    std::memcpy(&size, file.data() + cursor, width);
    cursor += width;
    if (size > file.size() || cursor + size + 4 > file.size()) continue;
    out.push_back({at, cursor + size + 4});
  }
  return out;
}

/// Makes every checksum fit.
inline void seal_hdf5(std::span<char> file) {
  for (const Sealed& piece : sealed_pieces({file.data(), file.size()})) {
    const std::uint32_t sum = metadata_checksum(file.data() + piece.begin, piece.end - 4 - piece.begin);
    std::memcpy(file.data() + piece.end - 4, &sum, 4);
  }
}

}  // namespace kvsim::test
