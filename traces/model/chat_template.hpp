#pragma once
/// Chat templates: what a chat model expects around the messages of a conversation. They are programs in
/// Jinja; kvsim runs none, but knows what the published ones of ChatML (SmolLM2, Qwen 2 to 3), Llama 3,
/// Mistral, Gemma and Phi-3 write, recognises them by their whole text, and refuses any other.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvsim::model {

struct ChatMessage {
  std::string role, text;
};

/// A conversation as the model reads it, up to where its answer begins.
struct ChatText {
  /// Bytes [begin, end) are a message's text, of which the template took `cut` bytes of white space away in
  /// front.
  struct Place {
    std::uint64_t begin = 0, end = 0, cut = 0;
  };
  std::string text;
  std::vector<Place> places;  ///< one for each message
};

/// A template where it was found.
struct ChatSource {
  std::string text;      ///< empty: there is none
  std::string where;     ///< file, for messages
  std::string model;     ///< the folder or file of the checkpoint
  std::string bos, eos;  ///< the tokens that the template calls bos_token and eos_token, spelled; empty: none
};
/// Of a checkpoint's folder, chat_template.jinja, or chat_template in tokenizer_config.json; of a GGUF file,
/// tokenizer.chat_template.
ChatSource find_chat_template(const std::string& model);

struct ChatForm;

class ChatTemplate {
 public:
  /// Throws Error(input) for a template that is not known, with the call of Python that runs it.
  explicit ChatTemplate(ChatSource source);

  /// The conversation: perhaps a message of the system, then one of the user and of the assistant in turn;
  /// the last is the user's. Throws Error(input), naming `where`, for another, and for a message that the
  /// template has no place for.
  ChatText render(std::span<const ChatMessage> messages, const std::string& where) const;

  /// Of the template, however its quotes and line breaks are spelled.
  const std::string& sha256() const { return sha256_; }
  /// What to tell whoever uses it; empty: nothing.
  std::string note() const;

 private:
  ChatSource source_;
  std::string sha256_, system_;  // system_: what the template says of itself where no system message is
  const ChatForm* form_ = nullptr;
};

/// Throws Error(input) also where the checkpoint has no template.
ChatTemplate load_chat_template(const std::string& model);

/// sha256() of a checkpoint's template, which need not be known; empty where it has none.
std::string chat_template_digest(const std::string& model);
/// What to tell whoever gives such a checkpoint a text as it is; empty where it has no template.
std::string chat_template_note(const std::string& model);

}  // namespace kvsim::model
