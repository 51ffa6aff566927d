#pragma once
/// Sizes in bytes as readable text.
#include <cstdint>
#include <string>

namespace kvsim {

/// Returns e.g. "384 KiB": binary units, at most four digits.
std::string bytes_text(std::uint64_t bytes);

}  // namespace kvsim
