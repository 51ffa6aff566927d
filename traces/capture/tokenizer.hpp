#pragma once
/// tokenizer.json (Hugging Face tokenizers) for byte-level BPE: GPT-2, Llama 3, Qwen, SmolLM. Parts it does
/// not know are refused by name, because a tokenizer that is nearly right gives wrong ids without a word.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::capture {

class Tokenizer {
 public:
  /// `json`: text of the file, called `path` in messages. Throws Error(input).
  Tokenizer(const std::string& json, const std::string& path);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  /// Ids of UTF-8 text, with what the post-processor puts around it (such as a beginning-of-text token).
  /// Throws Error(input) on bytes that are not UTF-8.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Bytes of one token (part of a character, possibly); empty for an id the tokenizer does not know.
  const std::string& bytes(std::int32_t id) const;
  /// Marked special in tokenizer.json: control, not text.
  bool is_special(std::int32_t id) const;
  /// SHA-256 of the file.
  const std::string& sha256() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What a checkpoint calls its tokenizer.
constexpr const char* kTokenizerFile = "tokenizer.json";
/// Longest text encode() takes, in bytes.
constexpr std::uint64_t kMaxTextBytes = 64ULL << 20;
constexpr std::uint64_t kMaxTokenizerBytes = 64ULL << 20;

}  // namespace kvsim::capture
