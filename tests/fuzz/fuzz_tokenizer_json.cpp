// Any text either is a tokenizer.json that kvsim encodes with or is refused as an input error; the ids of an
// accepted one stand for bytes.
#include "tests/fuzz/target.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"

namespace kvsim::fuzz::fuzz_tokenizer_json {
namespace {

void read(std::string_view input) {
  static const std::string kTexts[] = {
      "abc a b1<s>  ",         "\u00e3ab", "", "aaaa  bbbbAAA\n", "c\xff", "ab a bA  <s>", "\u2581\u00e3ab",
      "\u6771\u4eac\U0001f600"};
  const model::Tokenizer tokenizer = model::parse_tokenizer_json(std::string(input), "fuzz");
  for (const std::string& text : kTexts)
    accepts([&] {
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      for (const std::int32_t id : ids) {
        require(id >= 0, "ids are not negative");
        tokenizer.bytes(id);
      }
      tokenizer.decode(ids);
    });
}

const Registered kTarget({"tokenizer_json", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_tokenizer_json
