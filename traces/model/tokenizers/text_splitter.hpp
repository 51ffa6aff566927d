#pragma once
/// Splits text into the pieces that a tokenizer encodes one by one ("pre-tokenization").
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

/// What a split does with the matches of its pattern.
enum class Delimiter { isolated, removed, merged_with_previous, merged_with_next, contiguous };
/// Which pieces get the prefix.
enum class PrefixRule { no_piece, first_of_text, every_piece };

/// One step that splits text into pieces.
struct SplitStep {
  std::string space{};  ///< replacement of every space; empty: spaces are kept
  PrefixRule prefix_rule = PrefixRule::no_piece;
  std::string prefix{};   ///< put before a piece that does not already begin with it
  std::string pattern{};  ///< regular expression to split by; empty: no split
  bool literal = false;   ///< `pattern` is plain text
  Delimiter delimiter = Delimiter::isolated;
  bool invert = false;  ///< exchanges matches and the text between them
};

/// The "pre_tokenizer" of tokenizer.json.
struct PreTokenizer {
  std::vector<SplitStep> steps;
  bool byte_level = false;  ///< pieces are encoded as bytes
};
/// Throws Error(input) naming a part that is not supported, that is, any but Split, Digits, ByteLevel,
/// Metaspace and Sequence.
PreTokenizer parse_pre_tokenizer(const JsonObject& json);

/// Splits text by each step in turn, every step within the pieces of the step before.
class TextSplitter {
 public:
  /// Throws Error(input) naming `where` when a pattern is not a regular expression of ICU, or ICU reads it
  /// differently from the tokenizer's own engine (Oniguruma).
  TextSplitter(std::vector<SplitStep> steps, const std::string& where);
  ~TextSplitter();
  /// Splits UTF-8 `text`; `at_start` says that no text precedes it. Throws Error(input) when a pattern takes
  /// too long.
  std::vector<std::string> split(std::string_view text, bool at_start) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::model
