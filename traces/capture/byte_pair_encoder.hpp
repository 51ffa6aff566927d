#pragma once
/// Byte-level byte-pair encoding (Sennrich et al. 2016; on bytes, Radford et al. 2019): text is a string of
/// bytes, and the pair of neighbours with the lowest merge rank is joined until none is left.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvsim::capture {

/// Byte-level vocabularies write each byte as one printable character: itself where it is printable, else one
/// of the characters from U+0100 on. Translates text in that alphabet back; text that is not in it stays as
/// it is.
std::string bytes_of_alphabet(std::string_view text);
/// And forth.
std::string alphabet_of_bytes(std::string_view bytes);

class BytePairEncoder {
 public:
  using Vocabulary = std::unordered_map<std::string, std::int32_t>;
  /// `merges`: pairs in rank order, in the vocabulary's spelling. Throws Error(input) naming `where` when a
  /// merge's parts or result are not in the vocabulary. `ignore_merges`: a piece that is a token stays whole.
  BytePairEncoder(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges,
                  bool ignore_merges, const std::string& where);

  /// Appends the tokens of one piece. Throws Error(input) naming a byte the vocabulary lacks.
  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t result;
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }

  Vocabulary vocabulary_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::array<std::int32_t, 256> byte_token_{};  // -1: not in the vocabulary
  bool ignore_merges_;
  std::string where_;
};

}  // namespace kvsim::capture
