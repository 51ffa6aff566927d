#pragma once
/// Reads whole files as text.
#include <cstdint>
#include <string>

namespace kvsim {

/// Returns all bytes of a file or pipe, or of standard input for "-". Throws Error(input), also beyond
/// `max_bytes`.
std::string read_file(const std::string& path, std::uint64_t max_bytes);

}  // namespace kvsim
