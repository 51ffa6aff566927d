#pragma once
/// What a SentencePiece model file says (sentencepiece_model.proto), checked. The library trusts such a file:
/// a double array in it is walked without bounds. So it is given none but those written here anew.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::model {

struct SentencePieceFile {
  enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;  ///< not empty; UTF-8; a space is U+2581
    float score = 0;   ///< finite
    Kind kind = Kind::normal;
  };

  std::vector<Piece> pieces;  ///< of each id
  bool merges = false;        ///< byte-pair encoding; else a unigram language model
  bool byte_fallback = false;
  std::string charsmap;  ///< compiled rules of normalization; empty: none
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// Throws Error(input) naming `where`.
SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& where);
/// A model file of the same content, without what encoding does not look at.
std::string write_sentencepiece_file(const SentencePieceFile& file);

}  // namespace kvsim::model
