#pragma once
/// Converts text to token ids and back exactly as the checkpoint's own tokenizer does: tokenizer.json
/// (Hugging Face tokenizers), else tokenizer.model (SentencePiece), or the metadata of a GGUF file.
/// Unsupported parts are refused by name, because a tokenizer that is nearly right gives wrong ids silently.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/model/tokenizers/token_table.hpp"

namespace kvsim::model {

/// Converts text to ids; one class for each kind of file.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// Ids of the whole `text`, which is UTF-8; if `framed`, with the tokens that the tokenizer puts around it
  /// (such as a beginning-of-text token).
  virtual std::vector<std::int32_t> encode(std::string_view text, bool framed) const = 0;
};

class Tokenizer {
 public:
  /// `text` is the content of the file `path`, which messages and name() use.
  Tokenizer(std::unique_ptr<TextEncoder> encoder, TokenTable tokens, const std::string& path,
            std::string_view text);

  /// Throws Error(input) for bytes that are not UTF-8 and for more than kMaxTextBytes. Not framed: what a
  /// chat template wrote, which holds the tokens that belong around a text.
  std::vector<std::int32_t> encode(std::string_view text, bool framed = true) const;
  /// The bytes that a token stands for within a text (possibly part of a character); empty for an unknown id.
  const std::string& bytes(std::int32_t id) const { return tokens_.bytes(id); }
  /// Whether the token is a control token, not text.
  bool is_special(std::int32_t id) const { return tokens_.is_special(id); }
  /// The bytes of each token in its place: bytes(), without the spaces that encode() puts before a text.
  std::vector<std::string> spell(std::span<const std::int32_t> ids) const { return tokens_.spell(ids); }
  /// The text of `ids`: the result of spell() without special tokens.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// File name without its folder, and SHA-256 of its content.
  const std::string& name() const { return name_; }
  const std::string& sha256() const { return sha256_; }

 private:
  std::unique_ptr<TextEncoder> encoder_;
  TokenTable tokens_;
  std::string path_, name_, sha256_;
};

/// Longest text that encode() accepts, and largest tokenizer file, in bytes.
constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;
constexpr std::uint64_t kMaxTokenizerBytes = 64ULL << 20;

/// Whether a checkpoint, a folder or a GGUF file, holds a tokenizer that load_tokenizer() looks at.
bool has_tokenizer(const std::string& model);
/// Opens the tokenizer of a checkpoint. Throws Error(input), also when there is none.
Tokenizer load_tokenizer(const std::string& model);

}  // namespace kvsim::model
