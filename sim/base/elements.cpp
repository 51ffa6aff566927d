#include "sim/base/elements.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace kvsim {

void Elements::store(Elem to, void* out) const {
  if (to == elem_) {
    if (size_ > 0) std::memcpy(out, data_, size_ * elem_bytes(elem_));
    return;
  }
  auto* bytes = static_cast<std::byte*>(out);
  std::array<float, 1024> block;
  for (std::size_t first = 0; first < size_; first += block.size()) {
    const std::size_t count = std::min(block.size(), size_ - first);
    widen(elem_, data_ + first * elem_bytes(elem_), count, block.data());
    narrow(to, block.data(), count, bytes + first * elem_bytes(to));
  }
}

std::vector<float> Elements::floats() const {
  std::vector<float> values(size_);
  widen(elem_, data_, size_, values.data());
  return values;
}

}  // namespace kvsim
