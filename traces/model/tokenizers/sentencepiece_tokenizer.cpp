#include "traces/model/tokenizers/sentencepiece_tokenizer.hpp"

#include <unistd.h>

#include <map>
#include <optional>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/tokenizers/byte_level.hpp"
#include "traces/model/tokenizers/sentencepiece_model.hpp"
#include "traces/model/tokenizers/token_table.hpp"
#include "traces/model/tokenizers/tokenizer_json.hpp"

namespace kvsim::model {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaxConfigBytes = 16ULL << 20;
constexpr std::size_t kMaxConfigValues = 1'000'000;
constexpr const char* kSpace = "\u2581";

/// The JSON object of a file; empty if the file does not exist.
class OptionalFile {
 public:
  explicit OptionalFile(const std::string& path)
      : value_(::access(path.c_str(), F_OK) == 0
                   ? parse_strict_json(read_regular_file(path, kMaxConfigBytes), path, kMaxConfigValues)
                   : json::value(json::object())),
        object_(value_, path) {}
  const JsonObject& operator*() const { return object_; }
  const JsonObject* operator->() const { return &object_; }

 private:
  json::value value_;
  JsonObject object_;
};

/// A token that is found in the text by its spelling.
struct SpecialText {
  AddedToken token;
  bool special = false;
};
using SpecialTexts = std::map<std::string, SpecialText>;

SpecialText parse_token(const json::value& value, const std::string& where, bool special) {
  SpecialText result;
  result.special = special;
  if (value.is_string()) {
    result.token.content = value.get_string();
    return result;
  }
  const JsonObject entry(value, where);
  result.token.content = entry.text("content");
  result.token.strip_left = entry.flag_or("lstrip", false);
  result.token.strip_right = entry.flag_or("rstrip", false);
  if (entry.flag_or("single_word", false)) not_supported("added token flag", "single_word", where);
  result.special = entry.flag_or("special", special);
  return result;
}

/// The files beside tokenizer.model, as transformers reads them: if tokenizer_config.json lists the added
/// tokens with their ids, it alone is used; otherwise the two older files are.
class SpecialFiles {
 public:
  explicit SpecialFiles(const std::string& folder)
      : config_(folder + "tokenizer_config.json"),
        map_(folder + "special_tokens_map.json"),
        added_(folder + "added_tokens.json"),
        listed_(config_->has("added_tokens_decoder")) {
    const std::string type = config_->text_or("tokenizer_class", "LlamaTokenizer");
    if (type != "LlamaTokenizer" && type != "LlamaTokenizerFast")
      not_supported("with tokenizer.model, tokenizer_class", type, config_->where());
  }

  const JsonObject& config() const { return *config_; }

  /// The added tokens, which have ids of their own.
  SpecialTexts added() const {
    SpecialTexts texts;
    if (!listed_) {
      for (const auto& member : added_->raw())
        put(texts, parse_token(json::value(member.key()), added_->where(), false), member.value(),
            added_->where());
      return texts;
    }
    const JsonObject list = config_->object("added_tokens_decoder");
    for (const auto& member : list.raw()) {
      const std::string_view key(member.key().data(), member.key().size());
      const std::string where = list.where() + " " + in_quotes(std::string(key));
      const auto id = number_of<std::uint64_t>(key);
      if (!id) input_error("expected a token id", where);
      put(texts, parse_token(member.value(), where, false), json::value(*id), where);
    }
    return texts;
  }

  /// The token that the files give for `role`, or Llama's default `standard`.
  std::optional<SpecialText> named(const std::string& role, const std::string& standard) const {
    const JsonObject& file = !listed_ && map_->has(role) ? *map_ : *config_;
    if (file.has(role)) return parse_token(file.at(role), file.path(role), true);
    if (standard.empty()) return std::nullopt;
    return parse_token(json::value(standard), file.where(), true);
  }

  std::vector<SpecialText> additional() const {
    constexpr const char* kKey = "additional_special_tokens";
    const JsonObject& file = !listed_ && map_->has(kKey) ? *map_ : *config_;
    std::vector<SpecialText> result;
    if (!file.has(kKey)) return result;
    for (const json::value& value : file.array(kKey))
      result.push_back(parse_token(value, file.path(kKey), true));
    return result;
  }

 private:
  static void put(SpecialTexts& texts, SpecialText text, const json::value& id, const std::string& where) {
    text.token.id = static_cast<std::int32_t>(json_integer(id, where, 0, TokenTable::kMaxId));
    texts[text.token.content] = std::move(text);
  }

  OptionalFile config_, map_, added_;
  bool listed_;
};

/// How transformers' Llama tokenizer uses a SentencePiece model.
struct LlamaRules {
  /// true: every text between special tokens is encoded separately, with the space that the model puts before
  /// a text. false: only the whole prompt gets this space.
  bool legacy = true;
  bool prefix_space = true;  ///< used if not legacy
  std::string unknown;       ///< text of the unknown token
};

class SentencePieceEncoder : public TextEncoder {
 public:
  SentencePieceEncoder(SentencePieceFile file, LlamaRules rules, const std::string& where)
      : rules_(std::move(rules)), model_(adapt(std::move(file), rules_), where) {
    if (!rules_.legacy) unknown_length_ = model_.encode(rules_.unknown).size();
  }

  AddedTokenFinder& finder() { return finder_; }
  void put_before(std::int32_t id) { before_.push_back(id); }
  void put_after(std::int32_t id) { after_.push_back(id); }

