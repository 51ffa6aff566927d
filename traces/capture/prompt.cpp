#include "traces/capture/prompt.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/capture/chat_prompt.hpp"

namespace kvsim::capture {
namespace {

constexpr std::uint64_t kMaxTokensFileBytes = 256ULL << 20;

std::optional<model::Tokenizer> find_tokenizer(const CaptureOptions& options,
                                               std::vector<std::string>& notes) {
  const bool needed = options.tokens_file.empty();
  if (!needed && !model::has_tokenizer(options.model_dir)) return std::nullopt;
  try {
    return model::load_tokenizer(options.model_dir);
  } catch (const Error& error) {
    if (needed) throw;
    notes.push_back(std::string("the trace will hold no text: ") + error.what());
    return std::nullopt;
  }
}

void check_vocabulary(const std::vector<std::int32_t>& ids, const model::ModelConfig& config,
                      const std::string& where) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (static_cast<std::uint32_t>(ids[i]) < config.vocab_size) continue;
    input_error("token " + std::to_string(i) + " of the prompt has id " + std::to_string(ids[i]) +
                    ", outside the model's vocabulary of " + std::to_string(config.vocab_size),
                where, "The tokenizer belongs to another model.");
  }
}

std::vector<std::int32_t> read_ids(const std::string& path, const model::ModelConfig& config) {
  return parse_token_ids(read_file(path, kMaxTokensFileBytes), config.vocab_size, path);
}

/// What the options ask for, as an item: one of a workload, a conversation, or a text.
WorkloadItem asked_item(const CaptureOptions& options) {
  const bool prompt_given = options.workload_file.empty();
  const std::string& path = prompt_given ? options.prompt_file : options.workload_file;
  std::string text = read_file(path, prompt_given ? model::kMaxTextBytes : kMaxWorkloadBytes);
  if (!prompt_given || is_workload(text, path))
    return parse_workload_item(text, path, options.item, options.fields);
  if (!options.item.empty()) usage_error("names an item of a workload; " + path + " is a text", "--item");
  WorkloadItem item;
  item.prompt = std::move(text);
  return item;
}

void take_pieces(Prompt& prompt, const WorkloadItem& item) {
  if (item.documents.empty() && item.before.empty())
    usage_error("marks no documents and has no earlier version", item.id,
                "Make prompts of the kind documents, or write the fields: traces/workloads/README.md.");
  const std::uint64_t lead = begin_tokens(prompt.ids, *prompt.tokenizer);
  std::vector<workload::ByteSpan> places = document_tokens(item, prompt.ids, *prompt.tokenizer);
  if (!places.empty() && places.front().begin > 0) places.insert(places.begin(), {0, places.front().begin});
  for (const auto& [begin, end] : places) {
    std::vector<std::int32_t> ids;
    if (lead > 0 && begin > 0) ids.push_back(prompt.ids[0]);
    for (std::uint64_t t = begin; t < std::min<std::uint64_t>(end, prompt.ids.size() - 1); ++t)
      ids.push_back(prompt.ids[t]);
    if (begin + 1 < prompt.ids.size()) prompt.pieces.push_back({std::move(ids), true});
  }
  if (!item.before.empty()) prompt.pieces.push_back({earlier_ids(item, *prompt.tokenizer), false});
}

void take_item(Prompt& prompt, WorkloadItem item, bool pieces, std::vector<std::string>& notes) {
  prompt.ids = prompt_ids(item, *prompt.tokenizer);
  if (pieces) take_pieces(prompt, item);
  if (!item.spans.empty()) prompt.part_flags = part_flags(item, prompt.ids, *prompt.tokenizer);
  prompt.answers = std::move(item.answers);
  prompt.workload = item.kind;
  prompt.workload_item = item.id;
  if (item.tokens != 0 && prompt.ids.size() != item.tokens) {
    notes.push_back(item.id + " was built to " + std::to_string(item.tokens) +
                    " tokens of another tokenizer; here it has " + std::to_string(prompt.ids.size()));
  }
}

}  // namespace

