// Any bytes either are rules of normalization, which SentencePiece walks without bounds, or are refused as an
// input error.
#include "tests/fuzz/target.hpp"
#include "tests/support/small_sentencepiece.hpp"
#include "traces/model/tokenizers/sentencepiece_model.hpp"
#include "traces/model/tokenizers/text_normalizer.hpp"

namespace kvsim::fuzz::fuzz_charsmap {
namespace {

void read(std::string_view input) {
  model::check_charsmap(input, "fuzz");
  if (!model::has_sentencepiece()) return;
  static model::SentencePieceFile file = model::small_sentencepiece(true);
  file.charsmap = input;
  const model::SentencePieceModel model(file, "fuzz");
  for (const char* text : {"ab a bA  <s>", "\u2581\u00e3ab", "AAAA\n", "\u6771\u4eac\U0001f600"})
    model.encode(text);
}

const Registered kTarget({"charsmap", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_charsmap
