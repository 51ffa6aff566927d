#include "sim/attention/finite_read.hpp"

#include <bit>
#include <string>

#include "sim/base/error.hpp"

namespace kvsim::sim {
namespace {

constexpr std::uint32_t kExponent = 0x7f800000U;

bool is_finite(float x) {
  return (std::bit_cast<std::uint32_t>(x) & kExponent) != kExponent;
}

}  // namespace

void read_finite(const trace::Sequence& sequence, trace::Tensor tensor, std::uint32_t layer,
                 std::uint32_t head, std::uint64_t first, std::uint64_t n, std::span<float> out) {
  sequence.read(tensor, layer, head, first, n, out);
  unsigned bad = 0;  // the loop has no branch, so its time is small beside the arithmetic that follows
  for (const float x : out) bad |= is_finite(x) ? 0U : 1U;
  if (bad == 0) return;
  std::size_t i = 0;
  while (is_finite(out[i])) ++i;
  static constexpr const char* kNames[] = {"query", "key", "value"};
  input_error(std::string(kNames[static_cast<std::size_t>(tensor)]) + " of layer " + std::to_string(layer) +
                  ", head " + std::to_string(head) + ", position " +
                  std::to_string(first + i / (out.size() / n)) + " is " + std::to_string(out[i]),
              sequence.source().name(), "kvsim trace check says what else is wrong with it.");
}

}  // namespace kvsim::sim
