#pragma once
/// Added tokens: strings that are found in the text before anything else happens to it.
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
  bool strip_left = false, strip_right = false;  ///< takes the white space beside it along
  bool single_word = false;                      ///< counts only where no letter, digit or mark touches it
};

/// A stretch of plain text, or a token in its place.
struct TextPart {
  std::string_view text;
  std::int32_t id = -1;  ///< -1: text
};

/// Finds added tokens: leftmost first, longest among those, none within another (the rules of Hugging Face
/// tokenizers).
class AddedTokenFinder {
 public:
  /// Throws Error(input) naming `where` when the tokens' texts exceed what is sensible.
  void add(AddedToken token, const std::string& where);
  /// Parts of `text` in order; views into it. No part is empty.
  std::vector<TextPart> cut(std::string_view text) const;

 private:
  const AddedToken* match(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  // A tree of bytes: the child of a node by one byte, and the token that ends at a node.
  std::unordered_map<std::uint64_t, std::uint32_t> child_;
  std::vector<std::int32_t> token_at_{-1};
  std::array<bool, 256> begins_{};
};

}  // namespace kvsim::model
