#pragma once
/// Reads, checks and rewrites a SentencePiece model file (sentencepiece_model.proto). The library trusts its
/// files and walks the double array in them without bounds, so it is only given files that are checked and
/// written here.
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

  std::vector<Piece> pieces;  ///< by id
  bool merges = false;        ///< true: byte-pair encoding; false: a unigram language model
  bool byte_fallback = false;
  std::string charsmap;  ///< compiled normalization rules; empty: none
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// Throws Error(input) naming `where`.
SentencePieceFile parse_sentencepiece_file(std::string_view bytes, const std::string& where);
/// A model file of the same content, without the fields that encoding ignores.
std::string write_sentencepiece_file(const SentencePieceFile& file);

}  // namespace kvsim::model
