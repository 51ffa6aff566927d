#include "traces/model/tokenizers/token_table.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizers/byte_level.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"
#include "traces/model/unicode_text.hpp"

namespace kvsim::model {
namespace {

constexpr std::size_t kMaxTableBytes = 256ULL << 20;

}  // namespace

void TokenTable::place(std::int32_t id, std::string bytes) {
  const auto index = static_cast<std::size_t>(id);
  if (bytes_.size() <= index) bytes_.resize(index + 1);
  const std::size_t total = total_ - bytes_[index].size() + bytes.size();
  if (total > kMaxTableBytes) input_error("the tokens stand for more than 256 MiB", "tokenizer");
  total_ = total;
  bytes_[index] = std::move(bytes);
}

const std::string& TokenTable::bytes(std::int32_t id) const {
  static const std::string kNothing;
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < bytes_.size() ? bytes_[index] : kNothing;
}

std::vector<std::string> TokenTable::spell(std::span<const std::int32_t> ids) const {
  std::vector<std::string> pieces;
  pieces.reserve(ids.size());
  bool begins = leading_space_ != LeadingSpace::kept;
  for (const std::int32_t id : ids) {
    std::string& piece = pieces.emplace_back(bytes(id));
    if (is_special(id)) {
      begins = begins || leading_space_ == LeadingSpace::run_dropped;
    } else if (begins && !piece.empty()) {
      const std::size_t spaces = std::min(piece.find_first_not_of(' '), piece.size());
      piece.erase(0, leading_space_ == LeadingSpace::token_bared ? spaces : std::min<std::size_t>(spaces, 1));
      begins = false;
    }
  }
  return pieces;
}

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

namespace {

constexpr std::size_t kMaxTokenBytes = 1 << 20;  // limit for a token whose text was rewritten

}  // namespace

TokenDecoder::TokenDecoder(const JsonObject& json) {
  const std::string type = json.text("type");
  byte_level_ = type == "ByteLevel";
  if (byte_level_) return;
  if (type == "Metaspace") {
    const std::string space = json.text("replacement");
    if (space.empty()) input_error("an empty replacement", json.where());
    replacements_.emplace_back(space, " ");
    const bool prefixed =
        json.text_or("prepend_scheme", "always") != "never" && json.flag_or("add_prefix_space", true);
    if (prefixed) leading_space_ = LeadingSpace::token_bared;
  } else if (type == "Sequence") {
    parse_sequence(json);
  } else {
    not_supported("decoder", type, json.where());
  }
}

void TokenDecoder::parse_sequence(const JsonObject& json) {
  bool fused = false;
  for (const boost::json::value& value : json.array("decoders")) {
    const JsonObject part(value, json.where());
    const std::string type = part.text("type");
    if (type == "Replace" && !byte_fallback_ && !fused) {
      replacements_.emplace_back(plain_pattern(part), part.text("content"));
    } else if (type == "ByteFallback" && !fused) {
      byte_fallback_ = true;
    } else if (type == "Fuse") {
      fused = true;
    } else if (type == "Strip" && fused && part.text("content") == " " &&
               part.integer("start", 0, 1024) == 1 && part.integer("stop", 0, 1024) == 0) {
      leading_space_ = LeadingSpace::dropped;
    } else {
      not_supported("decoder", type + " (there, or so)", json.where());
    }
  }
}

std::string TokenDecoder::bytes(const std::string& token) const {
  if (byte_level_) return bytes_of_alphabet(token);
  std::string text = token;
  for (const auto& [pattern, content] : replacements_)
    text = replace_all(text, pattern, content, kMaxTokenBytes);
  if (byte_fallback_) {
    if (const std::optional<char> byte = byte_of_token(text)) return std::string(1, *byte);
  }
  return text;
}

}  // namespace kvsim::model
