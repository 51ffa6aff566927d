#pragma once
/// Sizes for people.
#include <cstdint>
#include <string>

namespace kvsim {

/// "384 KiB": binary units, four digits at most.
std::string bytes_text(std::uint64_t bytes);

}  // namespace kvsim
