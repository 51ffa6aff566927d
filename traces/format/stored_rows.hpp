#pragma once
/// Rows of a stored tensor, [heads, rows, dim] or [heads, rows], verified against the digests of their blocks
/// while they are read.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "traces/format/hdf5_input.hpp"

namespace kvsim::trace {

/// Digests of the blocks of every head: block b holds rows [b * rows, (b + 1) * rows) of a head, the last one
/// those that remain.
struct BlockDigests {
  std::uint64_t rows = 0;             ///< of a block
  std::vector<std::uint64_t> values;  ///< [heads, blocks], block_digest.hpp
  std::string sha256;                 ///< of the list of values, as stored
};

class StoredRows {
 public:
  StoredRows() = default;
  /// A dataset without digests: what libhdf5 checks is all that is known of it.
  explicit StoredRows(hdf5::InputDataset dataset);
  /// Throws Error(input) if the blocks do not fit the dataset or are larger than 16 MiB.
  StoredRows(hdf5::InputDataset dataset, BlockDigests digests);

  const hdf5::InputDataset& dataset() const { return dataset_; }
  const BlockDigests& digests() const { return digests_; }
  bool has_digests() const { return digests_.rows > 0; }
  /// Rows of a block, of which reads are best made; of a dataset without digests, `otherwise`.
  std::uint64_t block_rows(std::uint64_t otherwise) const {
    return has_digests() ? digests_.rows : otherwise;
  }

  /// Reads rows [first, first + n) of a head into `out`, in stored elements. A block that is read in part is
  /// read whole once, to be verified. May be called from any thread. Throws Error(input) naming file, dataset
  /// and block when one is damaged.
  void read(std::uint64_t head, std::uint64_t first, std::uint64_t n, void* out) const;
  /// As InputDataset::will_read().
  void will_read(std::uint64_t head, std::uint64_t first, std::uint64_t n) const;

 private:
  struct Block {
    std::uint64_t index, begin, end;  ///< number within the head, rows
  };
  std::uint64_t rows() const { return dataset_.dims()[1]; }
  std::uint64_t row_bytes() const;
  std::uint64_t blocks() const { return (rows() + digests_.rows - 1) / digests_.rows; }
  Block block_at(std::uint64_t row) const;
  /// Rows of a head as a block of the dataset: its first element, and its elements along each axis.
  struct Rows {
    std::vector<std::uint64_t> start, count;
  };
  Rows rows_of(std::uint64_t head, std::uint64_t first, std::uint64_t n) const;
  void read_stored(std::uint64_t head, std::uint64_t first, std::uint64_t n, void* out,
                   hdf5::Checksum checksum) const;
  void read_block(std::uint64_t head, const Block& block, void* out) const;

  hdf5::InputDataset dataset_;
  BlockDigests digests_;
  std::unique_ptr<std::atomic<bool>[]> verified_;  ///< [heads, blocks]
};

}  // namespace kvsim::trace
