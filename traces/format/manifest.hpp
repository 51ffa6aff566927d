#pragma once
/// The manifest of a published set of files: JSON with the licence, and name, bytes and SHA-256 of every
/// file. One that is longer than a part is also listed in parts, NAME.000, NAME.001, ..., as `split -b PART
/// -d -a 3 NAME NAME.` cuts them, so that parts can be checked before they are joined.
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/progress.hpp"

namespace kvsim::trace {

struct ManifestFile {
  std::string name;  ///< in the manifest's folder
  std::uint64_t bytes = 0;
  std::string sha256{};
  std::vector<ManifestFile> parts{};  ///< empty: in one piece
};

/// The manifest of the files in `folder` but for one called `except`, sorted by name; `part_bytes` 0: no
/// parts. Progress counts bytes. Throws Error(input) for a folder inside it, and for more than 1000 parts.
std::string manifest_of(const std::string& folder, const std::string& except, const std::string& licence,
                        std::uint64_t part_bytes, Progress& progress);

/// Throws Error(input) for what is no manifest, and for a name that leads out of its folder.
std::vector<ManifestFile> read_manifest(const std::string& path);

/// What of a listed file lies in `folder`.
struct FoundFile {
  bool whole = false;                 ///< the file itself, not its parts
  std::vector<std::string> problems;  ///< each names a file; empty: all is as listed
};

FoundFile check_listed(const std::string& folder, const ManifestFile& file, Progress& progress);

}  // namespace kvsim::trace
