#pragma once
/// The largest block that this thread's C++ code has allocated since the value was last set to 0.
#include <cstddef>

namespace kvsim::test {

std::size_t& largest_allocation();

}  // namespace kvsim::test
