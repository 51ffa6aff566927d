#pragma once
/// A SentencePiece model small enough to reason about, with one rule of normalization: "A" is read as "b".
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "traces/model/tokenizers/byte_level.hpp"
#include "traces/model/tokenizers/sentencepiece_file.hpp"

namespace kvsim::model {

/// The units of a double array, as darts-clone stores them, and the table they point into.
struct SmallCharsmap {
  static constexpr std::uint32_t kRoot = 256, kValues = 512, kEndsRule = 1U << 8, kValue = 1U << 31;
  /// A unit at `at` that carries `label` and whose children are found from `base` on.
  static std::uint32_t unit(std::uint32_t at, std::uint32_t base, std::uint32_t label, bool ends_rule) {
    return (at ^ base) << 10 | (ends_rule ? kEndsRule : 0) | label;
  }

  std::vector<std::uint32_t> units = std::vector<std::uint32_t>(768);
  std::string replacements{"b\0", 2};

  SmallCharsmap() {
    units[0] = unit(0, kRoot, 0, false);
    // A unit that no walk reaches has a label that matches no byte, as builders leave it.
    for (std::uint32_t i = 1; i < units.size(); ++i) units[i] = kValue;
    units[kRoot ^ 'A'] = unit(kRoot ^ 'A', kValues, 'A', true);
    units[kValues] = kValue | 0;
  }
  std::string text() const {
    const auto bytes = static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t));
    std::string out(sizeof bytes + bytes, '\0');
    std::memcpy(out.data(), &bytes, sizeof bytes);
    std::memcpy(out.data() + sizeof bytes, units.data(), bytes);
    return out + replacements;
  }
};

/// <unk> 0, <s> 1, </s> 2, the bytes from 3 on, then _a 259, b 260, ab 261, _ 262, a 263.
inline SentencePieceFile small_sentencepiece(bool merges) {
  using Kind = SentencePieceFile::Kind;
  SentencePieceFile file;
  file.merges = merges;
  file.byte_fallback = true;
  file.remove_extra_whitespaces = false;
  file.charsmap = SmallCharsmap().text();
  file.pieces = {{"<unk>", 0, Kind::unknown}, {"<s>", 0, Kind::control}, {"</s>", 0, Kind::control}};
  for (unsigned byte = 0; byte < 256; ++byte)
    file.pieces.push_back({byte_token_text(static_cast<unsigned char>(byte)), 0, Kind::byte});
  file.pieces.insert(file.pieces.end(), {{"\u2581a", -1, Kind::normal},
                                         {"b", -4, Kind::normal},
                                         {"ab", -2, Kind::normal},
                                         {"\u2581", -5, Kind::normal},
                                         {"a", -3, Kind::normal}});
  return file;
}

}  // namespace kvsim::model
