#pragma once
/// Text to token ids and back, exactly as the checkpoint's own tokenizer does it: tokenizer.json (Hugging
/// Face tokenizers), else tokenizer.model (SentencePiece). Parts that are not known are refused by name,
/// because a tokenizer that is nearly right gives wrong ids without a word.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/model/tokenizers/token_table.hpp"

namespace kvsim::model {

/// What turns text into ids: one class for each kind of file.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  /// `text` is UTF-8. Ids of all of it, with what is put around it (such as a beginning-of-text token).
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
};

class Tokenizer {
 public:
  /// `text` is the content of `path`, which messages and name() name.
  Tokenizer(std::unique_ptr<TextEncoder> encoder, TokenTable tokens, const std::string& path,
            std::string_view text);

  /// Throws Error(input) on bytes that are not UTF-8 and on more than kMaxTextBytes.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Bytes of one token within a text (part of a character, possibly); empty for an id that is not known.
  const std::string& bytes(std::int32_t id) const { return tokens_.bytes(id); }
  /// Control, not text.
  bool is_special(std::int32_t id) const { return tokens_.is_special(id); }
  /// Bytes of each token where it stands: bytes(), but for spaces encode() puts before a text.
  std::vector<std::string> spell(std::span<const std::int32_t> ids) const { return tokens_.spell(ids); }
  /// The text `ids` stand for: what spell() gives without special tokens.
  std::string decode(std::span<const std::int32_t> ids) const;
  /// File name without its folder, and SHA-256 of its content.
  const std::string& name() const { return name_; }
  const std::string& sha256() const { return sha256_; }

 private:
  std::unique_ptr<TextEncoder> encoder_;
  TokenTable tokens_;
  std::string path_, name_, sha256_;
};

/// Longest text encode() takes, and largest file of a tokenizer, in bytes.
constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;
constexpr std::uint64_t kMaxTokenizerBytes = 64ULL << 20;

/// Whether a checkpoint's folder holds a tokenizer of a kind that load_tokenizer() opens.
bool has_tokenizer(const std::string& folder);
/// The tokenizer of a checkpoint's folder. Throws Error(input), also when there is none.
Tokenizer load_tokenizer(const std::string& folder);

}  // namespace kvsim::model
