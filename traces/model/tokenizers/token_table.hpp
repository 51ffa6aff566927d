#pragma once
/// What each token id stands for.
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace kvsim::model {

/// Tokenizers of the SentencePiece family write a space before a text; reading ids back takes it away again.
enum class LeadingSpace {
  kept,         ///< byte-level tokenizers: what was put before the text is part of it
  dropped,      ///< the first one of the text
  token_bared,  ///< all that the text's first token begins with
  run_dropped,  ///< the first one of the text and of every text after a special token
};

class TokenTable {
 public:
  /// Largest id a tokenizer may use: a table of them must fit into memory.
  static constexpr std::uint64_t kMaxId = (1ULL << 22) - 1;

  /// `id` is in [0, kMaxId]; bytes given again replace what was there. Throws Error(input) when the tokens
  /// have more bytes than any file of them may: what they stand for can be longer than what is written.
  void place(std::int32_t id, std::string bytes);
  void mark_special(std::int32_t id) { special_.insert(id); }
  void set_leading_space(LeadingSpace rule) { leading_space_ = rule; }

  /// Empty for an id that is not known.
  const std::string& bytes(std::int32_t id) const;
  bool is_special(std::int32_t id) const { return special_.contains(id); }
  /// Bytes of each token where it stands.
  std::vector<std::string> spell(std::span<const std::int32_t> ids) const;

 private:
  std::vector<std::string> bytes_;
  std::size_t total_ = 0;  // bytes of all
  std::unordered_set<std::int32_t> special_;
  LeadingSpace leading_space_ = LeadingSpace::kept;
};

}  // namespace kvsim::model
