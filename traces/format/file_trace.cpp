#include "traces/format/file_trace.hpp"

#include <algorithm>
#include <cstring>

#include "sim/base/error.hpp"
#include "traces/format/block_digest.hpp"

namespace kvsim::trace {
namespace {

constexpr std::uint64_t kMaxBlockBytes = 16ULL << 20;

}  // namespace

StoredRows::StoredRows(hdf5::InputDataset dataset) : dataset_(std::move(dataset)) {}

StoredRows::StoredRows(hdf5::InputDataset dataset, BlockDigests digests)
    : dataset_(std::move(dataset)), digests_(std::move(digests)) {
  if (digests_.rows == 0 ||
      std::min(digests_.rows, rows()) > kMaxBlockBytes / std::max<std::uint64_t>(row_bytes(), 1))
    input_error("has digests of blocks that are empty or larger than 16 MiB", dataset_.where());
  const std::uint64_t expected = dataset_.dims()[0] * blocks();
  if (digests_.values.size() != expected)
    input_error("has " + std::to_string(digests_.values.size()) + " digests of its " +
                    std::to_string(expected) + " blocks",
                dataset_.where());
  verified_ = std::make_unique<std::atomic<bool>[]>(expected);
}

std::uint64_t StoredRows::row_bytes() const {
  const std::uint64_t dim = dataset_.dims().size() > 2 ? dataset_.dims()[2] : 1;
  return dim * hdf5::type_bytes(dataset_.type());
}

StoredRows::Block StoredRows::block_at(std::uint64_t row) const {
  const std::uint64_t index = row / digests_.rows, begin = index * digests_.rows;
  return {index, begin, begin + std::min(digests_.rows, rows() - begin)};
}

StoredRows::Rows StoredRows::rows_of(std::uint64_t head, std::uint64_t first, std::uint64_t n) const {
  Rows out{{head, first}, {1, n}};
  if (dataset_.dims().size() > 2) {
    out.start.push_back(0);
    out.count.push_back(dataset_.dims()[2]);
  }
  return out;
}

void StoredRows::read_stored(std::uint64_t head, std::uint64_t first, std::uint64_t n, void* out,
                             hdf5::Checksum checksum) const {
  const Rows block = rows_of(head, first, n);
  dataset_.read(block.start, block.count, out, checksum);
}

void StoredRows::will_read(std::uint64_t head, std::uint64_t first, std::uint64_t n) const {
  const Rows block = rows_of(head, first, n);
  dataset_.will_read(block.start, block.count);
}

void StoredRows::read_block(std::uint64_t head, const Block& block, void* out) const {
  const std::uint64_t n = block.end - block.begin, at = head * blocks() + block.index;
  read_stored(head, block.begin, n, out, hdf5::Checksum::ignored);  // the digest says more
  if (block_digest(out, n * row_bytes()) != digests_.values[at])
    input_error("block " + std::to_string(block.index) + " of head " + std::to_string(head) + " (rows " +
                    std::to_string(block.begin) + " to " + std::to_string(block.end - 1) +
                    ") is damaged: it does not match its digest",
                dataset_.where(), "Capture the trace again, or take a sound copy of it.");
  verified_[at].store(true, std::memory_order_relaxed);
}

void StoredRows::read(std::uint64_t head, std::uint64_t first, std::uint64_t n, void* out) const {
  if (head >= dataset_.dims()[0] || first > rows() || n > rows() - first)
    bug("read beyond the end", dataset_.where());
  if (!has_digests()) return read_stored(head, first, n, out, hdf5::Checksum::verified);
  auto* to = static_cast<std::byte*>(out);
  std::vector<std::byte> whole;
  for (std::uint64_t row = first; row < first + n;) {
    const Block block = block_at(row);
    const std::uint64_t end = std::min(block.end, first + n);
    if (row == block.begin && end == block.end) {
      read_block(head, block, to);
    } else if (verified_[head * blocks() + block.index].load(std::memory_order_relaxed)) {
      read_stored(head, row, end - row, to, hdf5::Checksum::verified);
    } else {
      whole.resize((block.end - block.begin) * row_bytes());
      read_block(head, block, whole.data());
      std::memcpy(to, whole.data() + (row - block.begin) * row_bytes(), (end - row) * row_bytes());
    }
    to += (end - row) * row_bytes();
    row = end;
  }
}

}  // namespace kvsim::trace
