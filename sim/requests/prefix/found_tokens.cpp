#include "sim/requests/prefix/found_tokens.hpp"

namespace kvsim::prefix {

std::vector<std::uint32_t> unlimited_runs(const PrefixTree& tree) {
  std::vector<bool> seen(tree.size());
  std::vector<std::uint32_t> out(tree.requests());
  for (std::size_t r = 0; r < tree.requests(); ++r) {
    for (const Node node : tree.prompt(r)) {
      if (!seen[node]) break;
      ++out[r];
    }
    for (const Node node : tree.prompt(r)) seen[node] = true;
    for (const Node node : tree.final_path(r)) seen[node] = true;
  }
  return out;
}

}  // namespace kvsim::prefix
