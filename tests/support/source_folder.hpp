#pragma once
/// The folder of the source code, whose files tests read.
#include <cstdlib>
#include <string>

namespace kvsim::test {

/// Where it was when the test was compiled, or what the environment variable KVSIM_SOURCE_DIR says, for
/// programs that run on another machine.
inline std::string source_folder() {
  const char* moved = std::getenv("KVSIM_SOURCE_DIR");
  return moved != nullptr ? moved : KVSIM_SOURCE_DIR;
}

}  // namespace kvsim::test
