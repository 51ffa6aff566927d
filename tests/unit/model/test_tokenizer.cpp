#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_to.hpp>
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/tokenizers/byte_level.hpp"
#include "traces/model/tokenizers/byte_pair_encoder.hpp"
#include "traces/model/tokenizers/sentencepiece_model.hpp"
#include "traces/model/tokenizers/text_splitter.hpp"
#include "traces/model/tokenizers/token_table.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"
#include "traces/model/unicode_text.hpp"

namespace kvsim::model::test_tokenizer {
namespace {

using Catch::Matchers::Contains;

const std::string kGolden = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/tokenizers/";

boost::json::value read_json(const std::string& file) {
  return parse_strict_json(read_file(kGolden + file, 1 << 20), file, 100'000);
}

/// The texts that every golden tokenizer encoded.
const std::vector<std::string>& golden_texts() {
  static const auto kTexts = boost::json::value_to<std::vector<std::string>>(read_json("texts.json"));
  return kTexts;
}

/// The golden gpt2 tokenizer with one part replaced.
std::string with(const std::string& part, const std::string& json) {
  boost::json::value document = read_json("gpt2/tokenizer.json");
  boost::json::value* place = &document;
  std::size_t begin = 0;
  for (std::size_t dot = part.find('.'); dot != std::string::npos; dot = part.find('.', begin)) {
    place = &place->as_object()[part.substr(begin, dot - begin)];
    begin = dot + 1;
  }
  place->as_object()[part.substr(begin)] = boost::json::parse(json);
  return boost::json::serialize(document);
}

std::string problem(const std::string& json) {
  try {
    parse_tokenizer_json(json, "tokenizer.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

/// Byte-pair encoding by its definition: repeatedly joins the best-ranked pair, leftmost first.
std::vector<std::string> slow_merge(std::vector<std::string> symbols,
                                    const std::vector<std::pair<std::string, std::string>>& merges) {
  for (;;) {
    std::size_t best_rank = merges.size(), best_at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] == std::pair(symbols[i], symbols[i + 1])) {
          best_rank = rank;
          best_at = i;
        }
      }
    }
    if (best_rank == merges.size()) return symbols;
    symbols[best_at] += symbols[best_at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

std::vector<std::string> split(std::vector<SplitStep> steps, const std::string& text) {
  return TextSplitter(std::move(steps), "test").split(text, true);
}

void check_against_reference(const std::string& name) {
  const Tokenizer tokenizer = load_tokenizer(kGolden + name);
  const boost::json::value golden = read_json(name + "/ids.json");
  for (std::size_t i = 0; i < golden_texts().size(); ++i) {
    const std::string& text = golden_texts()[i];
    INFO(name << ", text " << i << ": " << text);
    const auto expected = boost::json::value_to<std::vector<std::int32_t>>(golden.at("ids").at(i));
    CHECK(tokenizer.encode(text) == expected);
    const boost::json::value& decoded = golden.at("decoded").at(i);
    CHECK(tokenizer.decode(expected) == (decoded.is_null() ? text : std::string(decoded.as_string())));
  }
}

}  // namespace

TEST_CASE("ids and texts agree with Hugging Face tokenizers, one by one", "[golden]") {
  for (const char* name : {"gpt2", "gpt2_prefix_space", "llama3", "qwen2", "smollm2", "cuts", "llama2",
                           "llama2_first", "metaspace", "metaspace_never"})
    check_against_reference(name);
}

TEST_CASE("ids and texts agree with SentencePiece, one by one", "[golden]") {
  const std::vector<std::string> names{"sp_bpe_legacy", "sp_bpe", "sp_unigram", "sp_unigram_identity"};
  if (has_sentencepiece()) {
    for (const std::string& name : names) check_against_reference(name);
  } else {
    WARN("skipped: built without SentencePiece");
    CHECK_THROWS_WITH(load_tokenizer(kGolden + names[0]), Contains("built without SentencePiece"));
  }
}

TEST_CASE("byte-level tokens join to the text they encode") {
  const Tokenizer tokenizer = load_tokenizer(kGolden + "llama3");
  for (const std::string& text : golden_texts()) {
    std::string joined;
    for (const std::int32_t id : tokenizer.encode(text)) joined += tokenizer.bytes(id);
    CHECK(joined == "<|begin_of_text|>" + text);
  }
}

TEST_CASE("ids the tokenizer does not know have no bytes") {
  const Tokenizer tokenizer = load_tokenizer(kGolden + "gpt2");
  CHECK(tokenizer.bytes(-1).empty());
  CHECK(tokenizer.bytes(1'000'000).empty());
  CHECK(tokenizer.is_special(900));
  CHECK_FALSE(tokenizer.is_special(50));
}

TEST_CASE("text is white space, punctuation, digits or something else") {
  const auto all = [](TextKind kind, std::initializer_list<const char*> texts) {
    for (const char* text : texts) {
      INFO('"' << text << '"');
      CHECK(kind_of_text(text) == kind);
    }
  };
  all(TextKind::white_space, {" ", "\n", "\t \r\n", "\u00a0", "\u3000 ", "\u2028"});
  // Categories Po, Pd, Ps, Pi, Pc; Sm, Sc, So, Sk.
  all(TextKind::punctuation, {".", " ,", "?!\n", "\u2014", "(", "\u00ab", "_", "+", "\u20ac", "\u2713", "^",
                              "\u3002", "),", "\U0001f600"});
  all(TextKind::digits, {"0", " 42", "7\n", "\u0663"});
  all(TextKind::other, {"", "a", "1 2", ". .", " the", "'s", "3.14", "1st", "x+", "\u6a21", "\u00bd",
                        "\u2460", "\xe2\x80", "\x94", ".\xff", "\xff .", ". \xff", "\u200d", "\x01"});
}

TEST_CASE("every token of the sample tokenizer is of the kind its text says") {
  const Tokenizer tokenizer = load_tokenizer(KVSIM_SOURCE_DIR "/traces/sample/model");
  const std::string text = "Key 7402: it's (almost) 9%,\n\nisn't it?";
  std::string marked;
  for (const std::int32_t id : tokenizer.encode(text)) {
    if (tokenizer.is_special(id)) continue;
    const TextKind kind = kind_of_text(tokenizer.bytes(id));
    for (std::size_t i = 0; i < tokenizer.bytes(id).size(); ++i)
      marked += kind == TextKind::white_space   ? 's'
                : kind == TextKind::punctuation ? 'p'
                : kind == TextKind::digits      ? 'd'
                                                : '-';
  }
  CHECK(marked == "---sddddp-----pp------psdppss--------p");
}

TEST_CASE("text that is not UTF-8 is refused with the place") {
  const Tokenizer tokenizer = load_tokenizer(kGolden + "gpt2");
  CHECK_THROWS_WITH(tokenizer.encode("abc\xff"), Contains("not UTF-8 at byte 3"));
  CHECK_THROWS_WITH(tokenizer.encode("\xe6\x9d"), Contains("not UTF-8 at byte 0"));        // cut short
  CHECK_THROWS_WITH(tokenizer.encode("a\xc0\x80"), Contains("not UTF-8 at byte 1"));       // overlong
  CHECK_THROWS_WITH(tokenizer.encode("ab\xed\xa0\x80"), Contains("not UTF-8 at byte 2"));  // surrogate
  CHECK_THROWS_WITH(tokenizer.encode("\xf4\x90\x80\x80"),
                    Contains("not UTF-8 at byte 0"));  // beyond U+10FFFF
}

TEST_CASE("unsupported parts are refused by name, with a hint to --tokens") {
  const std::vector<std::array<std::string, 3>> cases{
      {"model.type", R"("Unigram")", "model type \"Unigram\""},
      {"model.byte_fallback", "true", "\"byte_fallback\""},  // beside ByteLevel
      {"model.dropout", "0.1", "\"dropout\""},
      {"model.end_of_word_suffix", R"("</w>")", "\"end_of_word_suffix\""},
      {"model.continuing_subword_prefix", R"("##")", "\"continuing_subword_prefix\""},
      {"normalizer", R"({"type":"StripAccents"})", "normalizer \"StripAccents\""},
      {"normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Precompiled"}]})",
       "normalizer \"Precompiled\""},
      {"normalizer", R"({"type":"Replace","pattern":{"Regex":" +"},"content":" "})",
       "the pattern of \"Replace\""},
      {"pre_tokenizer", R"({"type":"WhitespaceSplit"})", "pre-tokenizer \"WhitespaceSplit\""},
      {"pre_tokenizer", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"last"})",
       "prepend_scheme \"last\""},
      {"pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})",
       "after ByteLevel"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"String":"a"},"behavior":"Merged"})", "\"Merged\""},
      {"decoder", R"({"type":"WordPiece"})", "decoder \"WordPiece\""},
      {"decoder", R"({"type":"Sequence","decoders":[{"type":"Strip","content":" ","start":1,"stop":0}]})",
       "decoder \"Strip"},
      {"decoder", R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]})",
       "decoder \"ByteFallback"},
      {"post_processor", R"({"type":"BertProcessing"})", "post-processor \"BertProcessing\""}};
  for (const auto& [part, json, name] : cases) {
    INFO(part << " " << json);
    CHECK_THAT(problem(with(part, json)),
               Contains(name) && Contains("not supported") && Contains("--tokens"));
  }
}

