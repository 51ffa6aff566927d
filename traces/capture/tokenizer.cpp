#include "traces/capture/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "sim/base/error.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/capture/byte_pair_encoder.hpp"
#include "traces/capture/unicode_text.hpp"

namespace kvsim::capture {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxVocabulary = 1'000'000, kMaxMerges = 2'000'000, kMaxAddedTokens = 100'000;
constexpr std::size_t kMaxValues = kMaxVocabulary + 3 * kMaxMerges + 16 * kMaxAddedTokens;
constexpr std::uint64_t kMaxId = (1ULL << 22) - 1;
constexpr const char* kUseTokens = "Tokenize the prompt elsewhere and pass the ids with --tokens.";

// How ByteLevel cuts text when it is left to itself (GPT-2).
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void unsupported(const std::string& what, const std::string& where) {
  input_error(what + " is not supported", where, kUseTokens);
}

/// A string that is found in the text before anything else happens to it.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool strip_left = false, strip_right = false;  ///< takes the white space beside it along
  bool normalized = false;                       ///< looked for in normalized text
};

/// Finds added tokens: leftmost first, longest among those.
class AddedTokenFinder {
 public:
  void add(AddedToken token) {
    if (token.content.empty()) return;
    auto& bucket = by_first_byte_[static_cast<unsigned char>(token.content[0])];
    const auto longer = [&](const AddedToken& other) { return other.content.size() >= token.content.size(); };
    bucket.insert(std::find_if_not(bucket.begin(), bucket.end(), longer), std::move(token));
  }

  /// Calls text(part) and token(id) in the order of the text.
  template <class OnText, class OnToken>
  void cut(std::string_view text, OnText on_text, OnToken on_token) const {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* token = match(text.substr(at));
      if (token == nullptr) {
        ++at;
        continue;
      }
      std::size_t begin = at, end = at + token->content.size();
      if (token->strip_left) begin -= trailing_space(text.substr(done, begin - done));
      if (token->strip_right) end += leading_space(text.substr(end));
      if (begin > done) on_text(text.substr(done, begin - done));
      on_token(token->id);
      done = at = end;
    }
    if (done < text.size()) on_text(text.substr(done));
  }

 private:
  const AddedToken* match(std::string_view text) const {
    for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[0])]) {
      if (text.starts_with(token.content)) return &token;
    }
    return nullptr;
  }
  std::array<std::vector<AddedToken>, 256> by_first_byte_;
};

std::int32_t token_id(const json::value& value, const std::string& where) {
  return static_cast<std::int32_t>(json_integer(value, where, 0, kMaxId));
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

BytePairEncoder parse_model(const JsonObject& model) {
  const std::string type = model.text_or("type", "BPE");
  if (type != "BPE") unsupported("model type " + quoted(type), model.where());
  if (model.flag_or("byte_fallback", false))
    unsupported("byte_fallback (SentencePiece style BPE, as Llama 2 and TinyLlama use)", model.where());
  if (model.has("dropout") && model.number("dropout", 0, 1) != 0) unsupported("dropout", model.where());
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text_or(affix, "").empty()) unsupported(affix, model.where());
  }
  BytePairEncoder::Vocabulary vocabulary;
  const JsonObject vocab = model.object("vocab");
  if (vocab.raw().size() > kMaxVocabulary) input_error("more than 1000000 tokens", vocab.where());
  std::unordered_set<std::int32_t> ids;
  for (const auto& member : vocab.raw()) {
    const std::string token(member.key());
    const std::int32_t id = token_id(member.value(), vocab.where() + " " + quoted(token));
    if (!ids.insert(id).second) input_error("two tokens have the id " + std::to_string(id), vocab.where());
    vocabulary.emplace(token, id);
  }
  const json::array& list = model.array("merges");
  if (list.size() > kMaxMerges) input_error("more than 2000000 merges", model.path("merges"));
  std::vector<std::pair<std::string, std::string>> merges;
  merges.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i)
    merges.push_back(parse_merge(list[i], model.path("merges") + "[" + std::to_string(i) + "]"));
  return {std::move(vocabulary), merges, model.flag_or("ignore_merges", false), model.where()};
}

/// Whether text is composed (NFC) first.
bool parse_normalizer(const json::value* value, const std::string& where) {
  if (value == nullptr) return false;
  const JsonObject normalizer(*value, where);
  const std::string type = normalizer.text("type");
  if (type == "NFC") return true;
  if (type != "Sequence") unsupported("normalizer " + quoted(type), where);
  bool nfc = false;
  for (const json::value& part : normalizer.array("normalizers")) nfc = parse_normalizer(&part, where) || nfc;
  return nfc;
}

SplitStep parse_split(const JsonObject& split) {
  SplitStep step;
  const JsonObject pattern = split.object("pattern");
  step.literal = !pattern.has("Regex");
  step.pattern = pattern.text(step.literal ? "String" : "Regex");
  const std::string behavior = split.text("behavior");
  const bool invert = split.flag_or("invert", false);
  if (behavior == "Removed") {
    step.drop_matches = !invert;
    step.drop_rest = invert;
  } else if (behavior != "Isolated") {
    unsupported("split behavior " + quoted(behavior), split.where());
  }
  return step;
}

