#include "traces/model/tokenizers/token_decoder.hpp"

#include "sim/base/error.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizers/byte_level.hpp"
#include "traces/model/tokenizers/byte_token.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"

namespace kvsim::model {
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
