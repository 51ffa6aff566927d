#include "traces/model/unicode_text.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include "sim/base/error.hpp"

namespace kvsim::model {
namespace {

void require(UErrorCode status, const std::string& what, const std::string& where) {
  if (U_FAILURE(status)) input_error(what + ": " + u_errorName(status), where);
}

const icu::Normalizer2* normalizer_of(NormalForm form, UErrorCode& status) {
  switch (form) {
    case NormalForm::nfc:
      return icu::Normalizer2::getNFCInstance(status);
    case NormalForm::nfd:
      return icu::Normalizer2::getNFDInstance(status);
    case NormalForm::nfkc:
      return icu::Normalizer2::getNFKCInstance(status);
    case NormalForm::nfkd:
      break;
  }
  return icu::Normalizer2::getNFKDInstance(status);
}

/// Whether `c` matches \w of Unicode Technical Standard 18, annex C.
bool is_word(UChar32 c) {
  return c >= 0 && (u_hasBinaryProperty(c, UCHAR_ALPHABETIC) || u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) ||
                    (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0);
}

}  // namespace

// ICU's UTF-8 macros narrow int to uint8_t inside.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"

void require_utf8(std::string_view text, const std::string& where) {
  // ICU counts bytes in 32 bits, so long text is checked in blocks.
  for (std::size_t base = 0; base < text.size();) {
    const std::int32_t length = static_cast<std::int32_t>(std::min<std::size_t>(text.size() - base, 1 << 30));
    std::int32_t at = 0;
    while (at < length) {
      const std::int32_t start = at;
      UChar32 c = 0;
      U8_NEXT(text.data() + base, at, length, c);
      if (c < 0) {
        input_error("not UTF-8 at byte " + std::to_string(base + static_cast<std::size_t>(start)), where,
                    "Convert the text to UTF-8, or pass token ids with --tokens.");
      }
    }
    base += static_cast<std::size_t>(length);
  }
}

std::size_t leading_space(std::string_view text) {
  const auto length = static_cast<std::int32_t>(text.size());
  std::int32_t end = 0;
  while (end < length) {
    std::int32_t next = end;
    UChar32 c = 0;
    U8_NEXT(text.data(), next, length, c);
    if (!u_isUWhiteSpace(c)) break;
    end = next;
  }
  return static_cast<std::size_t>(end);
}

std::size_t trailing_space(std::string_view text) {
  auto begin = static_cast<std::int32_t>(text.size());
  while (begin > 0) {
    std::int32_t before = begin;
    UChar32 c = 0;
    U8_PREV(text.data(), 0, before, c);
    if (!u_isUWhiteSpace(c)) break;
    begin = before;
  }
  return text.size() - static_cast<std::size_t>(begin);
}

bool begins_with_word(std::string_view text) {
  if (text.empty()) return false;
  std::int32_t at = 0;
  UChar32 c = 0;
  U8_NEXT(text.data(), at, static_cast<std::int32_t>(text.size()), c);
  return is_word(c);
}

bool ends_in_word(std::string_view text) {
  if (text.empty()) return false;
  auto at = static_cast<std::int32_t>(text.size());
  UChar32 c = 0;
  U8_PREV(text.data(), 0, at, c);
  return is_word(c);
}

TextKind kind_of_text(std::string_view text) {
  if (text.empty()) return TextKind::other;
  text.remove_prefix(leading_space(text));
  if (text.empty()) return TextKind::white_space;
  text.remove_suffix(trailing_space(text));
  const auto length = static_cast<std::int32_t>(text.size());
  constexpr std::uint32_t kPunctuation = U_GC_P_MASK | U_GC_S_MASK;
  std::uint32_t categories = 0;
  for (std::int32_t at = 0; at < length;) {
    UChar32 c = 0;
    U8_NEXT(text.data(), at, length, c);
    if (c < 0) return TextKind::other;
    categories |= U_GET_GC_MASK(c);
  }
  if ((categories & ~kPunctuation) == 0) return TextKind::punctuation;
  return categories == U_GC_ND_MASK ? TextKind::digits : TextKind::other;
}

std::string lowercase(std::string_view text) {
  constexpr UChar32 kDottedCapital = 0x130;  // the only character whose lower case is two characters: i and a
                                             // dot above
  std::string result;
  const auto length = static_cast<std::int32_t>(text.size());
  for (std::int32_t at = 0; at < length;) {
    UChar32 c = 0;
    U8_NEXT(text.data(), at, length, c);
    if (c == kDottedCapital) {
      result += "i\u0307";
      continue;
    }
    c = u_tolower(c);
    char bytes[U8_MAX_LENGTH];
    std::int32_t size = 0;
    U8_APPEND_UNSAFE(bytes, size, c);
    result.append(bytes, static_cast<std::size_t>(size));
  }
  return result;
}

#pragma GCC diagnostic pop

std::string normalize(NormalForm form, std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* normalizer = normalizer_of(form, status);
  require(status, "the normal form is not available", "ICU");
  std::string normal;
  icu::StringByteSink<std::string> sink(&normal);
  normalizer->normalizeUTF8(0, {text.data(), static_cast<std::int32_t>(text.size())}, sink, nullptr, status);
  require(status, "normalizing failed", "ICU");
  return normal;
}

}  // namespace kvsim::model
