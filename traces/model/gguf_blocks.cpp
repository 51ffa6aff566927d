#include "traces/model/gguf_blocks.hpp"

#include <cstring>

#include "sim/base/error.hpp"
#include "sim/base/half.hpp"

namespace kvsim::model {
namespace {

using Block = const std::uint8_t*;
using Widen = void (*)(Block, float*);

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

void widen_q4_0(Block block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * floated((block[2 + i] & 15) - 8);
    to[i + 16] = scale * floated((block[2 + i] >> 4) - 8);
  }
}

void widen_q4_1(Block block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  for (int i = 0; i < 16; ++i) {
    to[i] = scale * floated(block[4 + i] & 15) + least;
    to[i + 16] = scale * floated(block[4 + i] >> 4) + least;
  }
}

/// The five bits of number i.
int five_bits(Block numbers, std::uint32_t fifth, int i) {
  const int low = i < 16 ? numbers[i] & 15 : numbers[i - 16] >> 4;
  return low | static_cast<int>(fifth >> i & 1U) << 4;
}

void widen_q5_0(Block block, float* to) {
  const float scale = half_at(block);
  const std::uint32_t fifth = bits_at(block + 2);
  for (int i = 0; i < 32; ++i) to[i] = scale * floated(five_bits(block + 6, fifth, i) - 16);
}

void widen_q5_1(Block block, float* to) {
  const float scale = half_at(block), least = half_at(block + 2);
  const std::uint32_t fifth = bits_at(block + 4);
  for (int i = 0; i < 32; ++i) to[i] = scale * floated(five_bits(block + 8, fifth, i)) + least;
}

void widen_q8_0(Block block, float* to) {
  const float scale = half_at(block);
  for (int i = 0; i < 32; ++i) to[i] = scale * floated(signed_byte(block[2 + i]));
}

// Blocks of 256: a scale and a minimum for all, and for each of eight groups of 32 a factor on either.

struct Group {
  float scale, least;
};

/// The factors of group g have six bits each, in twelve bytes: those of the first four groups are the low six
/// bits of a byte, those of the others the halves of a byte and the two bits that the first ones leave.
Group group_of(Block block, int g) {
  const Block packed = block + 4;
  const int scale = g < 4 ? packed[g] & 63 : (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
  const int least = g < 4 ? packed[g + 4] & 63 : packed[g + 4] >> 4 | packed[g] >> 6 << 4;
  return {half_at(block) * floated(scale), half_at(block + 2) * floated(least)};
}

void widen_q4_k(Block block, float* to) {
  for (int g = 0; g < 8; ++g) {
    const Group group = group_of(block, g);
    const Block numbers = block + 16 + g / 2 * 32;  // two groups share 32 bytes
    for (int i = 0; i < 32; ++i)
      to[g * 32 + i] = group.scale * floated(numbers[i] >> g % 2 * 4 & 15) - group.least;
  }
}

void widen_q5_k(Block block, float* to) {
  for (int g = 0; g < 8; ++g) {
    const Group group = group_of(block, g);
    const Block fifth = block + 16, numbers = block + 48 + g / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int number = (numbers[i] >> g % 2 * 4 & 15) | (fifth[i] >> g & 1) << 4;
      to[g * 32 + i] = group.scale * floated(number) - group.least;
    }
  }
}

/// Sixteen groups of 16 with signed factors; of each half of 128 numbers, number 32 k + i has its low four
/// bits in byte i + k % 2 * 32 and its high two in byte i of another 32.
void widen_q6_k(Block block, float* to) {
  const float scale = half_at(block + 208);
  for (int half = 0; half < 2; ++half) {
    for (int k = 0; k < 4; ++k) {
      const Block low = block + half * 64 + k % 2 * 32, high = block + 128 + half * 32;
      const Block factors = block + 192 + half * 8 + k * 2;
      const float scales[2] = {scale * floated(signed_byte(factors[0])),
                               scale * floated(signed_byte(factors[1]))};
      for (int i = 0; i < 32; ++i) {
        const int number = (low[i] >> k / 2 * 4 & 15) | (high[i] >> 2 * k & 3) << 4;
        to[half * 128 + k * 32 + i] = scales[i / 16] * floated(number - 32);
      }
    }
  }
}

template <Elem elem>
void widen_one(Block block, float* to) {
  widen(elem, block, 1, to);
}

struct Known {
  std::string_view name;
  Widen widen;
};
constexpr Known kKnown[]{
    {"F32", widen_one<Elem::f32>}, {"F16", widen_one<Elem::f16>}, {"BF16", widen_one<Elem::bf16>},
    {"Q4_0", widen_q4_0},          {"Q4_1", widen_q4_1},          {"Q5_0", widen_q5_0},
    {"Q5_1", widen_q5_1},          {"Q8_0", widen_q8_0},          {"Q4_K", widen_q4_k},
    {"Q5_K", widen_q5_k},          {"Q6_K", widen_q6_k}};

Widen find_widen(const GgufType& type) {
  for (const Known& known : kKnown) {
    if (known.name == type.name) return known.widen;
  }
  return nullptr;
}

}  // namespace

bool can_widen(const GgufType& type) {
  return find_widen(type) != nullptr;
}

void widen_blocks(const GgufType& type, const std::byte* from, std::uint64_t blocks, float* to) {
  const Widen widen = find_widen(type);
  if (widen == nullptr) bug("a type that is not known", "widening a GGUF file");
  const Block first = reinterpret_cast<Block>(from);
  for (std::uint64_t i = 0; i < blocks; ++i) widen(first + i * type.bytes, to + i * type.items);
}

}  // namespace kvsim::model
