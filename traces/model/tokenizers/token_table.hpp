#pragma once
/// A table of the bytes that each token id stands for.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
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

/// Added tokens: strings that a tokenizer finds in the text before any other step.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool strip_left = false, strip_right = false;  ///< the token includes the white space beside it
  bool single_word = false;                      ///< matches only where no letter, digit or mark is adjacent
};

/// A stretch of plain text, or a token in its place.
struct TextPart {
  std::string_view text;
  std::int32_t id = -1;  ///< -1: text
};

/// Finds added tokens: the leftmost match, the longest among those, no overlaps (the rules of Hugging Face
/// tokenizers).
class AddedTokenFinder {
 public:
  /// Throws Error(input) naming `where` when the texts of all tokens together are too large.
  void add(AddedToken token, const std::string& where);
  /// The parts of `text` in order, as views into it. No part is empty.
  std::vector<TextPart> cut(std::string_view text) const;

 private:
  const AddedToken* match(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  // A trie of bytes: the child of a node by one byte, and the token that ends at a node.
  std::unordered_map<std::uint64_t, std::uint32_t> child_;
  std::vector<std::int32_t> token_at_{-1};
  std::array<bool, 256> begins_{};
};

}  // namespace kvsim::model

// The "decoder" of tokenizer.json: converts a token of the vocabulary to the bytes it stands for.

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

class TokenDecoder {
 public:
  /// The decoder of byte-level vocabularies.
  TokenDecoder() = default;
  /// Throws Error(input) naming a part that is not supported, that is, any but ByteLevel, Metaspace, and
  /// Sequences of Replace, ByteFallback, Fuse and Strip (of one space before the text), in that order.
  explicit TokenDecoder(const JsonObject& json);

  bool byte_level() const { return byte_level_; }
  LeadingSpace leading_space() const { return leading_space_; }
  std::string bytes(const std::string& token) const;

 private:
  void parse_sequence(const JsonObject& json);

  bool byte_level_ = true, byte_fallback_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  LeadingSpace leading_space_ = LeadingSpace::kept;
};

}  // namespace kvsim::model
