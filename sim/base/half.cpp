#include "sim/base/half.hpp"

#include <cstring>

namespace kvsim {
namespace {

template <float (*Widen)(std::uint16_t)>
void widen_each(const void* from, std::size_t count, float* to) {
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    to[i] = Widen(bits);
  }
}

template <std::uint16_t (*Narrow)(float)>
void narrow_each(const float* from, std::size_t count, void* to) {
  auto* bytes = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t bits = Narrow(from[i]);
    std::memcpy(bytes + 2 * i, &bits, 2);
  }
}

}  // namespace

void widen(Elem elem, const void* from, std::size_t count, float* to) {
  if (elem == Elem::f32) {
    if (count > 0) std::memcpy(to, from, count * 4);
  } else if (elem == Elem::bf16) {
    widen_each<widen_bf16>(from, count, to);
  } else {
    widen_each<widen_f16>(from, count, to);
  }
}

void narrow(Elem elem, const float* from, std::size_t count, void* to) {
  if (elem == Elem::f32) {
    if (count > 0) std::memcpy(to, from, count * 4);
  } else if (elem == Elem::bf16) {
    narrow_each<narrow_bf16>(from, count, to);
  } else {
    narrow_each<narrow_f16>(from, count, to);
  }
}

}  // namespace kvsim
