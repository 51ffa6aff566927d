#pragma once
/// A trace of requests to a serving system: when each arrived, how long it is, and which blocks of tokens its
/// prompt consists of. Two prompts with the same leading blocks can share their keys and values.
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace kvsim::requests {

/// Names a block of `block_tokens` tokens, as the trace's writer numbered or hashed it.
using BlockId = std::uint64_t;

/// What a block's id says.
enum class Hashing {
  chained,  ///< the block's tokens and all before them: an id has one predecessor (Mooncake, Bailian, vLLM,
            ///< LMCache)
  content,  ///< the block's tokens alone: the same id may stand behind different ones
};

/// What becomes of the tokens behind the last whole block of a prompt.
enum class Tail {
  partial,  ///< they are a block of their own: ceil(tokens / block_tokens) ids
  missing,  ///< they have no id and cannot be shared: floor(tokens / block_tokens) ids
};

/// How the blocks of generated tokens are known.
enum class Generated {
  none,      ///< they are not: only prompts are stored
  inferred,  ///< from the next turn of the session, whose prompt contains them
  given,     ///< the trace says them
};

inline constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

struct Request {
  /// Seconds since the beginning of the trace; of a request that waits for its parent: seconds after the
  /// parent's last token.
  double time_s = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t generated_tokens = 0;
  std::uint64_t first_block = 0;  ///< in RequestTrace::blocks: those of the prompt, in order
  std::uint32_t n_blocks = 0;
  /// Those of the prompt and the generated tokens, from the first on; 0: nothing is known of generated ones.
  std::uint32_t n_final_blocks = 0;
  std::uint64_t first_final_block = 0;
  std::uint32_t session = kNone;   ///< index into RequestTrace::sessions
  std::uint32_t parent = kNone;    ///< the request whose answer this one continues, earlier in the trace
  std::uint32_t turn = kNone;      ///< from 1, within its session
  std::uint32_t category = kNone;  ///< index into RequestTrace::categories
  std::int32_t priority = 0;       ///< higher is more important
  bool after_parent = false;       ///< arrives `time_s` after its parent has ended
  std::uint64_t line = 0;          ///< of the file, from 1; 0: generated
};

/// Requests in the order of their arrival. Of columns that the trace does not have, all values are kNone, or
/// 0.
struct RequestTrace {
  std::string format{};            ///< "mooncake", "bailian", ... as read
  std::uint32_t block_tokens = 0;  ///< 0: the trace says nothing of what prompts share
  Hashing hashing = Hashing::chained;
  Tail tail = Tail::partial;
  Generated generated = Generated::none;
  std::vector<Request> requests{};
  std::vector<BlockId> blocks{};
  std::vector<std::string> sessions{}, categories{};

  /// Whether prompts have blocks at all. Traces of arrivals and lengths alone drive queues, not caches.
  bool has_blocks() const { return block_tokens > 0; }
  std::span<const BlockId> prompt_blocks(const Request& request) const {
    return std::span(blocks).subspan(request.first_block, request.n_blocks);
  }
  /// The blocks that a cache can hold when the request has ended: of the prompt, and of what was generated
  /// where that is known.
  std::span<const BlockId> final_blocks(const Request& request) const {
    if (request.n_final_blocks == 0) return prompt_blocks(request);
    return std::span(blocks).subspan(request.first_final_block, request.n_final_blocks);
  }
};

/// How many ids a prompt of `tokens` tokens has.
constexpr std::uint64_t block_count(std::uint64_t tokens, std::uint32_t block_tokens, Tail tail) {
  return tail == Tail::partial ? (tokens + block_tokens - 1) / block_tokens : tokens / block_tokens;
}

}  // namespace kvsim::requests