  std::vector<std::int32_t> encode(std::string_view text, bool framed) const override {
    std::vector<std::int32_t> ids;
    if (framed) ids = before_;
    for (const TextPart& part : finder_.cut(text)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_text(part.text, part.text.data() == text.data(), ids);
      }
    }
    if (framed) ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

 private:
  static SentencePieceFile adapt(SentencePieceFile file, const LlamaRules& rules) {
    if (!rules.legacy) file.add_dummy_prefix = false;
    return file;
  }

  /// Encodes one text. If not legacy, the unknown token's text is encoded before it and removed from the ids,
  /// which protects leading spaces from the model's normalization.
  void encode_text(std::string_view text, bool at_start, std::vector<std::int32_t>& ids) const {
    std::size_t skip = 0;
    std::string whole(text);
    if (!rules_.legacy) {
      whole = replace_all(text, kSpace, " ");
      if (at_start && rules_.prefix_space) whole.insert(0, kSpace);
      if (whole.starts_with(kSpace) || whole.starts_with(' ')) {
        whole.insert(0, rules_.unknown);
        skip = unknown_length_;
      }
    }
    const std::vector<std::int32_t> found = model_.encode(whole);
    if (found.size() < skip) skip = 0;
    ids.insert(ids.end(), found.begin() + static_cast<std::ptrdiff_t>(skip), found.end());
  }

  LlamaRules rules_;
  SentencePieceModel model_;
  std::size_t unknown_length_ = 0;
  AddedTokenFinder finder_;
  std::vector<std::int32_t> before_, after_;
};

/// The bytes of the model's own pieces.
TokenTable piece_table(const SentencePieceFile& file) {
  using Kind = SentencePieceFile::Kind;
  TokenTable table;
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    const SentencePieceFile::Piece& piece = file.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    const std::optional<char> byte = piece.kind == Kind::byte ? byte_of_token(piece.text) : std::nullopt;
    if (byte) {
      table.place(id, std::string(1, *byte));
    } else if (piece.kind == Kind::control || piece.kind == Kind::unknown) {
      table.place(id, piece.text);
      table.mark_special(id);
    } else {
      table.place(id, file.escape_whitespaces ? replace_all(piece.text, kSpace, " ") : piece.text);
    }
  }
  return table;
}

/// Every special token with its id.
class SpecialTokens {
 public:
  SpecialTokens(const SpecialFiles& files, const SentencePieceFile& file, const std::string& path)
      : texts_(files.added()), path_(path) {
    for (std::size_t i = 0; i < file.pieces.size(); ++i)
      piece_ids_.emplace(file.pieces[i].text, static_cast<std::int32_t>(i));
    for (const auto& [role, standard] : {std::pair{"bos_token", "<s>"},
                                         {"eos_token", "</s>"},
                                         {"unk_token", "<unk>"},
                                         {"pad_token", ""},
                                         {"sep_token", ""},
                                         {"cls_token", ""},
                                         {"mask_token", ""}}) {
      if (const std::optional<SpecialText> token = files.named(role, standard)) {
        add(*token);
        roles_[role] = token->token.content;
      }
    }
    for (const SpecialText& token : files.additional()) add(token);
  }

  const SpecialTexts& texts() const { return texts_; }
  const std::string& content(const std::string& role) const { return roles_.at(role); }
  std::int32_t id(const std::string& role) const { return texts_.at(content(role)).token.id; }

 private:
  void add(SpecialText text) {
    if (const auto known = texts_.find(text.token.content); known != texts_.end()) {
      known->second.special = true;
      return;
    }
    const auto piece = piece_ids_.find(text.token.content);
    if (piece == piece_ids_.end()) {
      input_error("the special token " + in_quotes(text.token.content) + " has no id", path_,
                  "added_tokens.json or tokenizer_config.json should give it one.");
    }
    text.token.id = piece->second;
    texts_.emplace(text.token.content, std::move(text));
  }

  SpecialTexts texts_;
  std::map<std::string, std::string> roles_;
  std::map<std::string, std::int32_t> piece_ids_;
  std::string path_;
};

}  // namespace

Tokenizer open_sentencepiece(const std::string& path) {
  const std::string bytes = read_regular_file(path, kMaxTokenizerBytes);
  SentencePieceFile file = parse_sentencepiece_file(bytes, path);
  const SpecialFiles files(path.substr(0, path.rfind('/') + 1));
  const SpecialTokens specials(files, file, path);
  const JsonObject& config = files.config();
  const LlamaRules rules{config.flag_or("legacy", true), config.flag_or("add_prefix_space", true),
                         specials.content("unk_token")};

  TokenTable table = piece_table(file);
  if (rules.legacy && file.add_dummy_prefix) table.set_leading_space(LeadingSpace::run_dropped);
  if (!rules.legacy && rules.prefix_space) table.set_leading_space(LeadingSpace::dropped);
  auto encoder = std::make_unique<SentencePieceEncoder>(std::move(file), rules, path);
  for (const auto& [content, text] : specials.texts()) {
    table.place(text.token.id, content);
    if (text.special) table.mark_special(text.token.id);
    encoder->finder().add(text.token, path);
  }
  if (config.flag_or("add_bos_token", true)) encoder->put_before(specials.id("bos_token"));
  if (config.flag_or("add_eos_token", false)) encoder->put_after(specials.id("eos_token"));
  return {std::move(encoder), std::move(table), path, bytes};
}

}  // namespace kvsim::model
