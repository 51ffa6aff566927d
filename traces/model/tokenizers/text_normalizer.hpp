#pragma once
/// The "normalizer" of tokenizer.json, which rewrites text before it is split.
#include <string>
#include <string_view>
#include <vector>

#include "traces/model/unicode_text.hpp"

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

class TextNormalizer {
 public:
  /// Leaves text unchanged.
  TextNormalizer() = default;
  /// Throws Error(input) naming a step that is not supported, that is, any but NFC, NFD, NFKC, NFKD,
  /// Lowercase, Prepend, Replace (of a string) and Sequence.
  explicit TextNormalizer(const JsonObject& json);

  /// Throws Error(input) when the text outgrows kMaxRewrittenBytes (tokenizer_json.hpp).
  std::string apply(std::string_view text) const;

 private:
  enum class Kind { normal_form, lowercase, prepend, replace };
  struct Step {
    Kind kind;
    NormalForm form = NormalForm::nfc;
    std::string pattern{}, content{};
  };
  void parse(const JsonObject& json);

  std::vector<Step> steps_;
};

}  // namespace kvsim::model

namespace kvsim::model {

// Checks SentencePiece's compiled normalization rules: a double array (Aoe 1989, as darts-clone stores it)
// that maps byte strings to offsets into a table of replacements.

/// Throws Error(input) naming `where` unless every walk through the array stays within it, ends, passes at
/// most 32 rules (SentencePiece has room for no more) and leads to a replacement of at most 1024 bytes.
void check_charsmap(std::string_view map, const std::string& where);

}  // namespace kvsim::model
