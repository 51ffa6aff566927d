#pragma once
/// A trace file that passed the structural checks. Beyond the Source interface it gives `trace check` the
/// stored datasets.
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "traces/format/hdf5_input.hpp"
#include "traces/format/reader.hpp"

namespace kvsim::trace {

// Rows of a stored tensor, [heads, rows, dim] or [heads, rows], verified against the digests of their blocks
// while they are read.

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

/// Attention rows of one layer, packed: row i holds keys(i) probabilities per query head.
struct AttentionRows {
  StoredRows p;  ///< [n_q_heads, ptr.back()], f32 or bf16
  std::vector<std::uint64_t> first_key, ptr;

  std::uint64_t keys(std::uint64_t row) const { return ptr[row + 1] - ptr[row]; }
  Elem elem() const { return p.dataset().type() == hdf5::Type::f32 ? Elem::f32 : Elem::bf16; }
  /// Reads a row of a query head, widened, into `out`, which takes keys(row) numbers.
  void read(std::uint64_t head, std::uint64_t row, float* out) const;
};

/// Column statistics of one layer, [n_q_heads, counted_tokens] each, f32.
struct ColumnDatasets {
  StoredRows sum, sum_squares;
};

class FileTrace final : public Source {
 public:
  FileTrace(const std::string& path, const ReadOptions& options);

  const Header& header() const override { return header_; }
  std::string name() const override { return path_; }
  std::string content_sha256() const override { return content_sha256_; }
  void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
            std::uint64_t n_rows, std::span<float> out) const override;
  void will_read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
                 std::uint64_t n_rows) const override;
  void read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                           std::span<float> out) const override;

  void read_column_statistics(std::uint32_t layer, std::uint32_t query_head, std::span<float> sum,
                              std::span<float> sum_squares) const override;

  bool complete() const { return complete_; }
  std::uint64_t file_bytes() const { return file_.bytes(); }
  void require_unchanged() const override { file_.require_unchanged(); }
  /// Whether the digests of blocks are stored, so that every read is verified.
  bool has_block_digests() const { return has_block_digests_; }
  /// Keys, values and, if there are any, queries.
  std::span<const Tensor> stored_tensors() const;
  /// Digests of the lists for these of layer 0, of layer 1, ...; empty if there are none.
  std::vector<std::string> block_list_digests() const;
  const StoredRows& stored(Tensor tensor, std::uint32_t layer) const {
    return tensors_[layer][static_cast<std::size_t>(tensor)];
  }
  /// One per layer, or empty: [n_q_heads, v_head_dim, hidden_size], elements header().output_elem.
  const std::vector<StoredRows>& output_weights() const { return output_weights_; }
  /// One per layer, or empty.
  const std::vector<AttentionRows>& attention() const { return attention_; }
  /// One per layer, or empty.
  const std::vector<ColumnDatasets>& columns() const { return columns_; }
  /// Stored digests of the segments' paths, [segments * 32].
  const std::vector<std::uint8_t>& segment_sha256() const { return segment_sha256_; }

 private:
  void read_root();
  void read_model();
  void read_rotations();
  void read_capture();
  void read_tokens();
  void read_segments();
  void read_passes();
  void read_text();
  void read_layers();
  void read_query_rows(const hdf5::InputGroup& group, std::uint32_t layer);
  void read_output_weights(const hdf5::InputGroup& group, std::uint32_t layer);
  void read_columns(const hdf5::InputGroup& group, std::uint32_t layer);
  void read_attention_rows(const hdf5::InputGroup& group, std::uint32_t layer);
  void check_attention_rows(const AttentionRows& rows, const hdf5::InputGroup& group) const;
  /// With the digests of its blocks, called `name`, where the file has them.
  StoredRows with_digests(hdf5::InputDataset dataset, const hdf5::InputGroup& layer, const char* name);
  void check_content_digest() const;
  /// A one-dimensional dataset, its bytes counted against the budget before they are allocated.
  template <typename Value>
  std::vector<Value> list(const hdf5::InputGroup& group, const char* name, std::uint64_t length,
                          const char* reason);
  /// One number of every item, from such a list.
  template <typename Value, typename Item>
  void take_column(const hdf5::InputGroup& group, const char* name, std::uint64_t length, const char* reason,
                   std::vector<Item>& items, Value Item::*member);
  template <typename Value>
  std::vector<Value> take(const hdf5::InputDataset& dataset);

  std::string path_;
  hdf5::InputFile file_;
  std::uint64_t budget_;  ///< bytes that lists may still take
  Header header_;
  std::uint64_t n_tokens_ = 0, n_segments_ = 0, n_passes_ = 0;
  bool complete_ = false, has_block_digests_ = false;
  std::uint64_t needs_ = 0;  ///< schema::Needed
  std::string content_sha256_;
  std::vector<std::uint8_t> segment_sha256_;
  std::vector<std::array<StoredRows, 3>> tensors_;  ///< per layer, by Tensor
  std::vector<StoredRows> output_weights_;
  std::vector<AttentionRows> attention_;
  std::vector<ColumnDatasets> columns_;
};

}  // namespace kvsim::trace
