#pragma once
/// Wraps Debian's SentencePiece library, if kvsim was built with it.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "traces/model/tokenizers/sentencepiece_file.hpp"

namespace kvsim::model {

/// Whether kvsim was built with it.
bool has_sentencepiece();

class SentencePieceModel {
 public:
  /// Throws Error(input) naming `where` when the library refuses the model or kvsim was built without it.
  SentencePieceModel(const SentencePieceFile& file, const std::string& where);
  ~SentencePieceModel();

  /// Ids of UTF-8 text, normalized by the model's rules.
  std::vector<std::int32_t> encode(std::string_view text) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::model
