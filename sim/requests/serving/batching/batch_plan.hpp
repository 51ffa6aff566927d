#pragma once
/// Batches of requests that are known in advance, and what one pass over the prompts of each computes.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/device_pass.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::serving {

/// What stands in the rows of a pass over prompts, in the order of traces/requests/README.md.
enum class Batching {
  padded,    ///< every prompt has a row, as long as the longest of the batch
  sorted,    ///< the same of requests in order of falling length
  packed,    ///< prompts share rows of that length (Prepacking, Zhao et al. 2024)
  unpadded,  ///< every prompt has a row of its own length
  cached,    ///< without the blocks that an LRU cache of the whole memory has, in the order of the trace
  grouped,   ///< in groups of one common prefix, which is computed once (BatchLLM: prefix_groups.hpp)
};
const char* batching_name(Batching batching);
/// Throws Error(usage) with the nearest names.
Batching parse_batching(std::string_view name);
std::vector<std::string> batching_names();
/// Whether it needs to know which prompts share tokens.
constexpr bool needs_blocks(Batching batching) {
  return batching == Batching::cached || batching == Batching::grouped;
}

struct BatchSettings {
  Batching batching = Batching::unpadded;
  std::uint32_t requests = 64;  ///< of a batch, at most
  std::uint64_t capacity = 0;   ///< tokens of keys and values that the memory holds
};

struct PromptBatch {
  std::vector<std::uint32_t> requests{};  ///< numbers in the trace
  std::vector<cost::Chunk> chunks{};      ///< rows of the pass
  std::uint64_t padding_tokens = 0;       ///< of these rows, what belongs to no prompt
  std::uint64_t found_tokens = 0;         ///< of the prompts, in no row because they were computed before
};

/// Cuts the trace, in the order of the method, into batches: a batch ends before the request with which it
/// would have more than `requests` of them, or with which their prompts and answers would not fit the memory.
/// There, the prefix of a group counts once; padding takes no memory. `tree`: of the trace, for methods that
/// need blocks. Throws Error(usage) for settings that cannot be, Error(input) for a request without a prompt
/// and for one that does not fit the memory.
std::vector<PromptBatch> plan_batches(const requests::RequestTrace& trace, const prefix::PrefixTree* tree,
                                      const BatchSettings& settings);

/// Prepacking (Zhao et al. 2024, arXiv 2404.09529): prompts of a batch share rows instead of being padded to
/// the longest. A mask keeps them apart, and positions begin anew with each prompt.
struct Packing {
  std::vector<std::vector<std::uint32_t>> rows{};  ///< prompts of each row, in the order they were put there
  std::uint64_t longest = 0;                       ///< tokens of the longest prompt, and of every row
  std::uint64_t prompts = 0, tokens = 0;           ///< of all prompts

  std::uint64_t padded_tokens() const { return prompts * longest; }
  std::uint64_t packed_tokens() const { return rows.size() * longest; }
};

/// Puts prompts into rows of the longest one's length: in order of falling length, each into the first row
/// with room; of equals the one that comes first goes first. Throws Error(usage) for no prompts, for one of
/// no tokens, and where a product of Packing would not fit 64 bits.
Packing pack(std::span<const std::uint64_t> prompt_tokens);

}  // namespace kvsim::serving
