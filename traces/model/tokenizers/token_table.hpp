#pragma once
/// A table of the bytes that each token id stands for.
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

namespace kvsim::model {

/// How decoding treats the space that tokenizers of the SentencePiece family put before a text.
enum class LeadingSpace {
  kept,         ///< byte-level tokenizers: a leading space is part of the text
  dropped,      ///< the first space of the text is removed
  token_bared,  ///< all leading spaces of the text's first token are removed
  run_dropped,  ///< the first space of the text, and of every text after a special token, is removed
};

class TokenTable {
 public:
  /// Largest id that a tokenizer may use, because the table must fit into memory.
  static constexpr std::uint64_t kMaxId = (1ULL << 22) - 1;

  /// Sets the bytes of `id`, which is in [0, kMaxId]; replaces earlier bytes. Throws Error(input) when all
  /// tokens together have more bytes than a tokenizer file may: decoded tokens can be longer than their
  /// spelling in the file.
  void place(std::int32_t id, std::string bytes);
  void mark_special(std::int32_t id) { special_.insert(id); }
  void set_leading_space(LeadingSpace rule) { leading_space_ = rule; }

  /// The bytes of a token; empty for an unknown id.
  const std::string& bytes(std::int32_t id) const;
  bool is_special(std::int32_t id) const { return special_.contains(id); }
  /// The bytes of each token in its place, with the leading-space rule applied.
  std::vector<std::string> spell(std::span<const std::int32_t> ids) const;

 private:
  std::vector<std::string> bytes_;
  std::size_t total_ = 0;  // bytes of all
  std::unordered_set<std::int32_t> special_;
  LeadingSpace leading_space_ = LeadingSpace::kept;
};

}  // namespace kvsim::model