TEST_CASE("damaged tokenizer files are refused") {
  const std::vector<std::array<std::string, 3>> cases{
      {"model.vocab", R"({"a":0,"b":0})", "two tokens have the id 0"},
      {"model.vocab", R"({"a":-1})", "expected an integer"},
      {"model.vocab", R"({"a":4194304})", "outside 0..4194303"},
      {"model.vocab", "[]", "JSON object"},
      {"model.merges", R"(["ab"])", "two tokens"},
      {"model.merges", R"(["a b c"])", "two tokens"},
      {"model.merges", R"([["a"]])", "two tokens"},
      {"model.merges", R"([["a","nosuch"]])", "not in the vocabulary"},
      {"model.merges", R"([["Ġ","t"],["Ġ","t"]])", "repeats an earlier one"},
      {"model.merges", R"([["t",1]])", "expected a string"},
      {"post_processor",
       R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<x>"}},{"Sequence":{"id":"A"}}],"special_tokens":{}})",
       "missing \"<x>\""},
      {"post_processor", R"({"type":"TemplateProcessing","single":[],"special_tokens":{}})",
       "leaves out the text"},
      {"added_tokens", R"([{"content":"<s>"}])", "missing \"id\""},
      {"added_tokens", R"([{"content":"a","id":5000}])", "in the vocabulary"},
      {"model.unk_token", R"("<?>")", "the unknown token \"<?>\" is not in the vocabulary"},
      {"normalizer", R"({"type":"Replace","pattern":{"String":""},"content":" "})", "an empty pattern"},
      {"pre_tokenizer", "null", "differ about ByteLevel"},
      {"decoder", R"({"type":"Metaspace","replacement":"_"})", "differ about ByteLevel"},
      {"pre_tokenizer",
       R"({"type":"Metaspace","replacement":"_","add_prefix_space":false,"prepend_scheme":"always"})",
       "contradict"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"})",
       "not understood"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated"})",
       "uses \\w, which engines read differently"},
      {"pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}+"},"behavior":"Isolated"})",
       "uses }+, which engines"}};
  for (const auto& [part, json, name] : cases) {
    INFO(part << " " << json);
    const bool splits = json.find("Split") != std::string::npos;
    const std::string pre = R"({"type":"Sequence","pretokenizers":[)" + json + R"(,{"type":"ByteLevel"}]})";
    CHECK_THAT(problem(with(part, splits ? pre : json)), Contains(name));
  }
  CHECK_THAT(problem("{}"), Contains("missing \"model\""));
  CHECK_THAT(problem("{\"model\":1,\"model\":2}"), Contains("occurs twice"));
}

