#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>
#include <catch2/catch.hpp>
#include <sstream>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/sha256.hpp"
#include "tests/unit/model/gguf_bytes.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::model::test_gguf_tokenizer {
namespace {

using Catch::Matchers::Contains;
using Ids = std::vector<std::int32_t>;
using Entries = std::vector<std::string>;

const std::string kGolden = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/tokenizers/gguf/";

/// As tests/golden/tokenizers/make_gguf.py writes them.
std::string digest(const Ids& ids) {
  std::string text;
  for (const std::int32_t id : ids) text += (text.empty() ? "" : ",") + std::to_string(id);
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex().substr(0, 8);
}

std::string types(const std::vector<std::int32_t>& list) {
  std::string values;
  for (const std::int32_t type : list) values += test::raw(type);
  return test::array("tokenizer.ggml.token_type", 5, list.size(), values);
}
std::string scores(const std::vector<float>& list) {
  std::string values;
  for (const float score : list) values += test::raw(score);
  return test::array("tokenizer.ggml.scores", 6, list.size(), values);
}
std::string flag(const std::string& key, bool value) {
  return test::entry(key, 7, std::string(1, value ? '\1' : '\0'));
}

/// A file with pieces: <unk> <s> </s> <0x41> _ a b ab _ab [X], whose scores join "ab" before "_a".
Entries pieces() {
  return {test::entry("tokenizer.ggml.model", "llama"),
          test::array("tokenizer.ggml.tokens",
                      {"<unk>", "<s>", "</s>", "<0x41>", "\u2581", "a", "b", "ab", "\u2581ab", "[X]"}),
          types({2, 3, 3, 6, 1, 1, 1, 1, 1, 4}), scores({0, 0, 0, 0, -9, -8, -7, -1, -2, 0})};
}

struct File {
  explicit File(const Entries& entries, const std::string& name = "x.gguf") : path(scratch.file(name)) {
    std::ofstream(path, std::ios::binary) << test::gguf(entries);
  }
  test::Scratch scratch;
  std::string path;
};

Tokenizer open(const Entries& entries) {
  return load_tokenizer(File(entries).path);
}
std::string problem(const Entries& entries) {
  try {
    open(entries);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}
Entries with(Entries entries, const std::string& more) {
  entries.push_back(more);
  return entries;
}
Entries changed(std::size_t at, const std::string& entry) {
  Entries entries = pieces();
  entries[at] = entry;
  return entries;
}

}  // namespace

TEST_CASE("tokenizers of GGUF files give the ids of the package tokenizers on 1,000 texts") {
  const boost::json::value golden = boost::json::parse(read_file(kGolden + "golden.json", 1 << 20));
  const auto texts = boost::json::value_to<std::vector<std::string>>(golden.at("texts"));
  REQUIRE(texts.size() == 1000);
  REQUIRE(golden.at("ids").as_object().size() == 7);
  for (const auto& [key, digests] : golden.at("ids").as_object()) {
    const std::string name(key);
    const Tokenizer tokenizer = load_tokenizer(kGolden + name + ".gguf");
    CHECK(has_tokenizer(kGolden + name + ".gguf"));
    CHECK(tokenizer.name() == name + ".gguf");
    std::istringstream expected{std::string(digests.as_string())};
    std::size_t wrong = 0;
    for (const std::string& text : texts) {
      std::string one;
      REQUIRE(expected >> one);
      const Ids ids = tokenizer.encode(text);
      if (digest(ids) != one) {
        UNSCOPED_INFO(name << ": " << text);
        ++wrong;
      }
      // NFC changes texts; pieces know no space.
      std::string spelled;
      for (const std::string& piece : tokenizer.spell(tokenizer.encode(text, false))) spelled += piece;
      if (name != "qwen2" && !name.starts_with("llama-p") && name != "llama") CHECK(spelled == text);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("pieces with scores are joined best first, and bytes stand in for what is missing") {
  const Tokenizer tokenizer = open(pieces());
  CHECK(tokenizer.encode("") == Ids{1});                  // <s> by default
  CHECK(tokenizer.encode("ab") == Ids{1, 8});             // _ a b: ab (-1) first, then _ab (-2)
  CHECK(tokenizer.encode("aab", false) == Ids{4, 5, 7});  // no "_a"
  CHECK(tokenizer.encode("A", false) == Ids{4, 3});       // a byte
  CHECK(tokenizer.encode("c", false) == Ids{4, 0});       // no byte
  CHECK(tokenizer.encode("a[X]ab</s>", false) ==
        Ids{4, 5, 9, 8, 2});  // a space before every text between tokens
  CHECK(tokenizer.decode(Ids{1, 8, 3}) == "abA");
  CHECK(tokenizer.is_special(2));
  CHECK_FALSE(tokenizer.is_special(9));
  const Tokenizer plain = open(with(with(with(pieces(), flag("tokenizer.ggml.add_space_prefix", false)),
                                         flag("tokenizer.ggml.add_bos_token", false)),
                                    flag("tokenizer.ggml.add_eos_token", true)));
  CHECK(plain.encode("ab") == Ids{7, 2});
  CHECK(plain.encode(" ab") == Ids{8, 2});
  CHECK(plain.encode(" ab", false) == Ids{8});
  const Tokenizer other = open(with(pieces(), test::entry("tokenizer.ggml.bos_token_id", 2u)));
  CHECK(other.encode("ab") == Ids{2, 8});
}

TEST_CASE("what a GGUF tokenizer lacks or has too much is named") {
  const Entries all = pieces();
  CHECK_THAT(problem({}), Contains("holds no tokenizer"));
  CHECK_THAT(problem({test::entry("tokenizer.ggml.model", "no_vocab")}), Contains("holds no tokenizer"));
  CHECK_THAT(problem(changed(0, test::entry("tokenizer.ggml.model", "bert"))),
             Contains("\"bert\" is not supported"));
  CHECK_THAT(problem({all[0]}), Contains("tokenizer.ggml.tokens"));
  CHECK_THAT(problem(changed(2, types({2, 3}))), Contains("2 types for 10 tokens"));
  CHECK_THAT(problem(changed(2, types({2, 3, 3, 6, 1, 1, 1, 1, 1, 7}))), Contains("unknown type 7"));
  CHECK_THAT(problem(changed(3, scores({0}))), Contains("1 scores for 10 tokens"));
  CHECK_THAT(problem(changed(3, scores({0, 0, 0, 0, -9, NAN, -7, -1, -2, 0}))), Contains("no number"));
  CHECK_THAT(problem(changed(1, test::array("tokenizer.ggml.tokens", Entries(10, "a")))),
             Contains("two tokens are \"a\""));
  CHECK_THAT(problem(changed(1, test::array("tokenizer.ggml.tokens", Entries(10, "\xff")))),
             Contains("not UTF-8"));
  CHECK_THAT(problem(with(all, test::entry("tokenizer.ggml.precompiled_charsmap", "x"))),
             Contains("precompiled_charsmap"));
  CHECK_THAT(problem(with(all, flag("tokenizer.ggml.remove_extra_whitespaces", true))),
             Contains("remove_extra_whitespaces"));
  CHECK(problem(with(all, flag("tokenizer.ggml.remove_extra_whitespaces", false))) == "accepted");
  const Entries bytes{test::entry("tokenizer.ggml.model", "gpt2"),
                      test::entry("tokenizer.ggml.pre", "smollm"),
                      test::array("tokenizer.ggml.tokens", {"a", "b", "ab"})};
  CHECK_THAT(problem(bytes), Contains("tokenizer.ggml.merges"));
  CHECK(problem(with(bytes, test::array("tokenizer.ggml.merges", Entries{"a b"}))) == "accepted");
  CHECK_THAT(problem(with(bytes, test::array("tokenizer.ggml.merges", Entries{"a c"}))),
             Contains("\"ac\" is not in the vocabulary"));
  CHECK_THAT(problem(with(with(bytes, test::array("tokenizer.ggml.merges", Entries{"a b"})),
                          flag("tokenizer.ggml.add_bos_token", true))),
             Contains("tokenizer.ggml.bos_token_id"));
  Entries unknown = with(bytes, test::array("tokenizer.ggml.merges", Entries{"a b"}));
  unknown[1] = test::entry("tokenizer.ggml.pre", "tekken");
  CHECK_THAT(problem(unknown),
             Contains("pre-tokenizer \"tekken\" is not supported") && Contains("Known: smollm"));
}

}  // namespace kvsim::model::test_gguf_tokenizer
