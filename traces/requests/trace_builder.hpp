#pragma once
/// Puts the requests that a reader finds together to a trace, and holds them to the rules that all formats
/// share: times rise, numbers of blocks fit the lengths, columns are there for all requests or for none.
#include <algorithm>
#include <boost/functional/hash.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "traces/requests/read_requests.hpp"
#include "traces/requests/request_trace.hpp"

namespace kvsim::requests {

/// What is usual in a format, where neither the data nor the options say otherwise.
struct FormatDefaults {
  std::uint32_t block_tokens = 0;  ///< 0: its lines say it, or it has none
  Tail tail = Tail::partial;       ///< of a trace in which all prompts are whole blocks
  Hashing hashing = Hashing::chained;
  bool rising = true;       ///< lines stand in the order of their times
  bool by_end = false;      ///< lines stand in the order of their ends, and are put into that of their times
  bool from_first = false;  ///< times have an origin of their own: those of the trace begin at 0
};

class TraceBuilder {
 public:
  TraceBuilder(std::string file, std::string format, const ReadOptions& options,
               const FormatDefaults& defaults);

  /// The line that is read now, for messages and requests.
  void at_line(std::uint64_t line) { line_ = line; }
  /// "trace.jsonl line 12".
  std::string where() const;

  /// Of a trace whose lines say how long their blocks are: the same everywhere, and no other than the options
  /// say.
  void declare_block_tokens(std::uint64_t tokens);
  std::uint32_t block_tokens() const { return trace_.block_tokens; }

  std::uint32_t session(std::string_view name) { return number(session_numbers_, trace_.sessions, name); }
  /// Makes the request the next turn of a session.
  void continue_session(Request& request, std::string_view name);
  std::uint32_t category(std::string_view name) { return number(category_numbers_, trace_.categories, name); }

  /// Appends a request, of which the caller has set what its line says, lengths and blocks excepted, and
  /// returns its number. `ids` null: the line says nothing of blocks. Throws Error(input) at this line.
  std::uint32_t add(Request request, std::uint64_t prompt_tokens, std::uint64_t generated_tokens,
                    const std::vector<BlockId>* ids);
  /// The same of a prompt that is known token by token, and of the answer where it is:
  /// `output` is appended to `prompt`; null: it is not known.
  std::uint32_t add_tokens(const Request& request, std::vector<std::uint64_t>& prompt,
                           std::uint64_t generated_tokens, const std::vector<std::uint64_t>* output);

  const RequestTrace& trace() const { return trace_; }
  /// Throws Error(input) for a trace without requests, Error(usage) for options that this trace cannot
  /// honour.
  RequestTrace finish();

 private:
  using Numbers = boost::unordered_flat_map<std::string, std::uint32_t>;
  std::uint32_t number(Numbers& numbers, std::vector<std::string>& names, std::string_view name);
  void check_time(const Request& request);
  void check_blocks(std::uint64_t prompt_tokens, const std::vector<BlockId>* ids);
  const std::vector<BlockId>& ids_of(std::span<const std::uint64_t> tokens);
  void sort();

  std::string file_;
  const ReadOptions& options_;
  FormatDefaults defaults_;
  RequestTrace trace_;
  Numbers session_numbers_, category_numbers_;
  std::vector<std::uint32_t> last_;  ///< request of each session
  std::uint64_t line_ = 0;
  std::uint64_t block_tokens_line_ = 0;  ///< of the line that declared them first; 0: none
  std::uint64_t tail_line_ = 0;          ///< of the first prompt that is not whole blocks; 0: none so far
  double latest_ = 0;                    ///< arrival so far
  bool has_blocks_ = false;
  std::vector<BlockId> ids_;  // scratch
};

/// How many tokens a request may have at most, prompt and generated ones each.
inline constexpr std::uint64_t kMostTokens = (std::uint64_t{1} << 31) - 1;

// Ids of blocks from the tokens themselves, for traces that have these.

/// Appends the ids of a prompt's blocks to `out`: an id is a digest of 64 bits of the block's tokens and,
/// with Hashing::chained, all before them, so that equal ids are equal blocks, or prefixes, but for one
/// chance in 2^64 per pair. With Tail::partial the rest is a block, too.
inline void append_ids(std::span<const std::uint64_t> tokens, std::uint32_t block_tokens, Hashing hashing,
                       Tail tail, std::vector<BlockId>& out) {
  std::uint64_t id = key_of("blocks");
  while (!tokens.empty() && (tail == Tail::partial || tokens.size() >= block_tokens)) {
    const auto block = tokens.first(std::min<std::size_t>(block_tokens, tokens.size()));
    if (hashing == Hashing::content) id = key_of("blocks");
    for (const std::uint64_t token : block) id = mix(id ^ mix(token));
    id = mix(id ^ block.size());
    out.push_back(id);
    tokens = tokens.subspan(block.size());
  }
}

/// Numbers prefixes of blocks 0, 1, 2, ... as they first occur.
class PrefixNumbers {
 public:
  explicit PrefixNumbers(Hashing hashing) : chained_(hashing == Hashing::chained) {}

  /// The number of the prefix that ends with block `id` behind the prefix of number `before`; kNone: `id` is
  /// the first. Throws Error(input) for more than 4,294,967,295 prefixes.
  std::uint32_t number(std::uint32_t before, BlockId id) {
    if (numbers_.size() >= kNone) input_error("the trace has more than 4,294,967,295 different blocks");
    return numbers_.try_emplace({chained_ ? kNone : before, id}, static_cast<std::uint32_t>(numbers_.size()))
        .first->second;
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(numbers_.size()); }

 private:
  using Key = std::pair<std::uint32_t, BlockId>;
  bool chained_;  ///< an id names its whole prefix
  boost::unordered_flat_map<Key, std::uint32_t, boost::hash<Key>> numbers_;
};

}  // namespace kvsim::requests