TEST_CASE("a sequence of steps cannot lengthen a text without end") {
  // Doubling sixty times would give 2^60 letters.
  const std::string twice = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})";
  std::string steps = twice;
  for (int step = 1; step < 60; ++step) steps += ", " + twice;

  const Tokenizer tokenizer = parse_tokenizer_json(
      with("normalizer", R"({"type": "Sequence", "normalizers": [)" + steps + "]}"), "tokenizer.json");
  CHECK_THROWS_WITH(tokenizer.encode("a"), Contains("replacing \"a\"") && Contains("longer than 256 MiB"));
  CHECK_NOTHROW(tokenizer.encode("b"));

  const std::string decoder = R"({"type": "Sequence", "decoders": [)" + steps + "]}";
  CHECK_THROWS_WITH(TokenDecoder(JsonObject(boost::json::parse(decoder), "decoder")).bytes("a"),
                    Contains("longer than 1 MiB"));
  CHECK(replace_all("abab", "ab", "xyz", 6) == "xyzxyz");
  CHECK_THROWS_WITH(replace_all("abab", "ab", "xyz", 5), Contains("longer than 5 B"));
  CHECK(replace_all("no such thing", "ab", "xyz", 0) == "no such thing");

  TokenTable table;
  const std::string long_token(1 << 20, 'x');
  for (std::int32_t id = 0; id < 256; ++id) table.place(id, long_token);
  CHECK_THROWS_WITH(table.place(256, "x"), Contains("more than 256 MiB"));
  CHECK_NOTHROW(table.place(0, "x"));  // replaces a long token
  CHECK_NOTHROW(table.place(256, "x"));
}

