// The tokens of any text spell that text, whatever the tokenizer; only what is not UTF-8 is refused.
#include <algorithm>

#include "tests/fuzz/target.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/tokenizers/sentencepiece_model.hpp"

namespace kvsim::fuzz::fuzz_prompt_text {
namespace {

const std::vector<model::Tokenizer>& tokenizers() {
  static const std::vector<model::Tokenizer> kAll = [] {
    const std::string golden = KVSIM_SOURCE_DIR "/tests/golden/tokenizers/";
    std::vector<model::Tokenizer> all;
    all.push_back(model::load_tokenizer(golden + "llama2"));
    if (!model::has_sentencepiece()) return all;
    for (const char* name : {"sp_bpe", "sp_bpe_legacy"}) all.push_back(model::load_tokenizer(golden + name));
    return all;
  }();
  return kAll;
}

std::ptrdiff_t control_tokens(const model::Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  return std::count_if(ids.begin(), ids.end(), [&](std::int32_t id) { return tokenizer.is_special(id); });
}

void read(std::string_view input) {
  static const model::Tokenizer kBytes = model::load_tokenizer(KVSIM_SOURCE_DIR "/traces/sample/model");
  std::string joined;
  const std::vector<std::int32_t> ids = kBytes.encode(input);
  for (std::size_t i = 1; i < ids.size(); ++i) joined += kBytes.bytes(ids[i]);  // the first is <s>
  require(joined == input, "tokens of bytes spell the text");
  // These tokenizers take U+2581 for a space, and their added tokens take or add spaces beside them, as in
  // transformers.
  for (const char* unlike : {"\u2581", "<L>", "<R>", "[INST]", "<|im_start|>", "<|im_end|>"})
    if (input.find(unlike) != std::string_view::npos) return;
  for (const model::Tokenizer& tokenizer : tokenizers()) {
    const std::vector<std::int32_t> all = tokenizer.encode(input);
    // "<s>" in a text is a control token, and decode() leaves control tokens out.
    if (control_tokens(tokenizer, all) == control_tokens(tokenizer, tokenizer.encode("")))
      require(tokenizer.decode(all) == input, "tokens of characters spell the text");
  }
}

const Registered kTarget({"prompt_text", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_prompt_text
