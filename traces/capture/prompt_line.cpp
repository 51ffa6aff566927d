#include "traces/capture/prompt_line.hpp"

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::capture {
namespace {

namespace json = boost::json;
using workload::Expect;
using workload::Role;

constexpr std::uint64_t kMaxTokens = 1ULL << 32;
constexpr std::string_view kRulerAnswersDocuments = "Answer the question based on the given documents.";
/// What a question with choices ends with, and the answer begins behind.
constexpr std::string_view kChosen = "\nThe correct answer is";

// A line of kvsim workload.

std::vector<workload::RoleSpan> parse_spans(const JsonObject& line, std::uint64_t bytes) {
  std::vector<workload::RoleSpan> spans;
  for (const json::value& value : line.array("spans")) {
    const JsonObject object(value, line.path("spans") + "[" + std::to_string(spans.size()) + "]");
    const std::uint64_t begin = object.integer("begin", 0, bytes);
    const std::uint64_t end = object.integer("end", begin, bytes);
    if (end == begin) input_error("a part without text", object.where(), "Leave it out.");
    spans.push_back({begin, end, workload::role_of_name(object.text("role"), object.where())});
  }
  return spans;
}

/// [[begin, end], ...]: bytes of the prompt.
std::vector<workload::ByteSpan> parse_documents(const JsonObject& line, std::uint64_t bytes) {
  std::vector<workload::ByteSpan> documents;
  if (!line.has("documents")) return documents;
  std::uint64_t least = 0;
  for (const json::value& value : line.array("documents")) {
    const std::string where = line.path("documents") + "[" + std::to_string(documents.size()) + "]";
    const json::array* ends = value.if_array();
    if (ends == nullptr || ends->size() != 2) input_error("expected [begin, end]", where);
    const std::uint64_t begin = json_integer((*ends)[0], where, least, bytes);
    documents.push_back({begin, least = json_integer((*ends)[1], where, begin + 1, bytes)});
  }
  return documents;
}

bool prints(char c) {
  return c > ' ' && c < 0x7f;
}

/// Reads an id or kind and checks that it is printable, because messages and results contain it verbatim.
std::string parse_name(const JsonObject& line, const char* key) {
  const std::string name = line.text(key);
  if (name.empty() || !std::ranges::all_of(name, prints))
    input_error("expected printable ASCII characters without spaces", line.path(key));
  return name;
}

WorkloadItem made_item(const JsonObject& line) {
  WorkloadItem item;
  item.id = parse_name(line, "id");
  if (line.has("kind")) item.kind = parse_name(line, "kind");
  item.tokens = line.integer("tokens", 0, kMaxTokens);
  item.prompt = line.text("prompt");
  item.spans = parse_spans(line, item.prompt.size());
  item.documents = parse_documents(line, item.prompt.size());
  item.before = line.text_or("before", "");
  for (const json::value& answer : line.array("answers")) {
    if (!answer.is_string()) input_error("expected strings", line.path("answers"));
    item.answers.emplace_back(answer.get_string());
  }
  if (line.has("expect"))
    item.expect = workload::expect_of_name(line.text("expect"), line.path("expect"));
  else if (!item.answers.empty())
    item.expect = item.answers.size() == 1 ? Expect::first : Expect::any;
  item.chat = line.text_or("chat", "");
  // What went through a template has its prefix where it belongs.
  if (item.chat.empty() && line.has("answer_prefix"))
    item.answer_prefix = line.integer("answer_prefix", 0, item.prompt.size());
  if (line.has("context_id")) item.context_id = parse_name(line, "context_id");
  if (line.has("turn")) item.turn = line.integer("turn", 0, kMaxTokens);
  return item;
}

// Lines of others.

/// The first of these fields that the line has; null: none.
const char* field_of(const JsonObject& line, std::initializer_list<const char*> names) {
  const auto found = std::ranges::find_if(names, [&](const char* name) { return line.has(name); });
  return found == names.end() ? nullptr : *found;
}

const char* question_field(const JsonObject& line) {
  return field_of(line, {"question", "input"});
}
const char* answer_field(const JsonObject& line) {
  return field_of(line, {"answers", "answer", "outputs", "target", "reference"});
}
const char* text_field(const JsonObject& line) {
  return field_of(line, {"prompt", "text"});
}

/// A text or a number, as text.
std::string scalar(const json::value& value, const std::string& where) {
  if (value.is_string()) return std::string(value.get_string());
  if (!value.is_number()) input_error("expected a text or a number", where);
  return value.is_double() ? shortest(value.get_double()) : json::serialize(value);
}

/// A name made of what the field holds: spaces and what does not print become a dash.
std::string name_of(const JsonObject& line, const char* key) {
  std::string name = scalar(line.at(key), line.path(key));
  for (char& c : name)
    if (!prints(c)) c = '-';
  if (name.empty()) input_error("is empty", line.path(key));
  return name;
}

/// Every answer, as workloads write them: a space before the first word, unless the prompt ends with white
/// space. One, a list, or SQuAD's {"text": [...]}.
void add_answers(WorkloadItem& item, const JsonObject& line) {
  const char* key = answer_field(line);
  if (key == nullptr) return;
  std::string where = line.path(key);
  const json::value* found = line.find(key);
  if (const json::object* squad = found->if_object(); squad != nullptr && squad->contains("text")) {
    found = &squad->at("text");
    where += ".text";
  }
  const bool spaced = !item.prompt.empty() && (item.prompt.back() == ' ' || item.prompt.back() == '\n');
  const auto add = [&](const json::value& value) {
    const std::string text = scalar(value, where);
    item.answers.push_back(spaced || text.starts_with(' ') ? text : ' ' + text);
  };
  if (const json::array* list = found->if_array())
    for (const json::value& value : *list) add(value);
  else
    add(*found);
}

/// What may be chosen: LongBench v2 has choice_A and so on, InfiniteBench and SCBench a list.
std::vector<std::string> choices_of(const JsonObject& line) {
  std::vector<std::string> out;
  for (char letter = 'A'; letter <= 'Z'; ++letter) {
    const std::string key = std::string("choice_") + letter;
    if (!line.has(key)) break;
    out.push_back(line.text(key));
  }
  if (out.empty() && line.has("options"))
    for (const json::value& value : line.array("options")) out.push_back(scalar(value, line.path("options")));
  if (out.size() > 26) input_error("more than 26 choices", line.path("options"));
  return out;
}

/// The letter of the right choice, which the line says by letter or text, in brackets.
std::string chosen_letter(const WorkloadItem& item, const std::vector<std::string>& choices,
                          const std::string& where) {
  for (const std::string& answer : item.answers) {
    const std::string said = answer.substr(std::min(answer.find_first_not_of(' '), answer.size()));
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const char letter = static_cast<char>('A' + i);
      if (said == choices[i] || said == std::string(1, letter)) return std::string(" (") + letter + ')';
    }
  }
  input_error("no answer is one of its " + std::to_string(choices.size()) + " choices", where);
}

void mark_question(WorkloadItem& item, std::uint64_t question) {
  if (question == 0 || question >= item.prompt.size()) return;
  item.spans = {{0, question, Role::context}, {question, item.prompt.size(), Role::question}};
}

/// The place of a field's text in the prompt, as a part of it. A text that occurs twice is nobody's guess.
void mark_found(WorkloadItem& item, const JsonObject& line, const char* key, Role role) {
  if (key == nullptr || !line.has(key)) return;
  const std::string text = line.text(key);
  const std::size_t at = item.prompt.find(text);
  if (text.empty() || at == std::string::npos) return;
  if (item.prompt.find(text, at + 1) != std::string::npos)
    input_error("occurs more than once in the prompt, so that it is not known which is meant", line.path(key),
                "Leave the field out, or write spans: traces/workloads/README.md.");
  item.spans.push_back({at, at + text.size(), role});
}

/// Data sets of LongBench whose score is a similarity (ROUGE, edit distance): no answer is right or wrong.
bool is_graded(std::string_view dataset) {
  static constexpr std::array<std::string_view, 8> kGraded{"gov_report", "qmsum", "multi_news",  "vcsum",
                                                           "samsum",     "lcc",   "repobench-p", "dureader"};
  if (dataset.ends_with("_e")) dataset.remove_suffix(2);  // LongBench-E
  return std::ranges::find(kGraded, dataset) != kGraded.end();
}

WorkloadItem named_item(const JsonObject& line, std::uint64_t number) {
  WorkloadItem item;
  const char* id = field_of(line, kIdFields);
  item.id = id == nullptr ? std::to_string(number) : name_of(line, id);
  if (const char* kind = field_of(line, {"kind", "dataset"})) item.kind = name_of(line, kind);
  return item;
}

/// What is right: as the line says, or one of its answers anywhere.
void judge(WorkloadItem& item, const JsonObject& line) {
  if (line.has("expect"))
    item.expect = workload::expect_of_name(line.text("expect"), line.path("expect"));
  else if (!item.answers.empty() && !is_graded(item.kind))
    item.expect = Expect::holds_any;
}

/// A question about a context, which may have choices. `line`: the question's fields.
void ask(WorkloadItem& item, const std::string& context, const JsonObject& line) {
  const char* key = question_field(line);
  const std::string question = key == nullptr ? "" : line.text(key);
  item.prompt = context.empty() || question.empty() ? context + question : context + "\n\n" + question;
  const std::vector<std::string> choices = choices_of(line);
  for (std::size_t i = 0; i < choices.size(); ++i)
    item.prompt += std::string("\n(") + static_cast<char>('A' + i) + ") " + choices[i];
  add_answers(item, line);
  judge(item, line);
  if (!choices.empty()) {
    item.prompt += kChosen;
    item.answer_prefix = kChosen.size();
    item.answers = {chosen_letter(item, choices, line.where())};
    item.expect = Expect::first;
  }
  if (!context.empty() && !question.empty()) mark_question(item, context.size() + 2);
}

/// SCBench: several questions about one context.
std::vector<WorkloadItem> turns_of(const JsonObject& line, std::uint64_t number) {
  std::vector<WorkloadItem> out;
  const std::string context = line.text("context");
  for (const json::value& value : line.array("multi_turns")) {
    const JsonObject turn(value, line.path("multi_turns") + "[" + std::to_string(out.size()) + "]");
    WorkloadItem item = named_item(line, number);
    item.context_id = item.id;
    item.id += "-turn" + std::to_string(out.size());
    item.turn = out.size();
    ask(item, context, turn);
    out.push_back(std::move(item));
  }
  return out;
}

/// Where RULER's question begins: the last line of one of the forms in which its tasks ask; 0: nowhere. Word
/// lists and variables show an example with a question of its own first, so the last one counts.
std::uint64_t ruler_question(std::string_view input) {
  static constexpr std::array<std::string_view, 5> kForms{
      "\nWhat is the special magic ", "\nWhat are all the special magic ", "\nWhat are the special magic ",
      "\nQuestion: ", "\nAnswer the question based on the given documents."};
  std::size_t last = std::string_view::npos;
  for (const std::string_view form : kForms) {
    const std::size_t at = input.rfind(form);
    if (at != std::string_view::npos && (last == std::string_view::npos || at > last)) last = at;
  }
  if (last == std::string_view::npos) return 0;
  // Tasks about documents repeat their instruction between documents and question: it belongs to the
  // question.
  const std::size_t instruction = input.rfind(kRulerAnswersDocuments, last);
  if (instruction != std::string_view::npos && instruction > 0 && last - instruction < 200)
    return instruction;
  return last + 1;
}

bool is_ruler(const JsonObject& line) {
  return line.has("input") && line.has("outputs");
}

void fill_ruler(WorkloadItem& item, const JsonObject& line) {
  item.kind = "ruler";
  const std::string input = line.text("input");
  item.prompt = input + line.text_or("answer_prefix", "");
  item.answer_prefix = item.prompt.size() - input.size();
  add_answers(item, line);
  const bool documents = input.find(kRulerAnswersDocuments) != std::string::npos;
  item.expect = item.answers.empty() ? Expect::nothing : documents ? Expect::holds_any : Expect::holds_all;
  mark_question(item, ruler_question(input));
}

/// Messages of roles, as the text that --chat renders. A last one of the assistant's is the answer.
void fill_messages(WorkloadItem& item, const JsonObject& line, const char* key) {
  json::array messages = line.array(key);
  add_answers(item, line);
  if (!messages.empty()) {
    if (!messages.back().is_object())
      input_error("expected messages: {\"role\": ..., \"content\": ...}", line.path(key),
                  "A text needs no list; several prompts are several lines.");
    const JsonObject last(messages.back(), line.path(key) + "[" + std::to_string(messages.size() - 1) + "]");
    if (last.text("role") == "assistant") {
      if (item.answers.empty()) item.answers = {' ' + last.text("content")};
      messages.pop_back();
    }
  }
  if (messages.empty()) input_error("nobody asks", line.path(key));
  item.prompt = json::serialize(messages);
  item.messages = true;
  judge(item, line);
}

/// What lm-eval asked a model, as its --log_samples writes it.
std::string logged_prompt(const JsonObject& line) {
  const json::value* arguments = line.find("arguments");
  const json::value* request = nullptr;  // a list of its text and its options, or an object of them
  std::size_t requests = 0;
  if (const json::array* list = arguments->if_array(); list != nullptr && !list->empty()) {
    requests = list->size();
    request = &list->front();
  } else if (const json::object* named = arguments->if_object(); named != nullptr && !named->empty()) {
    requests = named->size();
    request = &named->begin()->value();
  }
  if (request != nullptr && requests == 1) {
    if (const json::array* parts = request->if_array(); parts != nullptr && !parts->empty())
      return scalar(parts->front(), line.path("arguments[0][0]"));
    if (const json::object* parts = request->if_object(); parts != nullptr && parts->contains("arg_0"))
      return scalar(parts->at("arg_0"), line.path("arguments.arg_0"));
  }
  input_error("expected one request with its text; this sample has " + std::to_string(requests),
              line.path("arguments"),
              "Tasks that compare likelihoods of several endings have no prompt to answer.");
}

void fill_prompt(WorkloadItem& item, const JsonObject& line, std::string prompt) {
  item.prompt = std::move(prompt);
  mark_found(item, line, "context", Role::context);
  mark_found(item, line, question_field(line), Role::question);
  std::ranges::sort(item.spans, {}, &workload::RoleSpan::begin);
  add_answers(item, line);
  judge(item, line);
}

[[noreturn]] void refuse_line(const JsonObject& line) {
  std::string fields;
  if (line.has("events") || line.has("block_hashes") || line.has("event"))
    input_error("is an event of a cache, which says what was stored and not what was asked for", line.where(),
                "Record what the engine computes: kvsim.vllm.record(llm, \"out-{request}.h5\").");
  for (const auto& member : line.raw()) fields += (fields.empty() ? "" : ", ") + std::string(member.key());
  input_error(
      "holds no prompt that kvsim finds; its fields are " + (fields.empty() ? "none" : fields), line.where(),
      "Known: prompt or text; messages; context and question or input; answers or answer. Other names: "
      "--fields prompt=NAME,answers=NAME.");
}

/// A line of a file that OpenAI's Batch API takes, whose body is a request.
bool is_batched(const JsonObject& line) {
  return line.has("custom_id") && line.has("body");
}

/// Messages of roles, under their own name or as the prompt.
const char* messages_field(const JsonObject& line) {
  const char* key = field_of(line, {"messages", "prompt"});
  return key != nullptr && line.find(key)->is_array() ? key : nullptr;
}

void fill(WorkloadItem& item, const JsonObject& line) {
  if (const char* messages = messages_field(line))
    fill_messages(item, line, messages);
  else if (const char* text = text_field(line))
    fill_prompt(item, line, line.text(text));
  else if (line.has("arguments"))
    fill_prompt(item, line, logged_prompt(line));
  else if (is_ruler(line))
    fill_ruler(item, line);
  else if (question_field(line) != nullptr)
    ask(item, line.text_or("context", ""), line);
  else
    refuse_line(line);
}

}  // namespace

bool has_prompt_and_answer(const JsonObject& line) {
  if (line.has("spans") || line.has("multi_turns") || is_batched(line)) return true;
  const bool asks = messages_field(line) != nullptr || text_field(line) != nullptr ||
                    question_field(line) != nullptr || line.has("arguments");
  return asks && answer_field(line) != nullptr;
}

std::vector<WorkloadItem> items_of_line(const JsonObject& line, std::uint64_t number) {
  if (line.has("spans")) return {made_item(line)};
  if (line.has("multi_turns")) return turns_of(line, number);
  WorkloadItem item = named_item(line, number);
  fill(item, is_batched(line) ? line.object("body") : line);
  return {std::move(item)};
}

}  // namespace kvsim::capture
