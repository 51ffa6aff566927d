#include "traces/model/tokenizer.hpp"

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/sha256.hpp"
#include "traces/model/tokenizers/gguf_tokenizer.hpp"
#include "traces/model/tokenizers/sentencepiece_tokenizer.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"
#include "traces/model/unicode_text.hpp"

namespace kvsim::model {
namespace {

constexpr const char* kJsonFile = "/tokenizer.json";
constexpr const char* kSentencePieceFile = "/tokenizer.model";

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<TextEncoder> encoder, TokenTable tokens, const std::string& path,
                     std::string_view text)
    : encoder_(std::move(encoder)),
      tokens_(std::move(tokens)),
      path_(path),
      name_(path.substr(path.rfind('/') + 1)),
      sha256_(sha256_of(text)) {}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool framed) const {
  if (text.size() > kMaxTextBytes) {
    input_error("the text is longer than 64 MiB", path_,
                "Tokenize it elsewhere and pass the ids with --tokens.");
  }
  require_utf8(text, "prompt");
  return encoder_->encode(text, framed);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  const std::vector<std::string> pieces = spell(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!is_special(ids[i])) text += pieces[i];
  }
  return text;
}

bool has_tokenizer(const std::string& model) {
  if (is_gguf(model)) return has_gguf_tokenizer(GgufFile(model).content);
  return file_exists(model + kJsonFile) || file_exists(model + kSentencePieceFile);
}

Tokenizer load_tokenizer(const std::string& model) {
  constexpr const char* kRemedy = "Tokenize the prompt elsewhere and pass the ids with --tokens.";
  if (is_gguf(model)) {
    const GgufFile file(model);
    if (!has_gguf_tokenizer(file.content)) input_error("holds no tokenizer", model, kRemedy);
    return open_gguf_tokenizer(file.content);
  }
  if (!has_tokenizer(model))
    input_error("no tokenizer.json and no tokenizer.model beside the checkpoint", model, kRemedy);
  const std::string path = model + kJsonFile;
  if (!file_exists(path)) return open_sentencepiece(model + kSentencePieceFile);
  return parse_tokenizer_json(read_regular_file(path, kMaxTokenizerBytes), path);
}

}  // namespace kvsim::model
