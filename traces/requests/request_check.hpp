#pragma once
/// Holds a trace of requests to all rules and lists what breaks them, where read_requests() and PrefixTree
/// stop at the first.
#include "traces/requests/read_requests.hpp"

namespace kvsim::requests {

struct RequestCheck {
  std::vector<Violation> first{};  ///< in the order of lines
  std::uint64_t bad_lines = 0;
  std::uint64_t requests = 0, blocks = 0;  ///< of sound lines
  std::string format{};
};

/// A line's first offence each, of the first `most` lines that have one. Besides what read_requests()
/// refuses, an id of a chained trace must stand behind the same id everywhere. Throws Error(input) for what
/// cannot be read at all, such as an empty or damaged file.
RequestCheck check_requests(const std::string& path, const ReadOptions& options, std::size_t most);

}  // namespace kvsim::requests
