#include "traces/capture/benchmark_line.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "sim/base/error.hpp"

namespace kvsim::capture {
namespace {

namespace json = boost::json;
using workload::Expect;
using workload::Role;

constexpr std::uint64_t kMostIndex = 1ULL << 53;
constexpr std::string_view kRulerAnswersDocuments = "Answer the question based on the given documents.";

/// Answers as workloads write them: a space before the first word, unless the prompt ends with white space.
std::vector<std::string> answers_of(const JsonObject& line, const char* key, const std::string& prompt) {
  std::vector<std::string> out;
  const bool spaced = !prompt.empty() && (prompt.back() == ' ' || prompt.back() == '\n');
  for (const json::value& answer : line.array(key)) {
    if (!answer.is_string()) input_error("expected strings", line.path(key));
    const std::string text(answer.get_string());
    out.push_back(spaced || text.starts_with(' ') ? text : ' ' + text);
  }
  return out;
}

void add_parts(WorkloadItem& item, std::uint64_t question) {
  if (question == 0 || question >= item.prompt.size()) return;
  item.spans = {{0, question, Role::context}, {question, item.prompt.size(), Role::question}};
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

/// Data sets of LongBench whose score is a similarity (ROUGE, edit distance): no answer is right or wrong.
bool is_graded(std::string_view dataset) {
  static constexpr std::array<std::string_view, 8> kGraded{"gov_report", "qmsum", "multi_news",  "vcsum",
                                                           "samsum",     "lcc",   "repobench-p", "dureader"};
  if (dataset.ends_with("_e")) dataset.remove_suffix(2);  // LongBench-E
  return std::ranges::find(kGraded, dataset) != kGraded.end();
}

std::string printable(const std::string& name, const std::string& where) {
  if (name.empty() || !std::ranges::all_of(name, [](char c) { return c > ' ' && c < 0x7f; }))
    input_error("expected printable ASCII characters without spaces", where);
  return name;
}

}  // namespace

LineFormat line_format(const JsonObject& line) {
  if (line.has("spans") || (line.has("prompt") && line.has("id"))) return LineFormat::kvsim;
  if (line.has("input") && line.has("outputs")) return LineFormat::ruler;
  if (line.has("context") && line.has("input") && line.has("answers")) return LineFormat::longbench;
  return LineFormat::unknown;
}

void refuse_line(const JsonObject& line) {
  std::string fields;
  for (const auto& member : line.raw()) fields += (fields.empty() ? "" : ", ") + std::string(member.key());
  input_error("is no prompt of a known format; its fields are " + (fields.empty() ? "none" : fields),
              line.where(),
              "Known: kvsim workload (id, tokens, prompt, spans, answers), RULER (index, input, outputs, "
              "answer_prefix) and LongBench (_id, context, input, answers, dataset).");
}

std::string benchmark_id(const JsonObject& line) {
  if (line_format(line) == LineFormat::ruler) return std::to_string(line.integer("index", 0, kMostIndex));
  return printable(line.text("_id"), line.path("_id"));
}

WorkloadItem ruler_item(const JsonObject& line) {
  WorkloadItem item;
  item.id = benchmark_id(line);
  item.kind = "ruler";
  const std::string input = line.text("input");
  item.prompt = input + line.text_or("answer_prefix", "");
  item.answer_prefix = item.prompt.size() - input.size();
  item.answers = answers_of(line, "outputs", item.prompt);
  const bool documents = input.find(kRulerAnswersDocuments) != std::string::npos;
  item.expect = item.answers.empty() ? Expect::nothing : documents ? Expect::holds_any : Expect::holds_all;
  add_parts(item, ruler_question(input));
  return item;
}

WorkloadItem longbench_item(const JsonObject& line) {
  WorkloadItem item;
  item.id = benchmark_id(line);
  item.kind = printable(line.text("dataset"), line.path("dataset"));
  const std::string context = line.text("context"), input = line.text("input");
  item.prompt = input.empty() ? context : context + "\n\n" + input;
  item.answers = answers_of(line, "answers", item.prompt);
  item.expect = item.answers.empty() || is_graded(item.kind) ? Expect::nothing : Expect::holds_any;
  if (!input.empty() && !context.empty()) add_parts(item, context.size() + 2);
  return item;
}

}  // namespace kvsim::capture
