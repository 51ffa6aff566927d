#include "traces/model/tokenizers/text_splitter.hpp"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"

namespace kvsim::model {
namespace {

// The pattern by which ByteLevel splits text by default (GPT-2).
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Limit on ICU's matcher for one text, in its own units of about a millisecond, so that a pattern from a file
// cannot hang the program.
constexpr std::int32_t kMatchTimeLimit = 60'000;
// Memory for backtracking: a run of a million letters or spaces needs some 50 MiB.
constexpr std::int32_t kMatchStackBytes = 1 << 29;
constexpr std::size_t kMaxCharacter = 4;  // bytes of a character in UTF-8

void require(UErrorCode status, const std::string& what, const std::string& where) {
  if (U_FAILURE(status)) input_error(what + ": " + u_errorName(status), where);
}

icu::UnicodeString from_utf8(std::string_view text) {
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<std::int32_t>(text.size())});
}

/// The first construct of a pattern that Oniguruma and ICU read differently; empty if there is none. ICU
/// counts joiners as word characters; \h is a hexadecimal digit in Oniguruma and a space in ICU; \v is one
/// character in Oniguruma and seven in ICU; {1,3}+ is a repeated repetition in Oniguruma and possessive in
/// ICU.
std::string ambiguous_part(std::string_view pattern) {
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    const std::string part(pattern.substr(i, 2));
    if (part == "}+" && i > 0) {
      const std::size_t open = pattern.rfind('{', i);
      const bool names_class = open >= 2 && open != std::string_view::npos && pattern[open - 2] == '\\' &&
                               (pattern[open - 1] == 'p' || pattern[open - 1] == 'P');
      if (!names_class) return part;
    }
    if (pattern[i] != '\\') continue;
    ++i;
    if (std::string_view("wWbBhHvVKG").find(pattern[i]) != std::string_view::npos) return part;
  }
  return {};
}

Delimiter parse_behavior(const JsonObject& split) {
  constexpr std::pair<const char*, Delimiter> kBehaviors[] = {
      {"Isolated", Delimiter::isolated},
      {"Removed", Delimiter::removed},
      {"MergedWithPrevious", Delimiter::merged_with_previous},
      {"MergedWithNext", Delimiter::merged_with_next},
      {"Contiguous", Delimiter::contiguous}};
  const std::string behavior = split.text("behavior");
  for (const auto& [name, delimiter] : kBehaviors) {
    if (behavior == name) return delimiter;
  }
  not_supported("split behavior", behavior, split.where());
}

SplitStep parse_split(const JsonObject& split) {
  SplitStep step;
  const JsonObject pattern = split.object("pattern");
  step.literal = !pattern.has("Regex");
  step.pattern = step.literal ? plain_pattern(split) : pattern.text("Regex");
  step.delimiter = parse_behavior(split);
  step.invert = split.flag_or("invert", false);
  return step;
}

SplitStep parse_byte_level(const JsonObject& part) {
  SplitStep step;
  if (part.flag_or("add_prefix_space", true)) {
    step.prefix_rule = PrefixRule::every_piece;
    step.prefix = " ";
  }
  if (part.flag_or("use_regex", true)) step.pattern = kByteLevelPattern;
  return step;
}

PrefixRule parse_prepend_scheme(const JsonObject& part) {
  const std::string scheme = part.text_or("prepend_scheme", "always");
  const bool asked = part.flag_or("add_prefix_space", true);  // an older name of the same option
  if (!asked && part.has("prepend_scheme") && scheme != "never")
    input_error("add_prefix_space and prepend_scheme contradict each other", part.where());
  if (!asked || scheme == "never") return PrefixRule::no_piece;
  if (scheme == "always") return PrefixRule::every_piece;
  if (scheme == "first") return PrefixRule::first_of_text;
  not_supported("prepend_scheme", scheme, part.where());
}

