#pragma once
/// The filters of stored chunks, done and undone without libhdf5. Its own work under one lock for all
/// threads, and those of 1.10 do not ask how many bytes a chunk becomes: they copy a whole chunk out of
/// whatever the filters leave, and read past the end of one that holds less.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// What becomes of a chunk before it is stored.
struct ChunkFilters {
  bool checksum = false;  ///< fletcher32
  unsigned deflate = 0;   ///< level of zlib behind a shuffle of bytes, 1 to 9; 0: stored as it is
};

/// Returns a chunk of elements of `element_bytes` as it is stored.
std::vector<std::byte> filtered(std::span<const std::byte> chunk, const ChunkFilters& filters,
                                std::size_t element_bytes);

/// A filter of a dataset: deflate, shuffle or fletcher32.
struct StoredFilter {
  H5Z_filter_t kind = 0;
  std::size_t element_bytes = 1;  ///< of a shuffle
};

inline constexpr std::size_t kChecksumBytes = 4;  ///< of fletcher32, after the data

enum class Unfiltered : std::uint8_t { sound, wrong_size, wrong_checksum };

/// Undoes the filters of a chunk, which were applied in the order of `filters`, and writes the chunk to
/// `out`, which is exactly as large. Bit i of `left_out` says that filter i was not applied to this chunk.
/// `verify`: whether checksums are compared. Takes no more memory than three chunks, however much the stored
/// one claims to become.
Unfiltered unfilter(std::span<const std::byte> stored, std::span<const StoredFilter> filters,
                    std::uint32_t left_out, bool verify, std::span<std::byte> out);

}  // namespace kvsim::hdf5