TEST_CASE("every byte has a character and is recovered from it") {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    CHECK(bytes_of_alphabet(alphabet_of_bytes(one)) == one);
  }
  CHECK(alphabet_of_bytes(" ") == "\u0120");
  CHECK(alphabet_of_bytes("\n") == "\u010a");
  CHECK(alphabet_of_bytes("a") == "a");
  CHECK(bytes_of_alphabet("a b") == "a b");  // a space is not in the alphabet, so this is an added token's
                                             // text
  CHECK(bytes_of_alphabet("\u6771") == "\u6771");
}

TEST_CASE("merging agrees with the definition on random words") {
  const std::vector<std::pair<std::string, std::string>> merges{{"a", "b"},  {"b", "a"},    {"ab", "a"},
                                                                {"a", "a"},  {"ab", "ab"},  {"aa", "ba"},
                                                                {"c", "ab"}, {"aba", "ba"}, {"c", "c"}};
  BytePairModel model{.merges = merges, .byte_level = true};
  std::vector<std::string> tokens{"a", "b", "c"};
  for (const auto& [left, right] : merges) {
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) tokens.push_back(left + right);
  }
  for (std::size_t id = 0; id < tokens.size(); ++id)
    model.vocabulary.emplace(tokens[id], static_cast<std::int32_t>(id));
  const BytePairEncoder encoder(model, "test");
  for (std::uint64_t word = 0; word < 2000; ++word) {
    std::vector<std::string> letters;
    std::string text;
    const auto length = static_cast<std::uint64_t>(uniform01(combine({word, 1})) * 24);
    for (std::uint64_t i = 0; i < length; ++i) {
      letters.push_back(
          std::string(1, "aaabbc"[static_cast<std::size_t>(uniform01(combine({word, 2, i})) * 6)]));
      text += letters.back();
    }
    std::vector<std::int32_t> ids;
    encoder.encode(text, ids);
    std::vector<std::string> got;
    for (const std::int32_t id : ids) got.push_back(tokens[static_cast<std::size_t>(id)]);
    INFO(text);
    CHECK(got == slow_merge(letters, merges));
  }
}

TEST_CASE("a byte the vocabulary lacks is named; a known piece is not split when merges are ignored") {
  BytePairModel model{.vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}, {"aab", 3}}, .byte_level = true};
  std::vector<std::int32_t> ids;
  CHECK_THROWS_WITH(BytePairEncoder(model, "test").encode("ac", ids), Contains("byte 99"));
  ids.clear();
  model.merges = {{"a", "b"}};
  BytePairEncoder(model, "test").encode("aab", ids);
  CHECK(ids == std::vector<std::int32_t>{0, 2});
  ids.clear();
  model.ignore_merges = true;
  BytePairEncoder(model, "test").encode("aab", ids);
  CHECK(ids == std::vector<std::int32_t>{3});
}

TEST_CASE("split steps keep or remove matches, one after another") {
  using Pieces = std::vector<std::string>;
  CHECK(split({{.pattern = "[0-9]"}}, "a12b") == Pieces{"a", "1", "2", "b"});
  CHECK(split({{.pattern = "[0-9]", .delimiter = Delimiter::removed}}, "a12b") == Pieces{"a", "b"});
  CHECK(split({{.pattern = "[0-9]", .delimiter = Delimiter::removed, .invert = true}}, "a12b") ==
        Pieces{"1", "2"});
  CHECK(split({{.pattern = ".", .literal = true}}, "a.b") == Pieces{"a", ".", "b"});
  CHECK(split({{.pattern = ",", .delimiter = Delimiter::removed},
               {.prefix_rule = PrefixRule::every_piece, .prefix = " ", .pattern = "b"}},
              "ab, b,b") == Pieces{" a", "b", " ", "b", " ", "b"});
  CHECK(split({}, "a b") == Pieces{"a b"});
  CHECK(split({{.pattern = "x*"}}, "axxb") == Pieces{"a", "xx", "b"});
}

TEST_CASE("long runs do not exhaust the matcher") {
  const Tokenizer tokenizer = load_tokenizer(kGolden + "gpt2");
  for (const char* unit : {" ", "a", "1", "\n", "\u6771"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    std::size_t bytes = 0;
    INFO(unit);
    for (const std::int32_t id : tokenizer.encode(text)) bytes += tokenizer.bytes(id).size();
    CHECK(bytes == text.size());
  }
}

}  // namespace kvsim::model::test_tokenizer
