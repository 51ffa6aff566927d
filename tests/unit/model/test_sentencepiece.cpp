#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "sim/base/error.hpp"
#include "tests/support/small_sentencepiece.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/tokenizers/sentencepiece_file.hpp"
#include "traces/model/tokenizers/sentencepiece_model.hpp"
#include "traces/model/tokenizers/text_normalizer.hpp"

namespace kvsim::model::test_sentencepiece {
namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<std::int32_t>;

std::string problem_of(const SmallCharsmap& map) {
  try {
    check_charsmap(map.text(), "map");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "sound";
}

std::string problem_of(const SentencePieceFile& file) {
  try {
    parse_sentencepiece_file(write_sentencepiece_file(file), "m");
  } catch (const Error& error) {
    return error.what();
  }
  return "sound";
}

/// A checkpoint's folder with the small model and files beside it.
class Folder {
 public:
  explicit Folder(const SentencePieceFile& file = small_sentencepiece(true)) {
    put("tokenizer.model", write_sentencepiece_file(file));
  }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.file(name)) << text;
  }
  Tokenizer open() const { return load_tokenizer(folder_.file(".")); }
  std::string problem() const {
    try {
      open();
    } catch (const Error& error) {
      return error.what();
    }
    return "opened";
  }

 private:
  test::Scratch folder_;
};

}  // namespace

TEST_CASE("every path of a double array is checked before it is used") {
  SmallCharsmap map;
  const std::uint32_t a = SmallCharsmap::kRoot ^ 'A';
  CHECK(problem_of(map) == "sound");
  SECTION("children beyond the array") {
    map.units[a] = SmallCharsmap::unit(a, 4096, 'A', false);
    CHECK_THAT(problem_of(map), Contains("leads out of its array"));
  }
  SECTION("a value beyond the table") {
    map.units[SmallCharsmap::kValues] = SmallCharsmap::kValue | 2;
    CHECK_THAT(problem_of(map), Contains("without a replacement"));
  }
  SECTION("a way back to the root's children") {
    map.units[a] = SmallCharsmap::unit(a, SmallCharsmap::kRoot, 'A', false);
    CHECK_THAT(problem_of(map), Contains("without an end"));
  }
  SECTION("33 rules that begin alike") {
    // "A", "AA", ...: each unit's children lie in a block of its own, whose first unit is the value.
    for (const std::uint32_t rules : {32U, 33U}) {
      SmallCharsmap chain;
      chain.units.assign(256 * (rules + 2), SmallCharsmap::kValue);
      chain.units[0] = SmallCharsmap::unit(0, SmallCharsmap::kRoot, 0, false);
      for (std::uint32_t i = 1; i <= rules; ++i) {
        const std::uint32_t at = 256 * i ^ 'A';
        chain.units[at] = SmallCharsmap::unit(at, 256 * (i + 1), 'A', true);
      }
      CHECK_THAT(problem_of(chain), Contains(rules == 32 ? "sound" : "more than 32 rules"));
    }
  }
  SECTION("replacements without an end, or too long") {
    map.replacements = "b";
    CHECK_THAT(problem_of(map), Contains("has no end"));
    map.replacements = std::string(1025, 'b') + '\0';
    CHECK_THAT(problem_of(map), Contains("longer than 1024"));
  }
  CHECK_THROWS_WITH(check_charsmap("abc", "map"), Contains("cut short"));
  CHECK_THROWS_WITH(check_charsmap(std::string("\x05\0\0\0abcdefgh", 12), "map"), Contains("does not fit"));
}

TEST_CASE("a model file is written as it was read") {
  const SentencePieceFile file = small_sentencepiece(false);
  const std::string bytes = write_sentencepiece_file(file);
  const SentencePieceFile again = parse_sentencepiece_file(bytes, "m");
  CHECK(write_sentencepiece_file(again) == bytes);
  CHECK(again.pieces.size() == 264);
  CHECK(again.pieces[260].text == "b");
  CHECK(again.pieces[260].score == -4);
  CHECK_FALSE(again.merges);
  CHECK(again.byte_fallback);
  CHECK(again.charsmap == file.charsmap);
}

