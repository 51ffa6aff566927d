// Damages tokenizers of the SentencePiece family at random, and encodes damaged text with valid ones.
#include <catch2/catch.hpp>

#include "sim/base/read_file.hpp"
#include "sim/base/rng.hpp"
#include "tests/support/mutation.hpp"
#include "tests/support/small_sentencepiece.hpp"
#include "traces/model/tokenizers/charsmap.hpp"
#include "traces/model/tokenizers/sentencepiece_model.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"

namespace kvsim::capture {
namespace {

using namespace kvsim::fuzz;

const std::string kTokenizers = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/tokenizers/";
const std::vector<std::string> kPrompts{"ab a bA  <s>", "\u2581\u00e3ab", "", "aaaa  bbbbAAA\n",
                                        "\u6771\u4eac\U0001f600"};

}  // namespace

TEST_CASE("fuzz: tokenizer.model") {
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    Dice dice(combine({11, seed}));
    const std::string sound = model::write_sentencepiece_file(model::small_sentencepiece(seed % 2 == 0));
    std::string bytes = damage(sound, dice);
    if (dice.below(3) == 0) {  // damages only the double array
      bytes = sound;
      for (std::size_t edits = 1 + dice.below(4); edits > 0; --edits)
        bytes[bytes.size() - 1 - dice.below(3100)] = static_cast<char>(dice.below(256));
    }
    INFO("seed " << seed);
    accepted += accepts([&] {
      const model::SentencePieceFile file = model::parse_sentencepiece_file(bytes, "fuzz");
      if (!model::has_sentencepiece()) return;
      const model::SentencePieceModel model(file, "fuzz");
      for (const std::string& prompt : kPrompts) {
        for (const std::int32_t id : model.encode(prompt))
          REQUIRE((id >= 0 && static_cast<std::size_t>(id) < file.pieces.size()));
      }
    });
  }
  CHECK(accepted > 100);
  CHECK(accepted < 5900);
}

TEST_CASE("fuzz: rules of normalization that are in use") {
  const std::string path = kTokenizers + "sp_unigram/tokenizer.model";
  model::SentencePieceFile file = model::parse_sentencepiece_file(read_file(path, 1 << 20), path);
  const std::string sound = file.charsmap;
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Dice dice(combine({12, seed}));
    file.charsmap = sound;
    for (std::size_t edits = 1 + dice.below(3); edits > 0; --edits)
      file.charsmap[dice.below(sound.size())] = static_cast<char>(dice.below(256));
    INFO("seed " << seed);
    accepted += accepts([&] {
      model::check_charsmap(file.charsmap, "fuzz");
      if (!model::has_sentencepiece()) return;
      const model::SentencePieceModel model(file, "fuzz");
      for (const std::string& prompt : kPrompts) model.encode(prompt);
    });
  }
  CHECK(accepted > 0);
}

TEST_CASE("fuzz: tokenizer.json of characters") {
  // The vocabulary is small, so that edits hit every part.
  const std::string sound =
      R"({"added_tokens":[{"id":9,"content":"<s>","single_word":true,"normalized":true,"special":true}],"normalizer":)"
      R"({"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Prepend","prepend":"\u2581"},{"type":"Replace",)"
      R"("pattern":{"String":" "},"content":"\u2581"},{"type":"Lowercase"}]},"pre_tokenizer":{"type":"Sequence",)"
      R"("pretokenizers":[{"type":"Split","pattern":{"String":"b"},"behavior":"MergedWithNext","invert":false},)"
      R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"first","split":true}]},"decoder":{"type":)"
      R"("Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},)"
      R"({"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"BPE","unk_token":"u",)"
      R"("fuse_unk":true,"byte_fallback":true,"vocab":{"a":0,"b":1,"\u2581":2,"\u2581a":3,"ab":4,"u":5,"<0xE6>":6},)"
      R"("merges":[["\u2581","a"],"a b"]}})";
  int accepted = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    Dice dice(combine({13, seed}));
    const std::string text = mutate(sound, dice);
    INFO("seed " << seed << ": " << text);
    accepted += accepts([&] {
      const model::Tokenizer tokenizer = model::parse_tokenizer_json(text, "fuzz");
      for (const std::string& prompt : kPrompts) accepts([&] { tokenizer.decode(tokenizer.encode(prompt)); });
    });
  }
  CHECK(accepted > 100);
  CHECK(accepted < 5500);
}

TEST_CASE("fuzz: tokens of the SentencePiece family spell the text") {
  std::vector<std::string> names{"llama2"};
  if (model::has_sentencepiece()) names.insert(names.end(), {"sp_bpe", "sp_bpe_legacy"});
  for (const std::string& name : names) {
    const model::Tokenizer tokenizer = model::load_tokenizer(kTokenizers + name);
    const std::string sound =
        " The answer is 42, n'est-ce pas ? \u6771\u4eac  \n\t e\u0301 \U0001f600 x=[1,2];  ";
    int accepted = 0;
    for (std::uint64_t seed = 0; seed < 1500; ++seed) {
      Dice dice(combine({14, seed}));
      const std::string text = damage(sound, dice);
      INFO(name << " seed " << seed);
      accepted += accepts([&] {
        const std::vector<std::int32_t> ids = tokenizer.encode(text);
        REQUIRE(tokenizer.decode(ids) == text);
      });
    }
    CHECK(accepted > 100);
  }
}

}  // namespace kvsim::capture
