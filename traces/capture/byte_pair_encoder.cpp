#include "traces/capture/byte_pair_encoder.hpp"

#include <queue>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"

namespace kvsim::capture {
namespace {

constexpr unsigned kFirstStandIn = 0x100;

constexpr bool is_printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// Character of each byte.
constexpr std::array<unsigned, 256> make_alphabet() {
  std::array<unsigned, 256> alphabet{};
  unsigned stand_in = kFirstStandIn;
  for (unsigned byte = 0; byte < 256; ++byte) alphabet[byte] = is_printable(byte) ? byte : stand_in++;
  return alphabet;
}
constexpr std::array<unsigned, 256> kAlphabet = make_alphabet();
constexpr unsigned kAlphabetEnd = kFirstStandIn + 68;  // 68 bytes are not printable

constexpr std::array<int, kAlphabetEnd> make_inverse() {
  std::array<int, kAlphabetEnd> inverse{};
  for (int& byte : inverse) byte = -1;
  for (unsigned byte = 0; byte < 256; ++byte) inverse[kAlphabet[byte]] = static_cast<int>(byte);
  return inverse;
}
constexpr std::array<int, kAlphabetEnd> kInverse = make_inverse();

/// UTF-8 of a character below U+0800.
void append_character(std::string& text, unsigned character) {
  if (character < 0x80) {
    text += static_cast<char>(character);
  } else {
    text += static_cast<char>(0xc0 | character >> 6);
    text += static_cast<char>(0x80 | (character & 0x3f));
  }
}

}  // namespace

std::string bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned character = static_cast<unsigned char>(text[i]);
    if (character >= 0x80) {
      if ((character & 0xe0) != 0xc0 || i + 1 == text.size()) return std::string(text);
      character = (character & 0x1f) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f);
    }
    if (character >= kAlphabetEnd || kInverse[character] < 0) return std::string(text);
    bytes += static_cast<char>(kInverse[character]);
  }
  return bytes;
}

std::string alphabet_of_bytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_character(text, kAlphabet[static_cast<unsigned char>(byte)]);
  return text;
}

BytePairEncoder::BytePairEncoder(Vocabulary vocabulary,
                                 const std::vector<std::pair<std::string, std::string>>& merges,
                                 bool ignore_merges, const std::string& where)
    : vocabulary_(std::move(vocabulary)), ignore_merges_(ignore_merges), where_(where) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary_.find(alphabet_of_bytes(std::string(1, static_cast<char>(byte))));
    byte_token_[byte] = found == vocabulary_.end() ? -1 : found->second;
  }
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto token = [&](const std::string& text) {
      const auto found = vocabulary_.find(text);
      if (found == vocabulary_.end())
        input_error("merge " + std::to_string(rank) + ": " + quoted(text) + " is not in the vocabulary",
                    where_);
      return found->second;
    };
    const auto& [left, right] = merges[rank];
    const Merge merge{static_cast<std::uint32_t>(rank), token(left + right)};
    if (!merges_.emplace(key(token(left), token(right)), merge).second)
      input_error("merge " + std::to_string(rank) + " repeats an earlier one", where_);
  }
}

void BytePairEncoder::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (ignore_merges_) {
    if (const auto whole = vocabulary_.find(alphabet_of_bytes(piece)); whole != vocabulary_.end())
      return out.push_back(whole->second);
  }
  // Symbols form a doubly linked list; a joined symbol lives on in its left half.
  constexpr std::uint32_t kNone = ~0U;
  struct Symbol {
    std::int32_t token;  // -1: joined to its left neighbour
    std::uint32_t previous, next;
  };
  const auto length = static_cast<std::uint32_t>(piece.size());
  std::vector<Symbol> symbols(length);
  for (std::uint32_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(piece[i]);
    if (byte_token_[byte] < 0) {
      input_error("the vocabulary has no token for byte " + std::to_string(byte), where_,
                  "Pass token ids with --tokens.");
    }
    symbols[i] = {byte_token_[byte], i == 0 ? kNone : i - 1, i + 1 == length ? kNone : i + 1};
  }

  // Lowest rank first, leftmost first among equals. Entries whose symbols have changed since are skipped.
  struct Candidate {
    std::uint32_t rank, left;
    std::int32_t left_token, right_token, result;
    bool operator>(const Candidate& other) const {
      return std::pair(rank, left) > std::pair(other.rank, other.left);
    }
  };
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::uint32_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    const std::int32_t a = symbols[left].token, b = symbols[symbols[left].next].token;
    const auto found = merges_.find(key(a, b));
    if (found != merges_.end()) queue.push({found->second.rank, left, a, b, found->second.result});
  };
  for (std::uint32_t i = 0; i + 1 < length; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.token != best.left_token || left.next == kNone || symbols[left.next].token != best.right_token)
      continue;
    Symbol& right = symbols[left.next];
    left.token = best.result;
    left.next = right.next;
    right.token = -1;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.token >= 0) out.push_back(symbol.token);
  }
}

}  // namespace kvsim::capture
