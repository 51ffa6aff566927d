#pragma once
/// The "decoder" of tokenizer.json: converts a token of the vocabulary to the bytes it stands for.
#include <string>
#include <utility>
#include <vector>

#include "traces/model/tokenizers/token_table.hpp"

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

class TokenDecoder {
 public:
  /// The decoder of byte-level vocabularies.
  TokenDecoder() = default;
  /// Throws Error(input) naming a part that is not supported, that is, any but ByteLevel, Metaspace, and
  /// Sequences of Replace, ByteFallback, Fuse and Strip (of one space before the text), in that order.
  explicit TokenDecoder(const JsonObject& json);

  bool byte_level() const { return byte_level_; }
  LeadingSpace leading_space() const { return leading_space_; }
  std::string bytes(const std::string& token) const;

 private:
  void parse_sequence(const JsonObject& json);

  bool byte_level_ = true, byte_fallback_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  LeadingSpace leading_space_ = LeadingSpace::kept;
};

}  // namespace kvsim::model
