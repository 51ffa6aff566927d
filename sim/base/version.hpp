#pragma once
/// What this binary is. The values stand in an object of their own (version.cpp.in): after a commit only that is compiled again.
namespace kvsim {

extern const char* const kVersion;    ///< of the release
extern const char* const kCommit;     ///< at which CMake was configured; empty outside of git
extern const char* const kCompiler;   ///< name and version
extern const char* const kBuildType;  ///< as CMake names it
extern const char* const kCuda;       ///< release, or "none"

}  // namespace kvsim
