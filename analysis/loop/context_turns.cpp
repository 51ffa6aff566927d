#include "analysis/loop/context_turns.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "traces/format/header.hpp"

namespace kvsim::analysis {
namespace {

using capture::WorkloadItem;

constexpr std::uint32_t kParts = trace::kFlagQuestion | trace::kFlagContext | trace::kFlagEvidence;

std::uint64_t context_end(const WorkloadItem& item) {
  std::uint64_t end = 0;
  for (const workload::RoleSpan& span : item.spans)
    if (span.role == workload::Role::context) end = std::max(end, span.end);
  return end;
}

/// What the item asks after `before`, the earlier questions and answers with the context they are about.
std::string question_of(const WorkloadItem& item, const WorkloadItem& first, const std::string& before) {
  if (item.prompt.starts_with(before)) return item.prompt.substr(before.size());
  const std::uint64_t end = context_end(item);
  if (end == 0 || end >= item.prompt.size() || item.prompt.compare(0, end, first.prompt, 0, end) != 0)
    input_error("is not a question about the context of " + first.id, item.id,
                "Items of one context_id share their text up to the question.");
  return item.prompt.substr(end);
}

/// The tokens that `text` adds to `before`, whose tokens are `known`.
std::vector<std::int32_t> added_tokens(const model::Tokenizer& tokenizer, const std::string& before,
                                       const std::string& text, const std::vector<std::int32_t>& known,
                                       const WorkloadItem& item) {
  const std::vector<std::int32_t> all = capture::text_ids(item, before + text, tokenizer);
  if (all.size() <= known.size() || !std::equal(known.begin(), known.end(), all.begin()))
    input_error("'" + text + "' does not follow as tokens of its own", item.id, "Begin it with a space.");
  return {all.begin() + static_cast<std::ptrdiff_t>(known.size()), all.end()};
}

/// Positions of the context that hold the item's answer. `ids`: the tokens of its prompt.
std::vector<policy::Position> evidence_of(const WorkloadItem& item, const std::vector<std::int32_t>& ids,
                                          const model::Tokenizer& tokenizer) {
  std::vector<policy::Position> evidence;
  const std::vector<std::uint32_t> flags = capture::prompt_flags(item, ids, tokenizer);
  for (std::size_t position = 0; position < flags.size(); ++position)
    if (flags[position] & trace::kFlagEvidence) evidence.push_back(static_cast<policy::Position>(position));
  return evidence;
}

}  // namespace

std::vector<std::span<const WorkloadItem>> by_context(std::span<const WorkloadItem> items) {
  std::vector<std::span<const WorkloadItem>> out;
  for (std::size_t first = 0, n; first < items.size(); first += n) {
    n = 1;
    while (first + n < items.size() && !items[first].context_id.empty() &&
           items[first + n].context_id == items[first].context_id &&
           items[first + n].turn > items[first + n - 1].turn)
      ++n;
    out.push_back(items.subspan(first, n));
  }
  return out;
}

namespace {

/// The same of items that are known by their tokens.
std::vector<sim::LoopTurn> following_recorded(std::span<const WorkloadItem> items,
                                              const model::Tokenizer& tokenizer) {
  std::vector<sim::LoopTurn> turns;
  std::vector<std::int32_t> known = items.front().ids;
  for (const WorkloadItem& item : items) {
    sim::LoopTurn& turn = turns.emplace_back();
    if (turns.size() > 1) {
      if (item.ids.size() <= known.size() || !std::equal(known.begin(), known.end(), item.ids.begin()))
        input_error("does not follow the turns before it", item.id);
      turn.question.assign(item.ids.begin() + static_cast<std::ptrdiff_t>(known.size()), item.ids.end());
      turn.evidence = evidence_of(item, item.ids, tokenizer);
    }
    turn.answer = item.answer_ids;
    known = item.ids;
    known.insert(known.end(), item.answer_ids.begin(), item.answer_ids.end());
  }
  return turns;
}

}  // namespace

std::vector<sim::LoopTurn> following_turns(std::span<const WorkloadItem> items,
                                           const std::vector<std::int32_t>& prompt,
                                           const model::Tokenizer& tokenizer) {
  if (!items.front().ids.empty()) return following_recorded(items, tokenizer);
  if (items.size() > 1 && !items.front().chat.empty())
    usage_error("a question through a chat template is a conversation of its own", items[1].id,
                "Say --turns requests.");
  std::vector<sim::LoopTurn> turns;
  std::string text = items.front().prompt;
  std::vector<std::int32_t> known = prompt;
  for (std::size_t i = 0; i < items.size(); ++i) {
    sim::LoopTurn& turn = turns.emplace_back();
    const auto add = [&](const std::string& what, std::vector<std::int32_t>& to) {
      to = added_tokens(tokenizer, text, what, known, items[i]);
      text += what;
      known.insert(known.end(), to.begin(), to.end());
    };
    if (i > 0) {
      add(question_of(items[i], items.front(), text), turn.question);
      turn.evidence = evidence_of(items[i], capture::prompt_ids(items[i], tokenizer), tokenizer);
    }
    if (!items[i].answers.empty()) add(items[i].answers.front(), turn.answer);
  }
  return turns;
}

std::vector<sim::LoopTurn> separate_turns(std::span<const WorkloadItem> items,
                                          const std::vector<std::int32_t>& prompt, std::size_t context,
                                          const model::Tokenizer& tokenizer) {
  std::vector<sim::LoopTurn> turns;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const WorkloadItem& item = items[i];
    sim::LoopTurn& turn = turns.emplace_back();
    const std::vector<std::int32_t> ids = i == 0 ? prompt : capture::prompt_ids(item, tokenizer);
    const auto question = static_cast<std::ptrdiff_t>(context);
    if (i > 0) {
      if (ids.size() <= context || !std::equal(ids.begin(), ids.begin() + question, prompt.begin()))
        return {};
      turn.question.assign(ids.begin() + question, ids.end());
      turn.evidence = evidence_of(item, ids, tokenizer);
    }
    turn.answer = item.answer_ids;
    if (item.ids.empty() && !item.answers.empty())
      turn.answer = added_tokens(tokenizer, item.prompt, item.answers.front(), ids, item);
  }
  return turns;
}

