#pragma once
/// The text that --version prints.
#include <string>

namespace kvsim::tools {

/// Version, commit, compiler, build type, and the libraries as loaded.
std::string version_text();

}  // namespace kvsim::tools
