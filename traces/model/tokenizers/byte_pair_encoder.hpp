#pragma once
/// Byte-pair encoding (Sennrich et al. 2016): a piece of text is a string of symbols, and the pair of
/// neighbours with the lowest merge rank is joined until no pair has a rank. Symbols are bytes (Radford et
/// al. 2019) or characters.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvsim::model {

struct BytePairModel {
  std::unordered_map<std::string, std::int32_t> vocabulary{};
  std::vector<std::pair<std::string, std::string>> merges{};  ///< in rank order, in the vocabulary's spelling
  bool byte_level = false;     ///< symbols are bytes, spelled in the byte-level alphabet; else characters
  bool ignore_merges = false;  ///< a piece that is itself a token is not split
  bool byte_fallback = false;  ///< a character that the vocabulary lacks becomes the tokens <0x00> .. <0xFF>
  std::string unknown{};       ///< token for a symbol that the vocabulary lacks; empty: none
  bool fuse_unknown = false;   ///< consecutive unknown symbols become one unknown token
};

class BytePairEncoder {
 public:
  /// Throws Error(input) naming `where` when a merge's parts or result, or the unknown token, are not in the
  /// vocabulary.
  BytePairEncoder(BytePairModel model, const std::string& where);

  /// Appends the tokens of one piece of UTF-8 in O(n log n) time. Throws Error(input) naming a symbol that
  /// the vocabulary lacks.
  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;
  const std::unordered_map<std::string, std::int32_t>& vocabulary() const { return model_.vocabulary; }

 private:
  struct Merge {
    std::uint32_t rank;
    std::int32_t result;
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::int32_t find(std::string_view token) const;
  std::vector<std::int32_t> symbols_of(std::string_view piece) const;
  void join(const std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& out) const;

  BytePairModel model_;
  std::unordered_map<std::uint64_t, Merge> merges_;
  // Token of each byte, spelled in the byte-level alphabet and as <0x00>; -1 if it is not in the vocabulary.
  std::array<std::int32_t, 256> byte_token_{}, fallback_token_{};
  std::int32_t unknown_ = -1;
  std::string where_;
};

}  // namespace kvsim::model
