#pragma once
/// The Unicode functions that tokenizing needs, implemented with ICU.
#include <cstddef>
#include <string>
#include <string_view>

namespace kvsim::model {

/// Throws Error(input) with the offset of the first byte that is not valid UTF-8.
void require_utf8(std::string_view text, const std::string& where);

/// Unicode normal forms (Unicode Standard Annex 15).
enum class NormalForm { nfc, nfd, nfkc, nfkd };
/// UTF-8 text in that form.
std::string normalize(NormalForm form, std::string_view text);

/// Replaces every character by its lower case, independent of its neighbours.
std::string lowercase(std::string_view text);

/// Number of bytes of white space (Unicode White_Space) that `text` begins or ends with.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// Whether `text` begins with or ends in a letter, mark, digit, connector or joiner (\w of Unicode Technical
/// Standard 18).
bool begins_with_word(std::string_view text);
bool ends_in_word(std::string_view text);

/// The kind of characters in UTF-8 text, ignoring white space at its ends. Text that mixes kinds, is empty or
/// is not UTF-8 is `other`.
enum class TextKind {
  white_space,  ///< Unicode White_Space only
  punctuation,  ///< general categories P (punctuation) and S (symbols)
  digits,       ///< general category Nd
  other,
};
TextKind kind_of_text(std::string_view text);

}  // namespace kvsim::model
