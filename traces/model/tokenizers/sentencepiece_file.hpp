#pragma once
/// Reads, checks and rewrites a SentencePiece model file (sentencepiece_model.proto). The library trusts its
/// files and walks the double array in them without bounds, so it is only given files that are checked and
/// written here.
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

/// The wire format of Protocol Buffers: fields, each a number and a value, in any order.
struct WireField {
  std::uint32_t number = 0;
  bool is_bytes = false;
  std::uint64_t integer = 0;  ///< a varint, or the bits of a fixed-width number
  std::string_view bytes{};
};

/// Reads the fields of one untrusted message.
class WireReader {
 public:
  /// `where` names the message in errors. `message` must outlive this.
  WireReader(std::string_view message, const std::string& where) : rest_(message), where_(where) {}
  /// Reads the next field; returns false at the end. Throws Error(input) on bytes that are not a field.
  bool next(WireField& field);

 private:
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t bytes);

  std::string_view rest_;
  const std::string& where_;
};

void put_integer(std::string& message, std::uint32_t number, std::uint64_t value);
void put_float(std::string& message, std::uint32_t number, float value);
/// Appends a string, bytes or a message.
void put_bytes(std::string& message, std::uint32_t number, std::string_view bytes);

}  // namespace kvsim::model
