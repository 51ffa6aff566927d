#pragma once
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace kvsim {

/// The paths of what lies in FOLDER, sorted. Where it cannot be listed: none, and `failed` says why.
/// std::filesystem's iterator ends the program where memory ends while it takes a step (libstdc++ 12).
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& failed);

/// Makes a folder, and those that it lies in, where they are not there yet. Throws Error(input).
void make_folders(const std::string& path);

}  // namespace kvsim
