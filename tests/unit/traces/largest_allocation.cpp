#include "tests/unit/traces/largest_allocation.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace kvsim::test {

std::size_t& largest_allocation() {
  static thread_local std::size_t largest = 0;
  return largest;
}

}  // namespace kvsim::test

// Replaces the allocation functions of the whole binary. They are in a file of their own, so that the
// compiler cannot elide a matching pair.
void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  std::size_t& largest = kvsim::test::largest_allocation();
  largest = std::max(largest, bytes);
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
