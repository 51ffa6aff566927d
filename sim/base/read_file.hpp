#pragma once
/// Reads whole files as text.
#include <cstdint>
#include <string>
#include <string_view>

namespace kvsim {

/// Returns all bytes of a file or pipe, or of standard input for "-". Throws Error(input), also beyond
/// `max_bytes` and for a file that is being written or was left by a killed writer
/// (sim/base/partial_file.hpp).
std::string read_file(const std::string& path, std::uint64_t max_bytes);

/// As read_file(), but refuses pipes: for files that a command may read more than once.
std::string read_regular_file(const std::string& path, std::uint64_t max_bytes);

/// Whether a regular file begins with these bytes. Pipes are not opened: they can be read but once.
bool begins_with(const std::string& path, std::string_view bytes);

/// Whether there is a file or a folder of this name.
bool file_exists(const std::string& path);

}  // namespace kvsim
