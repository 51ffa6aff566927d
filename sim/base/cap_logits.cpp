#include "sim/base/cap_logits.hpp"

#include <Eigen/Core>
#include <algorithm>

namespace kvsim {

void cap_logits(float* row, std::size_t n, double cap) {
  if (cap == 0) return;
  // Packets of fixed size, the last one filled up: Eigen's tanh differs in the last bit between single
  // elements and packets.
  constexpr std::size_t kPacket = 16;
  using Packet = Eigen::Array<float, kPacket, 1>;
  const auto most = static_cast<float>(cap);
  std::size_t i = 0;
  for (; i + kPacket <= n; i += kPacket) {
    Eigen::Map<Packet> logits(row + i);
    logits = (logits / most).tanh() * most;
  }
  Packet tail = Packet::Zero();
  std::copy(row + i, row + n, tail.data());
  tail = (tail / most).tanh() * most;
  std::copy_n(tail.data(), n - i, row + i);
}

}  // namespace kvsim