SplitStep parse_metaspace(const JsonObject& part) {
  SplitStep step;
  step.space = step.prefix = part.text("replacement");
  if (step.space.empty()) input_error("an empty replacement", part.where());
  if (step.space.size() > kMaxCharacter) input_error("a replacement must be one character", part.where());
  step.prefix_rule = parse_prepend_scheme(part);
  if (part.flag_or("split", true)) step.pattern = step.space;
  step.literal = true;
  step.delimiter = Delimiter::merged_with_next;
  return step;
}

void append_steps(const JsonObject& part, PreTokenizer& out) {
  const std::string type = part.text("type");
  if (out.byte_level) not_supported("a pre-tokenizer after ByteLevel,", type, part.where());
  if (type == "Sequence") {
    const boost::json::array& parts = part.array("pretokenizers");
    for (std::size_t i = 0; i < parts.size(); ++i)
      append_steps({parts[i], part.where() + "[" + std::to_string(i) + "]"}, out);
  } else if (type == "Split") {
    out.steps.push_back(parse_split(part));
  } else if (type == "Digits") {
    const bool individual = part.flag_or("individual_digits", false);
    out.steps.push_back({.pattern = individual ? R"(\p{N})" : R"(\p{N}+)"});
  } else if (type == "ByteLevel") {
    out.byte_level = true;
    out.steps.push_back(parse_byte_level(part));
  } else if (type == "Metaspace") {
    out.steps.push_back(parse_metaspace(part));
  } else {
    not_supported("pre-tokenizer", type, part.where());
  }
}

/// A range of the text, in UTF-16 units.
struct Range {
  std::int32_t begin, end;
  bool at_start;  ///< no part of the text precedes it
};

/// A text and the pieces into which it is split.
struct Pieces {
  icu::UnicodeString text;
  std::vector<Range> ranges;
};

/// Splits one piece into its matches and the text between them, which become the new pieces.
class PieceCutter {
 public:
  PieceCutter(Delimiter delimiter, std::vector<Range>& out) : delimiter_(delimiter), out_(out) {}

  void begin_piece() { first_ = out_.size(); }
  void add(const Range& part, bool is_match) {
    if (part.begin == part.end) return;
    const bool joins = out_.size() > first_ && joins_last(is_match);
    last_was_match_ = is_match;
    if (joins) {
      out_.back().end = part.end;
    } else if (!is_match || delimiter_ != Delimiter::removed) {
      out_.push_back(part);
    }
  }

 private:
  bool joins_last(bool is_match) const {
    switch (delimiter_) {
      case Delimiter::merged_with_previous:
        return is_match && !last_was_match_;
      case Delimiter::merged_with_next:
        return !is_match && last_was_match_;
      case Delimiter::contiguous:
        return is_match == last_was_match_;
      case Delimiter::isolated:
      case Delimiter::removed:
        break;
    }
    return false;
  }

  Delimiter delimiter_;
  std::vector<Range>& out_;
  std::size_t first_ = 0;
  bool last_was_match_ = false;
};

}  // namespace

PreTokenizer parse_pre_tokenizer(const JsonObject& json) {
  PreTokenizer result;
  append_steps(json, result);
  return result;
}

struct TextSplitter::State {
  struct Step {
    SplitStep what;
    icu::UnicodeString space, prefix;
    std::unique_ptr<icu::RegexPattern> pattern;  // null: no split
  };

  void rewrite(const Step& step, Pieces& pieces) const;
  void cut(const Step& step, Pieces& pieces) const;

  std::vector<Step> steps;
  std::string where;
};

