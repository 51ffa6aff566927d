#include "analysis/study/study_prompts.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "traces/capture/capture.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/workloads/workload.hpp"

namespace kvsim::analysis {
namespace {

/// An option that a kind does not look at is a misunderstanding.
void refuse_unused(const StudyWorkload& entry, const workload::Kind& kind, const std::string& place) {
  const workload::TaskOptions standard;
  const auto check = [&](const char* name, unsigned bit, bool given) {
    if (given && (kind.uses & bit) == 0)
      usage_error(std::string("means nothing to the kind ") + kind.name, place + '.' + name);
  };
  check("facts", workload::kUsesFacts, entry.facts != standard.facts);
  check("hops", workload::kUsesHops, entry.hops != standard.hops);
  check("style", workload::kUsesStyle, entry.style != "pairs");
  check("text", workload::kUsesText, !entry.text.empty());
}

bool asks_about_context(const workload::PromptItem& item) {
  std::uint64_t end = 0;  // of the context; evidence is part of it
  for (const workload::RoleSpan& span : item.spans)
    if (span.role != workload::Role::question) end = std::max(end, span.end);
  return end > 0 && end < item.prompt.size();
}

void make_entry(const StudyWorkload& entry, const model::Tokenizer& tokenizer, const std::string& place,
                StudyPrompts& out) {
  const workload::Kind& kind = workload::kind_named(entry.kind);
  refuse_unused(entry, kind, place);
  std::vector<workload::Passage> own;
  if (!entry.text.empty()) own.push_back({entry.text, read_regular_file(entry.text, model::kMaxTextBytes)});
  workload::WorkloadOptions options;
  options.context_tokens = entry.context;
  options.count = entry.count;
  options.seed = entry.seed;
  options.task.facts = entry.facts;
  options.task.hops = entry.hops;
  options.task.examples = entry.examples;
  options.task.style = workload::style_of_name(entry.style, place + ".style");
  options.task.passages = own.empty() ? &workload::builtin_passages() : &own;
  workload::make_workload(
      kind, options, [&](const workload::SpannedText& text) { return tokenizer.encode(text.text()).size(); },
      [&](const workload::PromptItem& item) {
        out.lines += json_line(item) + '\n';
        out.prompts.push_back({item.id, item.id, {}, item.kind, item.tokens, asks_about_context(item)});
      });
}

/// The item as a line of the study's own.
workload::PromptItem line_of(capture::WorkloadItem item) {
  workload::PromptItem line;
  line.id = std::move(item.id);
  line.kind = std::move(item.kind);
  line.tokens = item.tokens;
  line.chat = std::move(item.chat);
  line.context_id = std::move(item.context_id);
  line.turn = item.turn;
  line.prompt = std::move(item.prompt);
  line.spans = std::move(item.spans);
  line.expect = item.expect;
  line.answers = std::move(item.answers);
  return line;
}

/// Items of a user's file become lines of the study's own, under names that files and ids can have.
void add_items(std::vector<capture::WorkloadItem> items, const StudyTraces& entry,
               const model::Tokenizer& tokenizer, StudyPrompts& out) {
  for (capture::WorkloadItem& item : items) {
    if (item.messages)
      usage_error("is a list of messages, and a study applies no chat template", entry.files + ' ' + item.id,
                  "Record it with kvsim capture --chat, and study the trace.");
    item.id = items.size() == 1 ? entry.name : entry.name + '-' + item.id;
    for (char& c : item.id)
      if (c <= ' ' || c >= 0x7f || c == '/') c = '-';
    item.kind = !entry.workload.empty() ? entry.workload : item.kind.empty() ? "prompts" : item.kind;
    item.tokens = capture::prompt_ids(item, tokenizer).size();
    item.context_id = item.context_id.empty() ? item.id : entry.name + '-' + item.context_id;
    const workload::PromptItem line = line_of(std::move(item));
    out.lines += json_line(line) + '\n';
    out.prompts.push_back({line.id, line.id, {}, line.kind, line.tokens, asks_about_context(line)});
  }
}

bool within_character(const std::string& text, std::uint64_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0U) == 0x80;
}

/// Takes the bytes [begin, end) out of the prompt and of its parts.
void cut_out(workload::PromptItem& item, std::uint64_t begin, std::uint64_t end) {
  const auto moved = [&](std::uint64_t at) { return at < begin ? at : std::max(at, end) - (end - begin); };
  item.prompt.erase(begin, end - begin);
  for (workload::RoleSpan& span : item.spans) span = {moved(span.begin), moved(span.end), span.role};
  std::erase_if(item.spans, [](const workload::RoleSpan& span) { return span.begin == span.end; });
}

}  // namespace

