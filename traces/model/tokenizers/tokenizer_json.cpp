#include "traces/model/tokenizers/tokenizer_json.hpp"

#include <unordered_set>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizers/byte_pair_encoder.hpp"
#include "traces/model/tokenizers/text_normalizer.hpp"
#include "traces/model/tokenizers/text_splitter.hpp"
#include "traces/model/tokenizers/token_table.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxVocabulary = 1'000'000, kMaxMerges = 2'000'000, kMaxAddedTokens = 100'000;
constexpr std::size_t kMaxValues = kMaxVocabulary + 3 * kMaxMerges + 16 * kMaxAddedTokens;

std::int32_t token_id(const json::value& value, const std::string& where) {
  return static_cast<std::int32_t>(json_integer(value, where, 0, TokenTable::kMaxId));
}

std::string string_of(const json::value& value, const std::string& where) {
  if (!value.is_string()) input_error("expected a string", where);
  return std::string(value.get_string());
}

std::pair<std::string, std::string> parse_merge(const json::value& value, const std::string& where) {
  if (value.is_array()) {
    const json::array& pair = value.get_array();
    if (pair.size() != 2) input_error("a merge must name two tokens", where);
    return {string_of(pair[0], where), string_of(pair[1], where)};
  }
  const std::string text = string_of(value, where);
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    input_error("a merge must name two tokens, one space between them", where);
  return {text.substr(0, space), text.substr(space + 1)};
}

void parse_vocabulary(const JsonObject& vocab, BytePairModel& out) {
  if (vocab.raw().size() > kMaxVocabulary) input_error("more than 1000000 tokens", vocab.where());
  std::unordered_set<std::int32_t> ids;
  for (const auto& member : vocab.raw()) {
    const std::string token(member.key());
    const std::int32_t id = token_id(member.value(), vocab.where() + " " + in_quotes(token));
    if (!ids.insert(id).second) input_error("two tokens have the id " + std::to_string(id), vocab.where());
    out.vocabulary.emplace(token, id);
  }
}

BytePairEncoder parse_model(const JsonObject& model, bool byte_level) {
  const std::string type = model.text_or("type", "BPE");
  if (type != "BPE") not_supported("model type", type, model.where());
  if (model.has("dropout") && model.number("dropout", 0, 1) != 0)
    not_supported("model option", "dropout", model.where());
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text_or(affix, "").empty()) not_supported("model option", affix, model.where());
  }
  BytePairModel out;
  out.byte_level = byte_level;
  out.ignore_merges = model.flag_or("ignore_merges", false);
  out.byte_fallback = model.flag_or("byte_fallback", false);
  out.unknown = model.text_or("unk_token", "");
  out.fuse_unknown = model.flag_or("fuse_unk", false);
  if (byte_level && out.byte_fallback)
    not_supported("with a ByteLevel pre-tokenizer,", "byte_fallback", model.where());
  parse_vocabulary(model.object("vocab"), out);
  const json::array& list = model.array("merges");
  if (list.size() > kMaxMerges) input_error("more than 2000000 merges", model.path("merges"));
  out.merges.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i)
    out.merges.push_back(parse_merge(list[i], model.path("merges") + "[" + std::to_string(i) + "]"));
  return {std::move(out), model.where()};
}

/// Ids put before and after the text.
struct Frame {
  std::vector<std::int32_t> before, after;
};

/// Parses a template such as "<s> A": special tokens around a single sequence.
Frame parse_template(const JsonObject& processor) {
  const JsonObject special = processor.object("special_tokens");
  Frame frame;
  bool seen_text = false;
  for (const json::value& value : processor.array("single")) {
    const JsonObject item(value, processor.path("single"));
    if (item.has("Sequence")) {
      if (seen_text || item.object("Sequence").text("id") != "A")
        input_error("expected the sequence A once", item.where());
      seen_text = true;
      continue;
    }
    const std::string name = item.object("SpecialToken").text("id");
    for (const json::value& id : special.object(name).array("ids"))
      (seen_text ? frame.after : frame.before).push_back(token_id(id, special.where()));
  }
  if (!seen_text) input_error("the template leaves out the text", processor.path("single"));
  return frame;
}

void parse_post_processor(const JsonObject& processor, Frame& frame) {
  const std::string type = processor.text("type");
  if (type == "ByteLevel") return;  // changes only offsets, not ids
  if (type == "Sequence") {
    for (const json::value& part : processor.array("processors"))
      parse_post_processor({part, processor.where()}, frame);
    return;
  }
  if (type != "TemplateProcessing") not_supported("post-processor", type, processor.where());
  const Frame outer = parse_template(processor);
  frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
  frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
}

PreTokenizer read_pre_tokenizer(const JsonObject& root) {
  return root.has("pre_tokenizer") ? parse_pre_tokenizer(root.object("pre_tokenizer")) : PreTokenizer{};
}

TokenDecoder read_decoder(const JsonObject& root, bool byte_level) {
  if (!root.has("decoder")) {
    if (!byte_level) input_error("no decoder: what tokens stand for is not said", root.where());
    return {};
  }
  TokenDecoder decoder(root.object("decoder"));
  if (decoder.byte_level() != byte_level)
    input_error("pre_tokenizer and decoder differ about ByteLevel", root.where());
  return decoder;
}

