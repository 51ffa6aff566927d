#pragma once
/// Damages texts as untrusted input may be damaged; seeded, so that a failure can be repeated.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::fuzz {

/// The random draws of one iteration.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::size_t below(std::size_t n) {
    return static_cast<std::size_t>(uniform01(combine({seed_, count_++})) * static_cast<double>(n));
  }

 private:
  std::uint64_t seed_, count_ = 0;
};

/// Pieces of JSON that are known to break readers.
inline const std::vector<std::string> kPieces{"0",
                                              "-1",
                                              "1e3",
                                              "4294967296",
                                              "18446744073709551615",
                                              "18446744073709551616",
                                              "null",
                                              "true",
                                              "[]",
                                              "{}",
                                              "\"\"",
                                              "\"F32\"",
                                              "[0,0]",
                                              "[4294967296,4294967296]",
                                              "[[[[[[[[",
                                              "{\"a\":",
                                              ",",
                                              ":",
                                              "\"",
                                              "\\u0000",
                                              "\xff",
                                              "NaN"};

/// Makes one to four edits: bytes changed, cut, repeated, or replaced by a piece.
inline std::string damage(std::string text, Dice& dice) {
  for (std::size_t edits = 1 + dice.below(4); edits > 0 && !text.empty(); --edits) {
    const std::size_t at = dice.below(text.size()), length = std::min(text.size() - at, 1 + dice.below(12));
    switch (dice.below(6)) {
      case 0:
        text[at] = static_cast<char>(dice.below(256));
        break;
      case 1:
        text[at] = static_cast<char>(text[at] ^ (1 << dice.below(8)));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(dice.below(text.size()), length));
        break;
      case 4:
        text.replace(at, length, kPieces[dice.below(kPieces.size())]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

/// Like damage(), but replaces a whole JSON value by another one, so that more inputs get past the parser.
inline std::string replace_value(std::string text, Dice& dice) {
  const std::size_t colon = text.find(':', dice.below(text.size()));
  if (colon == std::string::npos) return text;
  const std::size_t end = std::min(text.find_first_of(",}]", colon + 1), text.size());
  return text.replace(colon + 1, end - colon - 1, kPieces[dice.below(14)]);
}

inline std::string mutate(const std::string& text, Dice& dice) {
  return dice.below(2) == 0 ? damage(text, dice) : replace_value(text, dice);
}

/// Runs `read`; returns whether it accepts. Any exception but Error(input) escapes and fails the test.
template <class Read>
bool accepts(Read read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) throw;
    REQUIRE(std::strlen(error.what()) > 0);
    return false;
  }
}

}  // namespace kvsim::fuzz