std::vector<WorkloadItem> recorded_items(const trace::Sequence& sequence, const std::string& name,
                                         const model::Tokenizer& tokenizer, std::uint64_t vocabulary) {
  const trace::Header& header = sequence.source().header();
  std::vector<WorkloadItem> items;
  std::vector<std::int32_t> ids;
  std::vector<std::uint32_t> flags;
  const bool knows_parts = (sequence.flags_known() & trace::kFlagContext) != 0;
  bool answering = false;
  const auto begin_item = [&] {
    WorkloadItem& item = items.emplace_back();
    item.context_id = name;
    item.turn = items.size() - 1;
    item.id = name + "/" + std::to_string(item.turn);
    item.kind = header.capture.workload;
    item.ids = ids;
    item.token_flags = flags;
  };
  for (std::uint64_t position = 0; position < sequence.length(); ++position) {
    const std::uint64_t token = sequence.token(position);
    const std::int32_t id = header.token_id[token];
    if (id < 0 || static_cast<std::uint64_t>(id) >= vocabulary)
      input_error(id < 0 ? "token " + std::to_string(token) + " is withheld"
                         : "token " + std::to_string(token) + " is " + std::to_string(id) +
                               ", which the model does not know",
                  sequence.source().name(), "Give the run's own model, and a trace that stores its tokens.");
    const bool generated = header.segments[header.token_segment[token]].phase != trace::Phase::prompt;
    if (generated && !answering) begin_item();
    answering = generated;
    if (generated) items.back().answer_ids.push_back(id);
    ids.push_back(id);
    if (knows_parts) flags.push_back(sequence.flags(position) & kParts);
  }
  if (!answering) begin_item();
  if (items.size() == 1)
    items[0].id = header.capture.workload_item.empty() ? name : header.capture.workload_item;
  for (WorkloadItem& item : items) {
    if (item.answer_ids.empty()) continue;
    item.answers = {tokenizer.decode(item.answer_ids)};
    item.expect = workload::Expect::first;
  }
  return items;
}

}  // namespace kvsim::analysis
