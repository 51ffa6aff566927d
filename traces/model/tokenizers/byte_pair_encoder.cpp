#include "traces/model/tokenizers/byte_pair_encoder.hpp"

#include <algorithm>
#include <queue>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "traces/model/tokenizers/byte_level.hpp"

namespace kvsim::model {
namespace {

constexpr std::uint32_t kNone = ~0U;

/// A symbol in a doubly linked list; a joined symbol takes the place of its left half.
struct Symbol {
  std::int32_t token;  // -1: joined to its left neighbour
  std::uint32_t previous, next;
};

/// A possible merge, ordered by rank, then from left to right.
struct Candidate {
  std::uint32_t rank, left;
  std::int32_t left_token, right_token, result;
  bool operator>(const Candidate& other) const {
    return std::pair(rank, left) > std::pair(other.rank, other.left);
  }
};

/// Bytes of the UTF-8 character that begins with `lead`.
std::size_t character_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

}  // namespace

BytePairEncoder::BytePairEncoder(BytePairModel model, const std::string& where)
    : model_(std::move(model)), where_(where) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_token_[byte] = find(alphabet_of_bytes(std::string(1, static_cast<char>(byte))));
    fallback_token_[byte] = find(byte_token_text(static_cast<unsigned char>(byte)));
  }
  if (!model_.unknown.empty()) {
    unknown_ = find(model_.unknown);
    if (unknown_ < 0)
      input_error("the unknown token " + in_quotes(model_.unknown) + " is not in the vocabulary", where_);
  }
  merges_.reserve(model_.merges.size());
  for (std::size_t rank = 0; rank < model_.merges.size(); ++rank) {
    const auto token = [&](const std::string& text) {
      const std::int32_t found = find(text);
      if (found < 0)
        input_error("merge " + std::to_string(rank) + ": " + in_quotes(text) + " is not in the vocabulary",
                    where_);
      return found;
    };
    const auto& [left, right] = model_.merges[rank];
    const Merge merge{static_cast<std::uint32_t>(rank), token(left + right)};
    if (!merges_.emplace(key(token(left), token(right)), merge).second)
      input_error("merge " + std::to_string(rank) + " repeats an earlier one", where_);
  }
  model_.merges = {};
}

std::int32_t BytePairEncoder::find(std::string_view token) const {
  const auto found = model_.vocabulary.find(std::string(token));
  return found == model_.vocabulary.end() ? -1 : found->second;
}

/// The initial symbols of a piece. As in Hugging Face tokenizers, a pending unknown token is written when a
/// known symbol follows, but not before bytes that stand for a character.
std::vector<std::int32_t> BytePairEncoder::symbols_of(std::string_view piece) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(piece.size());
  bool pending = false;
  for (std::size_t at = 0, length = 0; at < piece.size(); at += length) {
    length = model_.byte_level ? 1 : std::min(character_bytes(piece[at]), piece.size() - at);
    const std::string_view symbol = piece.substr(at, length);
    const std::int32_t token =
        model_.byte_level ? byte_token_[static_cast<unsigned char>(piece[at])] : find(symbol);
    const auto fallback = [&](char byte) { return fallback_token_[static_cast<unsigned char>(byte)]; };
    if (token >= 0) {
      if (pending) tokens.push_back(unknown_);
      pending = false;
      tokens.push_back(token);
    } else if (model_.byte_fallback &&
               std::all_of(symbol.begin(), symbol.end(), [&](char byte) { return fallback(byte) >= 0; })) {
      for (const char byte : symbol) tokens.push_back(fallback(byte));
    } else if (unknown_ >= 0) {
      if (pending && !model_.fuse_unknown) tokens.push_back(unknown_);
      pending = true;
    } else {
      const std::string name = length == 1 ? "byte " + std::to_string(static_cast<unsigned char>(piece[at]))
                                           : in_quotes(std::string(symbol));
      input_error("the vocabulary has no token for " + name, where_, "Pass token ids with --tokens.");
    }
  }
  if (pending) tokens.push_back(unknown_);
  return tokens;
}

void BytePairEncoder::join(const std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& out) const {
  const auto length = static_cast<std::uint32_t>(tokens.size());
  std::vector<Symbol> symbols(length);
  for (std::uint32_t i = 0; i < length; ++i)
    symbols[i] = {tokens[i], i == 0 ? kNone : i - 1, i + 1 == length ? kNone : i + 1};

  // Entries whose symbols have changed since they were pushed are skipped.
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

void BytePairEncoder::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (model_.ignore_merges) {
    const std::int32_t whole = find(model_.byte_level ? alphabet_of_bytes(piece) : std::string(piece));
    if (whole >= 0) return out.push_back(whole);
  }
  join(symbols_of(piece), out);
}

}  // namespace kvsim::model
