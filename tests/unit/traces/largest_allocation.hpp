#pragma once
/// The largest block this thread's C++ code has asked for since it was last set to 0.
#include <cstddef>

namespace kvsim::test {

std::size_t& largest_allocation();

}  // namespace kvsim::test
