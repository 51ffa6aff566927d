#pragma once
/// A quantised matrix in the order in which products on the processor read it: sixteen rows side by side, so
/// that registers hold weights of different outputs, and a weight is a product and a sum away from its
/// number.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "traces/model/gguf_blocks.hpp"

namespace kvsim::model {

class PackedWeights {
 public:
  static constexpr std::size_t kRows = 16;

  /// Packs blocks [rows, columns / type.items] of a quantised type that can be widened.
  PackedWeights(const GgufType& type, const std::byte* blocks, std::uint64_t rows, std::uint64_t columns);

  const BlockForm& form() const { return form_; }
  /// Rows 16 panel, 16 panel + 1, ...; those beyond the last are zero. For each group of columns: a scale of
  /// every row and an addend of every row, floats of 16 or 32 bits, then their numbers, column by column. Of
  /// two columns in 4 bits a row's numbers share a byte, less form().least, the first its low half.
  const std::byte* panel(std::size_t panel) const { return bytes_.data() + panel * panel_bytes_; }
  std::size_t group_bytes() const { return group_bytes_; }
  /// Bytes from the scales to the addends, and from these to the numbers.
  std::size_t scale_bytes() const { return kRows * (form_.half ? 2 : 4); }
  /// One row as floats: those of widen_blocks(), bit for bit.
  void row(std::uint64_t row, float* to) const;

 private:
  BlockForm form_;
  std::uint64_t groups_;  // of a row
  std::size_t group_bytes_, panel_bytes_;
  std::vector<std::byte> bytes_;
};

}  // namespace kvsim::model
