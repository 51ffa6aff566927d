#pragma once
/// The passages from which contexts are made.
#include <string>
#include <vector>

namespace kvsim::workload {

struct Passage {
  std::string name;
  std::string text;
};

/// The files of passages/, compiled in: about 97 kB of technical English with markup and code. None is empty.
const std::vector<Passage>& builtin_passages();

}  // namespace kvsim::workload
