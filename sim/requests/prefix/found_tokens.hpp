#pragma once
/// How many tokens of a prompt a leading run of resident blocks spares.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::prefix {

enum class FoundTokens {
  all,    ///< of a last block that is not full, those that it has
  whole,  ///< of whole blocks alone, as engines share and keep them (requests::forget_tails())
  vllm,   ///< of whole blocks, and never the whole prompt: vLLM computes its last token again
};

/// Of the `run` first blocks of the request's prompt.
inline std::uint64_t found_tokens(FoundTokens found, const requests::Request& request, std::uint64_t run,
                                  std::uint32_t block_tokens) {
  const std::uint64_t prompt = request.prompt_tokens, size = block_tokens;
  if (found == FoundTokens::all) return std::min(run * size, prompt);
  const std::uint64_t most = found == FoundTokens::vllm && prompt > 0 ? prompt - 1 : prompt;
  return std::min(run, most / size) * size;
}

/// Of every request: the leading run that a cache without limits finds, which no policy exceeds.
inline std::vector<std::uint32_t> unlimited_runs(const PrefixTree& tree) {
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