StudyPrompts make_prompts(const StudyCapture& capture, const std::string& where) {
  StudyPrompts out;
  if (!capture.workloads.empty()) {
    const std::uint64_t most = model::load_model_config(capture.model).max_positions;
    const model::Tokenizer tokenizer = model::load_tokenizer(capture.model);
    for (std::size_t i = 0; i < capture.workloads.size(); ++i) {
      const std::string place = where + " capture.workloads[" + std::to_string(i) + ']';
      if (capture.workloads[i].context > most)
        usage_error("asks for " + std::to_string(capture.workloads[i].context) +
                        " tokens, the model's context is " + std::to_string(most),
                    place + ".context", "Ask for less.");
      try {
        make_entry(capture.workloads[i], tokenizer, place, out);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage || std::string(error.what()).starts_with(where)) throw;
        usage_error(error.what(), place);
      }
    }
  }
  for (const StudyTraces& entry : capture.prompts) {
    const std::string text = read_regular_file(entry.files, capture::kMaxWorkloadBytes);
    if (capture::is_workload(text, entry.files))
      add_items(capture::parse_workload(text, entry.files), entry, model::load_tokenizer(capture.model), out);
    else
      out.prompts.push_back(
          {.name = entry.name, .item = {}, .file = entry.files, .workload = entry.workload});
  }
  return out;
}

capture::WorkloadItem item_of(const StudyPrompt& prompt, const std::string& prompts_file) {
  if (!prompt.item.empty()) return capture::read_workload_item(prompts_file, prompt.item);
  capture::WorkloadItem item;
  item.id = prompt.name;
  item.kind = prompt.workload;
  item.prompt = read_regular_file(prompt.file, model::kMaxTextBytes);
  return item;
}

StudyPrompts shortened(const StudyCapture& capture, const StudyPrompt& prompt,
                       const std::string& prompts_file, std::uint64_t side) {
  workload::PromptItem line = line_of(item_of(prompt, prompts_file));
  line.id = line.context_id = prompt.name;
  line.kind = prompt.workload.empty() ? "prompts" : prompt.workload;
  std::uint64_t begin = side, end = line.prompt.size() - std::min<std::uint64_t>(line.prompt.size(), side);
  for (const workload::RoleSpan& span : line.spans)
    if (span.role == workload::Role::question) end = std::min(end, span.begin);
  while (within_character(line.prompt, begin)) --begin;
  while (within_character(line.prompt, end)) ++end;
  if (begin < end) cut_out(line, begin, end);
  const model::Tokenizer tokenizer = model::load_tokenizer(capture.model);
  line.tokens = tokenizer.encode(line.prompt).size();
  return {{{line.id, line.id, {}, line.kind, line.tokens, asks_about_context(line)}}, json_line(line) + '\n'};
}

std::uint64_t prompt_tokens(const StudyCapture& capture, const StudyPrompt& prompt) {
  if (prompt.tokens > 0) return prompt.tokens;
  const model::Tokenizer tokenizer = model::load_tokenizer(capture.model);
  const std::string text = read_regular_file(prompt.file, model::kMaxTextBytes);
  try {
    return tokenizer.encode(text).size();
  } catch (const Error& error) {
    throw Error(error.kind(), error.what(), prompt.file);
  }
}

void capture_prompt(const StudyCapture& capture, const StudyPrompt& prompt, const std::string& prompts_file,
                    const std::string& output, unsigned threads, Progress& progress,
                    const NoteListener& note) {
  capture::CaptureOptions options;
  options.model_dir = capture.model;
  if (prompt.item.empty()) {
    options.prompt_file = prompt.file;
  } else {
    options.workload_file = prompts_file;
    options.item = prompt.item;
  }
  options.max_new_tokens = capture.max_new_tokens;
  options.ignore_eos = capture.ignore_eos;
  options.queries = capture::parse_query_choice(capture.queries, "capture.queries");
  options.attention = capture::parse_row_choice(capture.attention, "capture.attention");
  options.output_weights = capture.output_weights;
  options.elem = capture.elem;
  options.prefill_chunk = capture.prefill_chunk;
  options.threads = threads;
  options.output = output;
  options.overwrite = true;  // of what a killed run left half-written
  options.reproducible = true;
  for (const std::string& text : capture::run_capture(options, progress).notes) note(text);
}

}  // namespace kvsim::analysis
