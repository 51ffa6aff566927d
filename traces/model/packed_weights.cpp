#include "traces/model/packed_weights.hpp"

#include "sim/base/half.hpp"

namespace kvsim::model {
namespace {

Elem scale_elem(const BlockForm& form) {
  return form.half ? Elem::f16 : Elem::f32;
}

}  // namespace

PackedWeights::PackedWeights(const GgufType& type, const std::byte* blocks, std::uint64_t rows,
                             std::uint64_t columns)
    : form_(block_form(type)),
      groups_(columns / form_.group),
      group_bytes_(2 * scale_bytes() + kRows * form_.group * form_.bits / 8),
      panel_bytes_(groups_ * group_bytes_),
      bytes_((rows + kRows - 1) / kRows * panel_bytes_) {
  const std::uint64_t row_blocks = columns / type.items;
  const std::size_t groups = type.items / form_.group, one = elem_bytes(scale_elem(form_));
  BlockParts parts;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::size_t lane = row % kRows;
    std::byte* to = bytes_.data() + row / kRows * panel_bytes_;
    for (std::uint64_t block = 0; block < row_blocks; ++block) {
      part_block(type, blocks + (row * row_blocks + block) * type.bytes, parts);
      for (std::size_t g = 0; g < groups; ++g, to += group_bytes_) {
        narrow(scale_elem(form_), parts.scales + g, 1, to + lane * one);
        narrow(scale_elem(form_), parts.addends + g, 1, to + scale_bytes() + lane * one);
        std::byte* numbers = to + 2 * scale_bytes() + lane;
        const std::int8_t* from = parts.numbers + g * form_.group;
        if (form_.bits == 8) {
          for (std::size_t k = 0; k < form_.group; ++k) numbers[k * kRows] = static_cast<std::byte>(from[k]);
          continue;
        }
        for (std::size_t k = 0; k < form_.group; k += 2)
          numbers[k / 2 * kRows] =
              static_cast<std::byte>((from[k] - form_.least) | (from[k + 1] - form_.least) << 4);
      }
    }
  }
}

void PackedWeights::row(std::uint64_t row, float* to) const {
  const std::size_t lane = row % kRows, one = elem_bytes(scale_elem(form_));
  const std::byte* group = panel(row / kRows);
  for (std::uint64_t g = 0; g < groups_; ++g, group += group_bytes_) {
    float scale, addend;
    widen(scale_elem(form_), group + lane * one, 1, &scale);
    widen(scale_elem(form_), group + scale_bytes() + lane * one, 1, &addend);
    const std::byte* numbers = group + 2 * scale_bytes() + lane;
    for (std::size_t k = 0; k < form_.group; ++k) {
      const auto at = static_cast<std::uint8_t>(numbers[(form_.bits == 8 ? k : k / 2) * kRows]);
      const int number =
          form_.bits == 8 ? static_cast<std::int8_t>(at) : (at >> k % 2 * 4 & 15) + form_.least;
      *to++ = scale * static_cast<float>(number) + addend;
    }
  }
}

}  // namespace kvsim::model
