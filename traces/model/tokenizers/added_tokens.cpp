#include "traces/model/tokenizers/added_tokens.hpp"

#include "sim/base/error.hpp"
#include "traces/model/unicode_text.hpp"

namespace kvsim::model {
namespace {

constexpr std::size_t kMaxNodes = 4ULL << 20;

std::uint64_t edge(std::uint32_t node, char byte) {
  return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

void AddedTokenFinder::add(AddedToken token, const std::string& where) {
  if (token.content.empty()) return;
  begins_[static_cast<unsigned char>(token.content[0])] = true;
  std::uint32_t node = 0;
  for (const char byte : token.content) {
    const auto [found, is_new] =
        child_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(token_at_.size()));
    if (is_new) token_at_.push_back(-1);
    if (token_at_.size() > kMaxNodes) input_error("more than 4 MiB of added tokens", where);
    node = found->second;
  }
  token_at_[node] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(std::move(token));
}

const AddedToken* AddedTokenFinder::match(std::string_view text) const {
  const AddedToken* longest = nullptr;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto found = child_.find(edge(node, byte));
    if (found == child_.end()) break;
    node = found->second;
    if (token_at_[node] >= 0) longest = &tokens_[static_cast<std::size_t>(token_at_[node])];
  }
  return longest;
}

std::vector<TextPart> AddedTokenFinder::cut(std::string_view text) const {
  std::vector<TextPart> parts;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token =
        begins_[static_cast<unsigned char>(text[at])] ? match(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->single_word && (ends_in_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
      continue;
    if (token->strip_left && begin > done) begin -= trailing_space(text.substr(done, begin - done));
    if (token->strip_right) end += leading_space(text.substr(end));
    if (begin > done) parts.push_back({text.substr(done, begin - done)});
    parts.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done)});
  return parts;
}

}  // namespace kvsim::model
