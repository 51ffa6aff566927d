#pragma once
/// Opens tokenizer.json, the file of Hugging Face tokenizers: byte-pair encoding on bytes (GPT-2, Llama 3,
/// Qwen, SmolLM) or on characters (Llama 2, TinyLlama, Mistral).
#include <string>
#include <string_view>

#include "traces/model/tokenizer.hpp"

namespace kvsim {
class JsonObject;
}

namespace kvsim::model {

/// Parses `text`, the content of the file that messages call `path`. Throws Error(input) naming a part that
/// is not supported.
Tokenizer parse_tokenizer_json(const std::string& text, const std::string& path);

// Helpers that the parsers of its parts share.

/// Throws Error(input): "normalizer "Foo" is not supported", at `where`.
[[noreturn]] void not_supported(const std::string& part, const std::string& type, const std::string& where);
/// The string of a member "pattern"; regular expressions are refused.
std::string plain_pattern(const JsonObject& json);
/// Limit on a rewritten text, because a sequence of steps could lengthen it without end.
inline constexpr std::size_t kMaxRewrittenBytes = 4 * kMaxTextBytes;
/// `text` with every occurrence of `pattern`, from left to right, replaced by `content`. Throws Error(input)
/// when the result exceeds `most` bytes.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content,
                        std::size_t most = kMaxRewrittenBytes);

}  // namespace kvsim::model
