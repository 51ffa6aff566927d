#include "traces/model/tokenizers/gguf_tokenizer.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <unordered_map>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"
#include "traces/model/unicode_text.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxTokens = 1'000'000;
constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr const char* kPre = "tokenizer.ggml.pre";
constexpr const char* kGgufSpace = "\u2581";

enum TokenType : std::int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

/// The patterns by which texts are split, of the kinds that tokenizer.ggml.pre names.
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDefaultPatterns[] = {
    R"([\p{P}\$\+<=>\^~\|]+)", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))",
    R"(\p{N}+)", "[0-9][0-9][0-9]"};

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<std::int64_t> types;
};

Vocabulary read_vocabulary(const Gguf& file) {
  Vocabulary words{file.texts(kTokens), {}};
  if (words.tokens.size() > kMaxTokens) input_error("more than 1000000 tokens", file.where(kTokens));
  words.types =
      file.has(kTypes) ? file.integers(kTypes) : std::vector<std::int64_t>(words.tokens.size(), kNormal);
  if (words.types.size() != words.tokens.size())
    input_error("has " + std::to_string(words.types.size()) + " types for " +
                    std::to_string(words.tokens.size()) + " tokens",
                file.where(kTypes));
  for (std::size_t id = 0; id < words.tokens.size(); ++id) {
    const std::string where = file.where(kTokens) + " " + std::to_string(id);
    require_utf8(words.tokens[id], where);
    if (words.types[id] < kNormal || words.types[id] > kByte)
      input_error("a token of the unknown type " + std::to_string(words.types[id]), where);
  }
  return words;
}

