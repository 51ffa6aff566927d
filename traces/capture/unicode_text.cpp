#include "traces/capture/unicode_text.hpp"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"

namespace kvsim::capture {
namespace {

// Steps ICU's matcher may take on one text, in its own units of about a millisecond: a pattern from a file
// must not hang the program.
constexpr std::int32_t kMatchTimeLimit = 60'000;
// Room for backtracking: a run of a million letters or spaces needs some 50 MiB.
constexpr std::int32_t kMatchStackBytes = 1 << 29;
constexpr std::uint32_t kLiteral = UREGEX_LITERAL;

void require(UErrorCode status, const std::string& what, const std::string& where) {
  if (U_FAILURE(status)) input_error(what + ": " + u_errorName(status), where);
}

icu::UnicodeString from_utf8(std::string_view text) {
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
}

/// Word classes are where regular expression engines part (ICU counts joiners as letters, others do not): a
/// pattern that uses them could cut differently from the tokenizer's own engine.
bool uses_word_class(std::string_view pattern) {
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    ++i;
    if (std::string_view("wWbB").find(pattern[i]) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

// ICU's UTF-8 macros narrow int to uint8_t inside.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"

void require_utf8(std::string_view text, const std::string& where) {
  // ICU counts bytes in 32 bits.
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

#pragma GCC diagnostic pop

std::string compose_nfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  require(status, "NFC is not available", "ICU");
  std::string composed;
  icu::StringByteSink<std::string> sink(&composed);
  nfc->normalizeUTF8(0, {text.data(), static_cast<std::int32_t>(text.size())}, sink, nullptr, status);
  require(status, "NFC failed", "ICU");
  return composed;
}

struct TextSplitter::State {
  struct Step {
    SplitStep what;
    std::unique_ptr<icu::RegexPattern> pattern;  // null: no cut
  };

  void cut(const Step& step, const icu::UnicodeString& piece, std::vector<icu::UnicodeString>& out) const;

  std::vector<Step> steps;
  std::string where;
};

TextSplitter::TextSplitter(std::vector<SplitStep> steps, const std::string& where)
    : state_(std::make_unique<State>()) {
  state_->where = where;
  for (SplitStep& step : steps) {
    std::unique_ptr<icu::RegexPattern> pattern;
    if (!step.pattern.empty()) {
      if (!step.literal && uses_word_class(step.pattern)) {
        input_error(
            "the pattern " + quoted(step.pattern) + " uses \\w or \\b, which engines read differently", where,
            "Tokenize the prompt elsewhere and pass the ids with --tokens.");
      }
      UErrorCode status = U_ZERO_ERROR;
      UParseError position{};
      pattern.reset(
          icu::RegexPattern::compile(from_utf8(step.pattern), step.literal ? kLiteral : 0, position, status));
      require(status, "the pattern " + quoted(step.pattern) + " is not understood", where);
    }
    state_->steps.push_back({std::move(step), std::move(pattern)});
  }
}

TextSplitter::~TextSplitter() = default;

void TextSplitter::State::cut(const Step& step, const icu::UnicodeString& piece,
                              std::vector<icu::UnicodeString>& out) const {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(step.pattern->matcher(piece, status));
  if (matcher != nullptr) {
    matcher->setTimeLimit(kMatchTimeLimit, status);
    matcher->setStackLimit(kMatchStackBytes, status);
  }
  const auto keep = [&](std::int32_t begin, std::int32_t end, bool dropped) {
    if (end > begin && !dropped) out.push_back(piece.tempSubStringBetween(begin, end));
  };
  std::int32_t done = 0;
  while (U_SUCCESS(status) && matcher->find(status)) {
    keep(done, matcher->start(status), step.what.drop_rest);
    keep(matcher->start(status), matcher->end(status), step.what.drop_matches);
    done = matcher->end(status);
  }
  require(status, "the pattern " + quoted(step.what.pattern) + " failed on the text", where);
  keep(done, piece.length(), step.what.drop_rest);
}

std::vector<std::string> TextSplitter::split(std::string_view text) const {
  // Pieces may alias the text of an earlier round, so every round lives until the end.
  std::vector<std::vector<icu::UnicodeString>> rounds;
  rounds.push_back({from_utf8(text)});
  for (const State::Step& step : state_->steps) {
    std::vector<icu::UnicodeString>& pieces = rounds.back();
    if (step.what.prefix_space) {
      for (icu::UnicodeString& piece : pieces) {
        if (!piece.startsWith(u' ')) piece = icu::UnicodeString(u' ') + piece;
      }
    }
    if (step.pattern == nullptr) continue;
    std::vector<icu::UnicodeString> next;
    for (const icu::UnicodeString& piece : pieces) state_->cut(step, piece, next);
    rounds.push_back(std::move(next));
  }
  std::vector<std::string> out;
  out.reserve(rounds.back().size());
  for (const icu::UnicodeString& piece : rounds.back()) piece.toUTF8String(out.emplace_back());
  return out;
}

}  // namespace kvsim::capture
