#pragma once
/// The few questions about Unicode that tokenizing asks, answered by ICU.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::capture {

/// Throws Error(input) with the offset of the first byte that is not UTF-8.
void require_utf8(std::string_view text, const std::string& where);

/// Canonical composition (NFC) of UTF-8 text.
std::string compose_nfc(std::string_view text);

/// Bytes of white space (Unicode White_Space) that `text` begins or ends with.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// What UTF-8 text consists of, white space at its ends aside. Text that mixes these, is empty or is not
/// UTF-8 is `other`.
enum class TextKind {
  white_space,  ///< Unicode White_Space only
  punctuation,  ///< general categories P (punctuation) and S (symbols)
  digits,       ///< general category Nd
  other,
};
TextKind kind_of_text(std::string_view text);

/// One way of cutting text into pieces.
struct SplitStep {
  bool prefix_space = false;  ///< first put a space before every piece that does not begin with one
  std::string pattern;        ///< regular expression whose matches become pieces; empty: no cut
  bool literal = false;       ///< `pattern` is plain text
  bool drop_matches = false, drop_rest = false;  ///< pieces that do not survive
};

/// Cuts text by each step in turn, every step within the pieces of the one before.
class TextSplitter {
 public:
  /// Throws Error(input) naming `where` when a pattern is not a regular expression ICU takes.
  TextSplitter(std::vector<SplitStep> steps, const std::string& where);
  ~TextSplitter();
  /// `text` is UTF-8. Throws Error(input) when a pattern takes too long on it.
  std::vector<std::string> split(std::string_view text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::capture