Prompt load_prompt(const CaptureOptions& options, const model::ModelConfig& config,
                   std::vector<std::string>& notes) {
  Prompt prompt{{}, find_tokenizer(options, notes), {}};
  if (!options.tokens_file.empty()) {
    prompt.ids = read_ids(options.tokens_file, config);
  } else {
    std::vector<WorkloadItem> item{asked_item(options)};
    const bool is_text = item[0].id.empty();
    if (is_text) item[0].id = options.prompt_file;  // for messages
    apply_chat(item, options.model_dir, options.chat, notes);
    if (std::string note = doubled_begin_note(item, *prompt.tokenizer); !note.empty())
      notes.push_back(std::move(note));
    if (is_text) item[0].id.clear();
    take_item(prompt, std::move(item[0]), options.pieces, notes);
    const std::string where = options.model_dir + "/" + prompt.tokenizer->name();
    check_vocabulary(prompt.ids, config, where);
    for (const PieceRun& piece : prompt.pieces) check_vocabulary(piece.ids, config, where);
  }
  if (prompt.ids.empty())
    input_error("the prompt has no tokens",
                options.prompt_file + options.tokens_file + options.workload_file);
  if (!options.given_file.empty()) {
    prompt.given = read_ids(options.given_file, config);
    if (prompt.given.empty()) input_error("holds no tokens", options.given_file);
  }
  return prompt;
}

void check_context(std::uint64_t prompt, std::uint64_t max_new_tokens, std::uint64_t context) {
  if (prompt > context) {
    usage_error("the prompt has " + std::to_string(prompt) + " tokens, the model's context " +
                    std::to_string(context),
                "--prompt", "Shorten the prompt.");
  }
  if (max_new_tokens > context - prompt) {
    usage_error("the prompt's " + std::to_string(prompt) + " tokens and " + std::to_string(max_new_tokens) +
                    " new ones exceed the model's context of " + std::to_string(context),
                "--max-new-tokens", "At most " + std::to_string(context - prompt) + " fit.");
  }
}

namespace {

constexpr std::size_t kMaxIds = 1ULL << 24;
constexpr std::string_view kSpace = " \t\r\n";

std::vector<std::int32_t> parse_words(std::string_view text, std::uint64_t vocab_size,
                                      const std::string& where) {
  std::vector<std::int32_t> ids;
  for (std::size_t begin = text.find_first_not_of(kSpace); begin != std::string_view::npos;
       begin = text.find_first_not_of(kSpace, begin)) {
    const std::size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::string place = where + " token " + std::to_string(ids.size());
    if (ids.size() == kMaxIds) input_error("more than 16777216 tokens", where);
    const auto id = number_of<std::uint64_t>(word);
    if (!id) {
      input_error(in_quotes(word) + " is not a token id", place,
                  "Expected a JSON array of ids, or ids separated by white space.");
    }
    if (*id >= vocab_size) {
      input_error(std::to_string(*id) + " is outside the model's vocabulary of " + std::to_string(vocab_size),
                  place);
    }
    ids.push_back(static_cast<std::int32_t>(*id));
    begin = end;
  }
  return ids;
}

std::vector<std::int32_t> parse_array(std::string_view text, std::uint64_t vocab_size,
                                      const std::string& where) {
  const boost::json::value document = parse_strict_json(text, where, kMaxIds + 1);
  if (!document.is_array()) input_error("expected a JSON array of token ids", where);
  std::vector<std::int32_t> ids;
  for (const boost::json::value& value : document.get_array()) {
    const std::string place = where + " token " + std::to_string(ids.size());
    ids.push_back(static_cast<std::int32_t>(json_integer(value, place, 0, vocab_size - 1)));
  }
  return ids;
}

}  // namespace

std::vector<std::int32_t> parse_token_ids(std::string_view text, std::uint64_t vocab_size,
                                          const std::string& where) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text[first] == '[' ? parse_array(text, vocab_size, where) : parse_words(text, vocab_size, where);
}

}  // namespace kvsim::capture
