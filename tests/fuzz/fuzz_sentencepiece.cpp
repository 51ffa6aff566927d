// Any bytes either are a tokenizer.model, which the library then encodes with, or are refused as an input
// error.
#include "tests/fuzz/target.hpp"
#include "traces/model/tokenizers/sentencepiece_model.hpp"

namespace kvsim::fuzz::fuzz_sentencepiece {
namespace {

void read(std::string_view input) {
  const model::SentencePieceFile file = model::parse_sentencepiece_file(input, "fuzz");
  const std::string written = model::write_sentencepiece_file(file);
  require(model::write_sentencepiece_file(model::parse_sentencepiece_file(written, "fuzz")) == written,
          "a model written is read as it was");
  if (!model::has_sentencepiece()) return;
  const model::SentencePieceModel model(file, "fuzz");
  for (const char* text : {"ab a bA  <s>", "\u2581\u00e3ab", "", "aaaa  bbbbAAA\n", "\u6771\u4eac\U0001f600"})
    for (const std::int32_t id : model.encode(text))
      require(id >= 0 && static_cast<std::size_t>(id) < file.pieces.size(), "ids are those of pieces");
}

const Registered kTarget({"sentencepiece", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_sentencepiece