class JsonEncoder : public TextEncoder {
 public:
  JsonEncoder(const JsonObject& root, PreTokenizer pre_tokenizer)
      : model_(parse_model(root.object("model"), pre_tokenizer.byte_level)),
        splitter_(std::move(pre_tokenizer.steps), root.path("pre_tokenizer")) {
    if (root.has("normalizer")) normalizer_ = TextNormalizer(root.object("normalizer"));
    if (root.has("post_processor")) parse_post_processor(root.object("post_processor"), frame_);
  }

  const BytePairEncoder& model() const { return model_; }

  /// Adds a token; returns its text in the form in which it is searched for.
  std::string add_token(AddedToken token, bool normalized, const std::string& where) {
    if (normalized) token.content = normalizer_.apply(token.content);
    std::string content = token.content;
    (normalized ? in_normalized_ : in_raw_).add(std::move(token), where);
    return content;
  }

  std::vector<std::int32_t> encode(std::string_view text, bool framed) const override {
    std::vector<std::int32_t> ids;
    if (framed) ids = frame_.before;
    for (const TextPart& raw : in_raw_.cut(text)) {
      if (raw.id >= 0) {
        ids.push_back(raw.id);
        continue;
      }
      bool at_start = raw.text.data() == text.data();
      const std::string normal = normalizer_.apply(raw.text);
      for (const TextPart& part : in_normalized_.cut(normal)) {
        if (part.id >= 0) {
          ids.push_back(part.id);
        } else {
          for (const std::string& piece : splitter_.split(part.text, at_start)) model_.encode(piece, ids);
        }
        at_start = false;
      }
    }
    if (framed) ids.insert(ids.end(), frame_.after.begin(), frame_.after.end());
    return ids;
  }

 private:
  BytePairEncoder model_;
  TextSplitter splitter_;
  TextNormalizer normalizer_;
  AddedTokenFinder in_raw_, in_normalized_;
  Frame frame_;
};

void parse_added_token(const JsonObject& entry, const TokenDecoder& decoder, JsonEncoder& encoder,
                       TokenTable& tokens) {
  AddedToken token;
  token.content = entry.text("content");
  token.id = token_id(entry.at("id"), entry.path("id"));
  token.strip_left = entry.flag_or("lstrip", false);
  token.strip_right = entry.flag_or("rstrip", false);
  token.single_word = entry.flag_or("single_word", false);
  const auto known = encoder.model().vocabulary().find(token.content);
  if (known != encoder.model().vocabulary().end() && known->second != token.id) {
    input_error(in_quotes(token.content) + " has id " + std::to_string(token.id) + " here and " +
                    std::to_string(known->second) + " in the vocabulary",
                entry.where());
  }
  const bool special = entry.flag_or("special", false);
  const bool is_new = known == encoder.model().vocabulary().end();
  const std::int32_t id = token.id;
  const std::string content =
      encoder.add_token(std::move(token), entry.flag_or("normalized", !special), entry.where());
  if (is_new) tokens.place(id, decoder.byte_level() ? content : decoder.bytes(content));
  if (special) tokens.mark_special(id);
}

}  // namespace

void not_supported(const std::string& part, const std::string& type, const std::string& where) {
  input_error(part + " " + in_quotes(type) + " is not supported", where,
              "Tokenize the prompt elsewhere and pass the ids with --tokens.");
}

std::string plain_pattern(const JsonObject& json) {
  const JsonObject pattern = json.object("pattern");
  if (!pattern.has("String")) not_supported("the pattern of", json.text("type"), pattern.where());
  std::string text = pattern.text("String");
  if (text.empty()) input_error("an empty pattern", pattern.where());
  return text;
}

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content,
                        std::size_t most) {
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern, done)) {
    if (result.size() + (text.size() - done) + content.size() > most + pattern.size()) {
      input_error("makes a text longer than " + bytes_text(most),
                  "replacing " + in_quotes(std::string(pattern)),
                  "Tokenize the prompt elsewhere and pass the ids with --tokens.");
    }
    result.append(text.substr(done, at - done)).append(content);
    done = at + pattern.size();
  }
  return result.append(text.substr(done));
}

Tokenizer parse_tokenizer_json(const std::string& text, const std::string& path) {
  const json::value document = parse_strict_json(text, path, kMaxValues);
  const JsonObject root(document, path);
  PreTokenizer pre_tokenizer = read_pre_tokenizer(root);
  const bool byte_level = pre_tokenizer.byte_level;
  auto encoder = std::make_unique<JsonEncoder>(root, std::move(pre_tokenizer));
  const TokenDecoder decoder = read_decoder(root, byte_level);
  TokenTable tokens;
  tokens.set_leading_space(decoder.leading_space());
  for (const auto& [token, id] : encoder->model().vocabulary()) tokens.place(id, decoder.bytes(token));
  if (root.has("added_tokens")) {
    const json::array& list = root.array("added_tokens");
    if (list.size() > kMaxAddedTokens) input_error("more than 100000 added tokens", path);
    for (std::size_t i = 0; i < list.size(); ++i)
      parse_added_token({list[i], path + " added_tokens[" + std::to_string(i) + "]"}, decoder, *encoder,
                        tokens);
  }
  return {std::move(encoder), std::move(tokens), path, text};
}

}  // namespace kvsim::model
