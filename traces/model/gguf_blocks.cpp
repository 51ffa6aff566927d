#include "traces/model/gguf_blocks.hpp"

#include <cmath>
#include <cstring>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/half.hpp"

namespace kvsim::model {
namespace {

using Block = const std::uint8_t*;

float half_at(Block at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return widen_f16(bits);
}
std::uint32_t bits_at(Block at) {
  std::uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
float floated(int value) {
  return static_cast<float>(value);
}
int signed_byte(std::uint8_t bits) {
  return static_cast<std::int8_t>(bits);
}

// Blocks of 32: a scale, for some types a minimum, and 32 numbers. Number i and number i + 16 share a byte,
// the first its low half; a fifth bit is bit i of 32.

/// Without a minimum the addend is -0, which changes no float, not even -0.
void set_group(BlockParts& to, int group, float scale, float addend = -0.0F) {
  to.scales[group] = scale;
  to.addends[group] = addend;
}

void set_halves(Block numbers, int less, BlockParts& to) {
  for (int i = 0; i < 16; ++i) {
    to.numbers[i] = static_cast<std::int8_t>((numbers[i] & 15) - less);
    to.numbers[i + 16] = static_cast<std::int8_t>((numbers[i] >> 4) - less);
  }
}

void part_q4_0(Block block, BlockParts& to) {
  set_group(to, 0, half_at(block));
  set_halves(block + 2, 8, to);
}

void part_q4_1(Block block, BlockParts& to) {
  set_group(to, 0, half_at(block), half_at(block + 2));
  set_halves(block + 4, 0, to);
}

void add_fifth_bits(std::uint32_t fifth, BlockParts& to) {
  for (int i = 0; i < 32; ++i)
    to.numbers[i] = static_cast<std::int8_t>(to.numbers[i] + (fifth >> i & 1U) * 16);
}

void part_q5_0(Block block, BlockParts& to) {
  set_group(to, 0, half_at(block));
  set_halves(block + 6, 16, to);
  add_fifth_bits(bits_at(block + 2), to);
}

void part_q5_1(Block block, BlockParts& to) {
  set_group(to, 0, half_at(block), half_at(block + 2));
  set_halves(block + 8, 0, to);
  add_fifth_bits(bits_at(block + 4), to);
}

void part_q8_0(Block block, BlockParts& to) {
  set_group(to, 0, half_at(block));
  std::memcpy(to.numbers, block + 2, 32);
}

/// Numbers of one bit of fraction (e2m1), doubled, and half the power of two that the first byte stands for.
void part_mxfp4(Block block, BlockParts& to) {
  static constexpr std::int8_t kDoubled[]{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  set_group(to, 0, std::ldexp(1.0F, block[0] - 128));
  set_halves(block + 1, 0, to);
  for (int i = 0; i < 32; ++i) to.numbers[i] = kDoubled[to.numbers[i]];
}

// Blocks of 256: a scale and a minimum for all, and for each of eight groups of 32 a factor on either.

/// The factors of group g have six bits each, in twelve bytes: those of the first four groups are the low six
/// bits of a byte, those of the others the halves of a byte and the two bits that the first ones leave.
void set_factors(Block block, int g, BlockParts& to) {
  const Block packed = block + 4;
  const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
  const int least = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
  set_group(to, g, half_at(block) * floated(scale), -(half_at(block + 2) * floated(least)));
}

void part_q4_k(Block block, BlockParts& to) {
  for (int g = 0; g < 8; ++g) {
    set_factors(block, g, to);
    const Block numbers = block + 16 + g / 2 * 32;  // two groups share 32 bytes
    for (int i = 0; i < 32; ++i)
      to.numbers[g * 32 + i] = static_cast<std::int8_t>(numbers[i] >> g % 2 * 4 & 15);
  }
}

void part_q5_k(Block block, BlockParts& to) {
  for (int g = 0; g < 8; ++g) {
    set_factors(block, g, to);
    const Block fifth = block + 16, numbers = block + 48 + g / 2 * 32;
    for (int i = 0; i < 32; ++i)
      to.numbers[g * 32 + i] =
          static_cast<std::int8_t>((numbers[i] >> g % 2 * 4 & 15) | (fifth[i] >> g & 1) << 4);
  }
}

/// Sixteen groups of 16 with signed factors; of each half of 128 numbers, number 32 k + i has its low four
/// bits in byte i + k % 2 * 32 and its high two in byte i of another 32.
void part_q6_k(Block block, BlockParts& to) {
  const float scale = half_at(block + 208);
  for (int g = 0; g < 16; ++g) set_group(to, g, scale * floated(signed_byte(block[192 + g])));
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 4; ++k) {
      const Block low = block + half * 64 + k % 2 * 32, high = block + 128 + half * 32;
      for (int i = 0; i < 32; ++i) {
        const int number = (low[i] >> k / 2 * 4 & 15) | (high[i] >> 2 * k & 3) << 4;
        to.numbers[half * 128 + k * 32 + i] = static_cast<std::int8_t>(number - 32);
      }
    }
  }
}

struct Known {
  std::string_view name;
  void (*part)(Block, BlockParts&);
  BlockForm form;
};
constexpr Known kKnown[]{{"Q4_0", part_q4_0, {32, 4, -8, true}},  {"Q4_1", part_q4_1, {32, 4, 0, true}},
                         {"Q5_0", part_q5_0, {32, 8, 0, true}},   {"Q5_1", part_q5_1, {32, 8, 0, true}},
                         {"Q8_0", part_q8_0, {32, 8, 0, true}},   {"Q4_K", part_q4_k, {32, 4, 0, false}},
                         {"Q5_K", part_q5_k, {32, 8, 0, false}},  {"Q6_K", part_q6_k, {16, 8, 0, false}},
                         {"MXFP4", part_mxfp4, {32, 8, 0, false}}};

const Known* find_known(std::string_view name) {
  for (const Known& known : kKnown)
    if (known.name == name) return &known;
  return nullptr;
}

const Known& known_type(const GgufType& type) {
  const Known* known = find_known(type.name);
  if (known == nullptr) bug("a type that is not known", "widening a GGUF file");
  return *known;
}

std::optional<Elem> plain_type(std::string_view name) {
  if (name == "F32") return Elem::f32;
  if (name == "F16") return Elem::f16;
  if (name == "BF16") return Elem::bf16;
  return {};
}

}  // namespace

bool can_widen(const GgufType& type) {
  return plain_type(type.name).has_value() || find_known(type.name) != nullptr;
}

BlockForm block_form(const GgufType& type) {
  return known_type(type).form;
}

void part_block(const GgufType& type, const std::byte* block, BlockParts& to) {
  known_type(type).part(reinterpret_cast<Block>(block), to);
}

void widen_blocks(const GgufType& type, const std::byte* from, std::uint64_t blocks, float* to) {
  if (const std::optional<Elem> plain = plain_type(type.name)) return widen(*plain, from, blocks, to);
  const Known& known = known_type(type);
  BlockParts parts;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    known.part(reinterpret_cast<Block>(from + i * type.bytes), parts);
    for (std::uint32_t k = 0; k < type.items; ++k)
      *to++ = parts.scales[k / known.form.group] * floated(parts.numbers[k]) +
              parts.addends[k / known.form.group];
  }
}

}  // namespace kvsim::model