json::object split_by(const char* pattern) {
  return {{"type", "Split"},
          {"pattern", json::object{{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

/// How a byte-level tokenizer cuts texts, in the terms of tokenizer.json.
json::object pre_tokenizer(const std::string& pre, const std::string& where) {
  json::array steps;
  if (pre == "smollm") steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (pre == "llama-bpe") steps.push_back(split_by(kLlama3Pattern));
  if (pre == "qwen2") steps.push_back(split_by(kQwen2Pattern));
  if (pre == "default")
    for (const char* pattern : kDefaultPatterns) steps.push_back(split_by(pattern));
  if (steps.empty() && pre != "gpt-2")
    input_error("the pre-tokenizer " + in_quotes(pre) + " is not supported", where,
                "Known: smollm, llama-bpe, qwen2, default, gpt-2. Tokenize the prompt elsewhere and pass the "
                "ids with --tokens.");
  const bool cuts = pre == "smollm" || pre == "gpt-2";
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", cuts}});
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

/// The merges that pieces with scores mean: every pair of pieces that makes one, the best score first.
json::array scored_merges(const Gguf& file, const Vocabulary& words) {
  struct Merge {
    double score;
    std::size_t left_length, right_length;  // in characters
    std::string_view left, right;
    std::size_t left_id, right_id;
  };
  const std::vector<double> scores = file.numbers(kScores);
  if (scores.size() != words.tokens.size())
    input_error("has " + std::to_string(scores.size()) + " scores for " +
                    std::to_string(words.tokens.size()) + " tokens",
                file.where(kScores));
  const auto merges_into = [&](std::size_t id) {
    return words.types[id] == kNormal || words.types[id] == kUserDefined;
  };
  std::unordered_map<std::string_view, std::size_t> ids;
  ids.reserve(words.tokens.size());
  for (std::size_t id = 0; id < words.tokens.size(); ++id)
    if (merges_into(id)) ids.emplace(words.tokens[id], id);
  std::vector<Merge> merges;
  for (std::size_t id = 0; id < words.tokens.size(); ++id) {
    if (!merges_into(id)) continue;
    if (!(std::abs(scores[id]) < 1e30)) input_error("a score that is no number", file.where(kScores));
    const std::string_view piece = words.tokens[id];
    const auto begins = [](char c) { return (c & 0xc0) != 0x80; };
    const auto length = static_cast<std::size_t>(std::count_if(piece.begin(), piece.end(), begins));
    const std::size_t first = merges.size();
    for (std::size_t at = 1, done = 1; at < piece.size(); ++at) {
      if (!begins(piece[at])) continue;
      const auto left = ids.find(piece.substr(0, at));
      const auto right = left == ids.end() ? left : ids.find(piece.substr(at));
      if (right != ids.end())
        merges.push_back(
            {scores[id], done, length - done, left->first, right->first, left->second, right->second});
      ++done;
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
              });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.left_length, a.right_length) >
           std::tuple(b.score, b.left_length, b.right_length);
  });
  json::array out;
  for (const Merge& merge : merges) out.push_back(json::array{merge.left, merge.right});
  return out;
}

json::object replacement(const char* from, const char* to) {
  return {{"type", "Replace"}, {"pattern", json::object{{"String", from}}}, {"content", to}};
}

/// The parts that only pieces with scores have: spaces become a character of their own, one stands before a
/// text.
void add_pieces(const Gguf& file, const Vocabulary& words, json::object& model, json::object& root) {
  for (const char* key : {"tokenizer.ggml.precompiled_charsmap", "tokenizer.ggml.remove_extra_whitespaces"})
    if (file.has(key) && (std::string_view(key).ends_with("charsmap") || file.flag(key)))
      not_supported("tokenizers with", key, file.path());
  const auto unknown = std::find(words.types.begin(), words.types.end(), kUnknown);
  if (unknown != words.types.end())
    model["unk_token"] = words.tokens[static_cast<std::size_t>(unknown - words.types.begin())];
  model["fuse_unk"] = model["byte_fallback"] = true;
  model["merges"] = scored_merges(file, words);
  const bool prefix = file.flag_or("tokenizer.ggml.add_space_prefix", true);
  json::array normalizers, decoders{replacement(kGgufSpace, " "), json::object{{"type", "ByteFallback"}},
                                    json::object{{"type", "Fuse"}}};
  if (prefix) {
    normalizers.push_back({{"type", "Prepend"}, {"prepend", kGgufSpace}});
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  normalizers.push_back(replacement(" ", kGgufSpace));
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}};
  root["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
}

void add_bytes(const Gguf& file, json::object& model, json::object& root) {
  const std::string pre(file.text_or(kPre, "default"));
  json::array merges;
  for (const std::string_view merge : file.texts("tokenizer.ggml.merges")) merges.emplace_back(merge);
  model["merges"] = std::move(merges);
  model["ignore_merges"] = pre == "llama-bpe";
  root["pre_tokenizer"] = pre_tokenizer(pre, file.where(kPre));
  root["decoder"] = json::object{{"type", "ByteLevel"}};
  if (pre == "qwen2") root["normalizer"] = json::object{{"type", "NFC"}};
}

/// Tokens that belong before and after a text.
json::object frame(const Gguf& file, bool begins) {
  json::array single;
  json::object special;
  const auto put = [&](const char* key, std::uint64_t id) {
    single.push_back(json::object{{"SpecialToken", json::object{{"id", key}}}});
    special[key] = json::object{{"ids", json::array{id}}};
  };
  const bool scored = file.text(kModel) == "llama";
  const auto id_of = [&](const char* key, std::uint64_t standard) {
    return scored ? file.integer_or(key, standard) : file.integer(key);
  };
  if (file.flag_or("tokenizer.ggml.add_bos_token", begins))
    put("bos", id_of("tokenizer.ggml.bos_token_id", 1));
  single.push_back(json::object{{"Sequence", json::object{{"id", "A"}}}});
  if (file.flag_or("tokenizer.ggml.add_eos_token", false))
    put("eos", id_of("tokenizer.ggml.eos_token_id", 2));
  return {
      {"type", "TemplateProcessing"}, {"single", std::move(single)}, {"special_tokens", std::move(special)}};
}

}  // namespace

bool has_gguf_tokenizer(const Gguf& file) {
  return file.text_or(kModel, "no_vocab") != "no_vocab";
}

/// The metadata says what tokenizer.json says, which is written here and opened as one.
Tokenizer open_gguf_tokenizer(const Gguf& file) {
  const std::string kind(file.text(kModel));
  if (kind != "gpt2" && kind != "llama") not_supported("the kind of tokenizer", kind, file.where(kModel));
  const Vocabulary words = read_vocabulary(file);
  json::object vocabulary, model{{"type", "BPE"}}, root;
  json::array added;
  for (std::size_t id = 0; id < words.tokens.size(); ++id) {
    const std::int64_t type = words.types[id];
    if (type == kUnknown || type == kControl || type == kUserDefined)
      added.push_back({{"id", id},
                       {"content", words.tokens[id]},
                       {"special", type != kUserDefined},
                       {"normalized", false}});
    if (type == kControl || type == kUnused) continue;
    if (!vocabulary.emplace(words.tokens[id], id).second)
      input_error("two tokens are " + in_quotes(words.tokens[id]), file.where(kTokens));
  }
  if (kind == "llama")
    add_pieces(file, words, model, root);
  else
    add_bytes(file, model, root);
  model["vocab"] = std::move(vocabulary);
  root["model"] = std::move(model);
  root["added_tokens"] = std::move(added);
  root["post_processor"] = frame(file, kind == "llama" || file.text_or(kPre, "") == "llama-bpe");
  return parse_tokenizer_json(json::serialize(root), file.path());
}

}  // namespace kvsim::model