/// Appends the steps of one pre-tokenizer. `byte_level` is set by the one that must come last.
void parse_pre_tokenizer(const JsonObject& part, std::vector<SplitStep>& steps, bool& byte_level) {
  const std::string type = part.text("type");
  if (byte_level) unsupported("pre-tokenizer " + quoted(type) + " after ByteLevel", part.where());
  if (type == "Sequence") {
    const json::array& parts = part.array("pretokenizers");
    for (std::size_t i = 0; i < parts.size(); ++i)
      parse_pre_tokenizer({parts[i], part.where() + "[" + std::to_string(i) + "]"}, steps, byte_level);
  } else if (type == "Split") {
    steps.push_back(parse_split(part));
  } else if (type == "Digits") {
    steps.push_back({.pattern = part.flag_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)"});
  } else if (type == "ByteLevel") {
    byte_level = true;
    const bool use_regex = part.flag_or("use_regex", true);
    steps.push_back({.prefix_space = part.flag_or("add_prefix_space", true),
                     .pattern = use_regex ? kByteLevelPattern : ""});
  } else {
    unsupported("pre-tokenizer " + quoted(type), part.where());
  }
}

TextSplitter parse_pre_tokenizers(const JsonObject& root) {
  const std::string where = root.path("pre_tokenizer");
  if (!root.has("pre_tokenizer")) unsupported("a tokenizer without a ByteLevel pre-tokenizer", where);
  std::vector<SplitStep> steps;
  bool byte_level = false;
  parse_pre_tokenizer(root.object("pre_tokenizer"), steps, byte_level);
  if (!byte_level) unsupported("a tokenizer without a ByteLevel pre-tokenizer", where);
  return {std::move(steps), where};
}

/// Ids put before and after the text.
struct Frame {
  std::vector<std::int32_t> before, after;
};

/// A template such as "<s> A": special tokens around the one sequence.
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
  if (type == "ByteLevel") return;  // moves offsets only
  if (type == "Sequence") {
    for (const json::value& part : processor.array("processors"))
      parse_post_processor({part, processor.where()}, frame);
    return;
  }
  if (type != "TemplateProcessing") unsupported("post-processor " + quoted(type), processor.where());
  const Frame outer = parse_template(processor);
  frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
  frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
}

std::string digest(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.hex();
}

}  // namespace

struct Tokenizer::State {
  State(const JsonObject& root, std::string digest_in)
      : nfc(parse_normalizer(root.find("normalizer"), root.path("normalizer"))),
        encoder(parse_model(root.object("model"))),
        splitter(parse_pre_tokenizers(root)),
        sha256(std::move(digest_in)),
        where(root.where()) {
    for (const auto& [token, id] : encoder.vocabulary()) place(id, bytes_of_alphabet(token));
    if (root.has("added_tokens")) add_tokens(root.array("added_tokens"));
    if (root.has("post_processor")) parse_post_processor(root.object("post_processor"), frame);
  }

  void place(std::int32_t id, std::string text) {
    const auto index = static_cast<std::size_t>(id);
    if (bytes.size() <= index) bytes.resize(index + 1);
    bytes[index] = std::move(text);
  }

  void add_tokens(const json::array& list) {
    if (list.size() > kMaxAddedTokens) input_error("more than 100000 added tokens", where);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const JsonObject entry(list[i], where + " added_tokens[" + std::to_string(i) + "]");
      AddedToken token;
      token.content = entry.text("content");
      token.id = token_id(entry.at("id"), entry.path("id"));
      token.strip_left = entry.flag_or("lstrip", false);
      token.strip_right = entry.flag_or("rstrip", false);
      if (entry.flag_or("single_word", false)) unsupported("single_word", entry.where());
      place(token.id, token.content);
      if (entry.flag_or("special", false)) special.insert(token.id);
      token.normalized = entry.flag_or("normalized", !entry.flag_or("special", false));
      if (token.normalized && nfc) token.content = compose_nfc(token.content);
      (token.normalized ? in_normalized : in_raw).add(std::move(token));
    }
  }

  bool nfc;
  BytePairEncoder encoder;
  TextSplitter splitter;
  std::string sha256, where;
  AddedTokenFinder in_raw, in_normalized;
  std::vector<std::string> bytes;  // of each id
  std::unordered_set<std::int32_t> special;
  Frame frame;
};

Tokenizer::Tokenizer(const std::string& text, const std::string& path) {
  const json::value document = parse_strict_json(text, path, kMaxValues);
  const JsonObject root(document, path);
  for (const char* part : {"truncation", "padding"}) {
    if (root.has(part)) unsupported(part, path);
  }
  state_ = std::make_unique<State>(root, digest(text));
}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes) input_error("the text is longer than 64 MiB", state_->where, kUseTokens);
  require_utf8(text, "prompt");
  const State& s = *state_;
  std::vector<std::int32_t> ids = s.frame.before;
  const auto add = [&](std::int32_t id) { ids.push_back(id); };
  const auto encode_plain = [&](std::string_view part) {
    for (const std::string& piece : s.splitter.split(part)) s.encoder.encode(piece, ids);
  };
  s.in_raw.cut(
      text,
      [&](std::string_view part) {
        s.in_normalized.cut(s.nfc ? compose_nfc(part) : std::string(part), encode_plain, add);
      },
      add);
  ids.insert(ids.end(), s.frame.after.begin(), s.frame.after.end());
  return ids;
}

const std::string& Tokenizer::bytes(std::int32_t id) const {
  static const std::string kNothing;
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < state_->bytes.size() ? state_->bytes[index] : kNothing;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return state_->special.contains(id);
}
const std::string& Tokenizer::sha256() const {
  return state_->sha256;
}

}  // namespace kvsim::capture
