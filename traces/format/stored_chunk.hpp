#pragma once
/// How many bytes a stored chunk becomes when its filters are undone. libhdf5 1.10 does not ask: it copies a
/// whole chunk out of whatever the filters leave, and reads past the end of a chunk that holds less.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "traces/format/hdf5_file.hpp"

namespace kvsim::hdf5 {

/// `filters` in the order in which they were applied: deflate, shuffle, fletcher32. Bit i of `left_out` says
/// that filter i was not applied to this chunk. Returns at most `most` + 1, however much the chunk would
/// become; 0 for a chunk that is no deflated data, or less than a checksum.
std::uint64_t unfiltered_bytes(std::span<const std::byte> stored, const std::vector<H5Z_filter_t>& filters,
                               std::uint32_t left_out, std::uint64_t most);

}  // namespace kvsim::hdf5
