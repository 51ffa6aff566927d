#pragma once
/// Cutting text into the pieces that a tokenizer encodes one by one ("pre-tokenization").
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

/// What becomes of a pattern's matches.
enum class Delimiter { isolated, removed, merged_with_previous, merged_with_next, contiguous };
/// Which pieces are made to begin with the prefix.
enum class PrefixRule { no_piece, first_of_text, every_piece };

/// One way of cutting text into pieces.
struct SplitStep {
  std::string space{};  ///< what every space is written as; empty: as it is
  PrefixRule prefix_rule = PrefixRule::no_piece;
  std::string prefix{};   ///< put before a piece that does not begin with it
  std::string pattern{};  ///< regular expression that cuts; empty: no cut
  bool literal = false;   ///< `pattern` is plain text
  Delimiter delimiter = Delimiter::isolated;
  bool invert = false;  ///< what lies between matches counts as matches, and the other way round
};

/// The "pre_tokenizer" of tokenizer.json.
struct PreTokenizer {
  std::vector<SplitStep> steps;
  bool byte_level = false;  ///< pieces are encoded as bytes
};
/// Throws Error(input) naming a part that is not supported: others than Split, Digits, ByteLevel, Metaspace
/// and Sequence.
PreTokenizer parse_pre_tokenizer(const JsonObject& json);

/// Cuts text by each step in turn, every step within the pieces of the one before.
class TextSplitter {
 public:
  /// Throws Error(input) naming `where` when a pattern is not a regular expression ICU takes, or one that it
  /// reads differently from the tokenizer's own engine (Oniguruma).
  TextSplitter(std::vector<SplitStep> steps, const std::string& where);
  ~TextSplitter();
  /// `text` is UTF-8; `at_start`: nothing stood before it. Throws Error(input) when a pattern takes too long.
  std::vector<std::string> split(std::string_view text, bool at_start) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::model
