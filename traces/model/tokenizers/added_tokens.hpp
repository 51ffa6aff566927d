#pragma once
/// Added tokens: strings that a tokenizer finds in the text before any other step.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kvsim::model {

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