TextSplitter::TextSplitter(std::vector<SplitStep> steps, const std::string& where)
    : state_(std::make_unique<State>()) {
  state_->where = where;
  for (SplitStep& step : steps) {
    std::unique_ptr<icu::RegexPattern> pattern;
    if (!step.pattern.empty()) {
      const std::string part = step.literal ? "" : ambiguous_part(step.pattern);
      if (!part.empty()) {
        input_error(
            "the pattern " + in_quotes(step.pattern) + " uses " + part + ", which engines read differently",
            where, "Tokenize the prompt elsewhere and pass the ids with --tokens.");
      }
      // Uses Oniguruma's lines: only \n ends a line, and ^ and $ match at the ends of every line.
      const std::uint32_t flags = step.literal ? UREGEX_LITERAL : UREGEX_UNIX_LINES | UREGEX_MULTILINE;
      UErrorCode status = U_ZERO_ERROR;
      UParseError position{};
      pattern.reset(icu::RegexPattern::compile(from_utf8(step.pattern), flags, position, status));
      require(status, "the pattern " + in_quotes(step.pattern) + " is not understood", where);
    }
    icu::UnicodeString space = from_utf8(step.space), prefix = from_utf8(step.prefix);
    state_->steps.push_back({std::move(step), std::move(space), std::move(prefix), std::move(pattern)});
  }
}

TextSplitter::~TextSplitter() = default;

/// Replaces spaces and puts the prefix before pieces, as the step says.
void TextSplitter::State::rewrite(const Step& step, Pieces& pieces) const {
  icu::UnicodeString text;
  for (Range& range : pieces.ranges) {
    icu::UnicodeString piece(pieces.text, range.begin, range.end - range.begin);
    if (!step.space.isEmpty()) piece.findAndReplace(icu::UnicodeString(u' '), step.space);
    const PrefixRule rule = step.what.prefix_rule;
    const bool wanted =
        rule == PrefixRule::every_piece || (rule == PrefixRule::first_of_text && range.at_start);
    range.begin = text.length();
    if (wanted && !piece.startsWith(step.prefix)) text.append(step.prefix);
    text.append(piece);
    range.end = text.length();
  }
  pieces.text = std::move(text);
}

void TextSplitter::State::cut(const Step& step, Pieces& pieces) const {
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(step.pattern->matcher(pieces.text, status));
  if (matcher != nullptr) {
    matcher->setTimeLimit(kMatchTimeLimit, status);
    matcher->setStackLimit(kMatchStackBytes, status);
  }
  std::vector<Range> ranges;
  PieceCutter cutter(step.what.delimiter, ranges);
  for (const Range& piece : pieces.ranges) {
    cutter.begin_piece();
    std::int32_t done = piece.begin;
    const auto add = [&](std::int32_t end, bool is_match) {
      cutter.add({done, end, piece.at_start && done == piece.begin}, is_match != step.what.invert);
      done = end;
    };
    // Matching must not see text outside the piece; the bounds of a region are opaque and anchoring.
    if (U_SUCCESS(status)) matcher->region(piece.begin, piece.end, status);
    while (U_SUCCESS(status) && matcher->find(status)) {
      if (matcher->start(status) == matcher->end(status)) continue;
      add(matcher->start(status), false);
      add(matcher->end(status), true);
    }
    require(status, "the pattern " + in_quotes(step.what.pattern) + " failed on the text", where);
    add(piece.end, false);
  }
  pieces.ranges = std::move(ranges);
}

std::vector<std::string> TextSplitter::split(std::string_view text, bool at_start) const {
  Pieces pieces{from_utf8(text), {}};
  if (!text.empty()) pieces.ranges.push_back({0, pieces.text.length(), at_start});
  for (const State::Step& step : state_->steps) {
    if (!step.space.isEmpty() || step.what.prefix_rule != PrefixRule::no_piece) state_->rewrite(step, pieces);
    if (step.pattern != nullptr) state_->cut(step, pieces);
  }
  std::vector<std::string> out;
  out.reserve(pieces.ranges.size());
  for (const Range& range : pieces.ranges)
    pieces.text.tempSubStringBetween(range.begin, range.end).toUTF8String(out.emplace_back());
  return out;
}

}  // namespace kvsim::model
