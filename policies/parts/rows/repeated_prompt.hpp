#pragma once
/// The second pass of a model over its prompt, as rules price it (traces/capture/second_pass.hpp makes it).
#include <cstddef>

namespace kvsim::policy {

/// Tokens that the model repeats at once, as KVzip's paper has it.
inline constexpr std::size_t kRepeatedAtOnce = 2000;

}  // namespace kvsim::policy