TEST_CASE("damaged model files are refused with the place") {
  SentencePieceFile file = small_sentencepiece(true);
  SECTION("score") {
    file.pieces[5].score = std::nanf("");
    CHECK_THAT(problem_of(file), Contains("m piece 5") && Contains("not a number"));
  }
  SECTION("empty piece") {
    file.pieces[6].text.clear();
    CHECK_THAT(problem_of(file), Contains("m piece 6") && Contains("1 to 1024 bytes"));
  }
  SECTION("not UTF-8") {
    file.pieces[7].text = "\xff";
    CHECK_THAT(problem_of(file), Contains("m piece 7") && Contains("not UTF-8"));
  }
  SECTION("zero byte") {
    file.pieces[7].text = std::string("a\0b", 3);
    CHECK_THAT(problem_of(file), Contains("zero byte"));
  }
  SECTION("no pieces") {
    file.pieces.clear();
    CHECK_THAT(problem_of(file), Contains("not a SentencePiece model"));
  }
  SECTION("other methods and conventions") {
    for (const auto& [field, value, name] :
         {std::tuple{3, 3, "words or characters"}, {24, 1, "treat_whitespace_as_suffix"}}) {
      std::string trainer, bytes = write_sentencepiece_file(file);
      put_integer(trainer, static_cast<std::uint32_t>(field), static_cast<std::uint64_t>(value));
      put_bytes(bytes, 2, trainer);
      CHECK_THROWS_WITH(parse_sentencepiece_file(bytes, "m"), Contains(name) && Contains("not supported"));
    }
  }
  SECTION("framing") {
    for (const char* bytes : {"\x0a\x05\x0a", "\x0b", "\x80", "\x02\x01", "\x0d\x01", "\x09\x01"})
      CHECK_THROWS_AS(parse_sentencepiece_file(bytes, "m"), Error);
  }
}

TEST_CASE("a SentencePiece folder is read by the rules of Llama's tokenizer") {
  if (!has_sentencepiece()) {
    WARN("skipped: built without SentencePiece");
    return;
  }
  Folder folder;
  SECTION("the model alone: <s> first, a space before every text") {
    const Tokenizer tokenizer = folder.open();
    CHECK(tokenizer.name() == "tokenizer.model");
    CHECK(tokenizer.encode("") == Ids{1});
    CHECK(tokenizer.encode("a") == Ids{1, 259});
    // "A" is normalized to "b"; BPE joins the best pair first: "ab" (-2) after "_a" (-1) is joined.
    CHECK(tokenizer.encode("aAab") == Ids{1, 259, 260, 261});
    CHECK(tokenizer.encode("a</s>a") == Ids{1, 259, 2, 259});
    CHECK(tokenizer.encode("\n") == Ids{1, 262, 13});  // the byte 0x0A is 3 + 10
    CHECK(tokenizer.decode(Ids{1, 259, 2, 259}) == "aa");
    CHECK(tokenizer.spell(Ids{1, 259, 259}) == std::vector<std::string>{"<s>", "a", " a"});
    CHECK(tokenizer.bytes(13) == "\n");
    CHECK(tokenizer.is_special(0));
    CHECK_FALSE(tokenizer.is_special(13));
  }
  SECTION("not legacy: a space before the prompt only") {
    folder.put("tokenizer_config.json", R"({"legacy":false,"add_eos_token":true})");
    const Tokenizer tokenizer = folder.open();
    CHECK(tokenizer.encode("a</s>a") == Ids{1, 259, 2, 263, 2});
    CHECK(tokenizer.encode("</s>a") == Ids{1, 2, 263, 2});
    CHECK(tokenizer.decode(Ids{1, 259, 2, 263, 259}) == "aa a");
  }
  SECTION("added tokens") {
    folder.put("tokenizer_config.json",
               R"({"add_bos_token":false,"added_tokens_decoder":{"300":{"content":"aa",)"
               R"("rstrip":true}},"pad_token":"aa"})");
    const Tokenizer tokenizer = folder.open();
    CHECK(tokenizer.encode("aaa") == Ids{300, 259});
    CHECK(tokenizer.encode("aa  a") == Ids{300, 259});
    CHECK(tokenizer.is_special(300));  // it is the pad_token
    CHECK(tokenizer.bytes(300) == "aa");
  }
  SECTION("unsupported parts are refused by name") {
    for (const auto& [config, message] :
         {std::pair{R"({"tokenizer_class":"T5Tokenizer"})",
                    "tokenizer_class \"T5Tokenizer\" is not supported"},
          {R"({"pad_token":"<pad>"})", "\"<pad>\" has no id"},
          {R"({"added_tokens_decoder":{"x":{"content":"a"}}})", "expected a token id"},
          {R"({"added_tokens_decoder":{"300":{"content":"a","single_word":true}}})",
           "\"single_word\" is not supported"},
          {"[]", "JSON object"}}) {
      folder.put("tokenizer_config.json", config);
      CHECK_THAT(folder.problem(), Contains(message));
    }
  }
  SECTION("what the library refuses") {
    SentencePieceFile file = small_sentencepiece(true);
    file.pieces[4] = file.pieces[5];
    CHECK_THAT(Folder(file).problem(), Contains("SentencePiece: ") && Contains("tokenizer.model"));
  }
}

}  // namespace kvsim::model::test_sentencepiece
