#include "analysis/loop/answer_rows.hpp"

#include <algorithm>

#include "analysis/loop/answer_measures.hpp"
#include "analysis/results/budget_columns.hpp"

namespace kvsim::analysis {
namespace {

/// 1 or 0.
Value flag(const std::optional<bool>& yes) {
  return yes ? Value(std::uint64_t{*yes ? 1U : 0U}) : Value();
}

Value bytes(const Answer& a, std::optional<std::uint64_t> HeldEntries::*of) {
  const auto held = held_entries(a);
  return held && (*held).*of ? Value(*((*held).*of)) : Value();
}

/// Of the last layer.
Number last_drift(const Answer& a, double sim::LayerDrift::*number) {
  if (a.stream() == nullptr || a.stream()->drift.empty()) return {};
  return a.stream()->drift.back().*number;
}

struct Column {
  const char* key;
  const char* unit;
  const char* description;
  Value (*get)(const Answer&);
};

const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"item", "", "prompt of the workload, or the prompt's file",
       [](const Answer& a) { return Value(a.item.item); }},
      {"workload", "", "kind of prompt; empty: not known",
       [](const Answer& a) { return Value(a.item.workload); }},
      {"model", "", "folder of the checkpoint", [](const Answer& a) { return Value(a.item.model); }},
      {"policy", "", "composition, as a table shows it",
       [](const Answer& a) { return Value(a.asked.composition.name); }},
      {"params", "", "composition with every effective parameter",
       [](const Answer& a) { return Value(a.asked.composition.params); }},
      {"budget", "", "budget, as given", [](const Answer& a) { return Value(a.asked.budget.text); }},
      {budget_columns()[0].key.c_str(), "", budget_columns()[0].description.c_str(),
       [](const Answer& a) { return budget_fields(a.asked.budget.text)[0]; }},
      {budget_columns()[1].key.c_str(), budget_columns()[1].unit.c_str(),
       budget_columns()[1].description.c_str(),
       [](const Answer& a) { return budget_fields(a.asked.budget.text)[1]; }},
      {"budget_tokens", "tokens per lane", "what the budget comes to for this prompt",
       [](const Answer& a) { return a.cell.skipped.empty() ? Value(a.cell.budget_tokens) : Value(); }},
      {"cut", "", "where the prompt ends for policies: prompt, question, or so many tokens",
       [](const Answer& a) { return Value(a.outcome.cut); }},
      {"turn", "index", "number of the question about its context",
       [](const Answer& a) { return Value(a.item.turn); }},
      {"seed", "", "of random policies", [](const Answer& a) { return Value(a.request.seed); }},
      {"mode", "",
       "teacher: every cell is fed the same tokens, those of the expected answer or of the full cache; "
       "greedy: what it generates itself",
       [](const Answer& a) { return Value(std::string(sim::loop_mode_name(a.loop_mode()))); }},
      {"turns", "",
       "requests: questions about one context leave no trace for each other; golden, own: each follows the "
       "earlier ones with the expected answers, or with what the cell answered",
       [](const Answer& a) { return Value(std::string(sim::turn_protocol_name(a.request.protocol))); }},
      {"prefill", "",
       "dense: the prompt is processed once with full attention, then compressed; stream, chunked:N: the "
       "cell processes it through its own cache, token by token or N tokens at a time; else how it is put "
       "together of its documents, as asked",
       [](const Answer& a) {
         if (a.request.assembled) return Value(a.request.assembled->name);
         const std::string name = sim::prefill_name(a.cell.prefill);
         return Value(a.cell.prefill == sim::Prefill::chunked
                          ? name + ":" + std::to_string(a.request.prefill_tokens)
                          : name);
       }},
      {"profile", "", "dense: the allocation measured a dense pass besides; empty: it did not",
       [](const Answer& a) { return Value(std::string(a.cell.profiled ? "dense" : "")); }},
      {"positions", "",
       "of keys in rotary embedding. text: those of the text; cache-step: those in the cache, at every step; "
       "cache-once: those in the cache after the cut",
       [](const Answer& a) { return Value(std::string(sim::loop_positions_name(a.request.positions))); }},
      {"right", "0 or 1", "whether the answer is right by the workload's own rule; greedy mode",
       [](const Answer& a) { return flag(is_right(a, a.stream())); }},
      {"right_full", "0 or 1", "the same of the full cache",
       [](const Answer& a) { return flag(is_right(a, &a.reference())); }},
      {"kept", "0 or 1", "right, where the full cache's answer is; null: it is not",
       [](const Answer& a) {
         return is_right(a, &a.reference()) == true ? flag(is_right(a, a.stream())) : Value();
       }},
      {"contains", "0 or 1", "whether one of the expected answers occurs in what was generated; greedy mode",
       [](const Answer& a) { return flag(contains_answer(a)); }},
      {"agreement", "tokens",
       "generated tokens that equal the full cache's before the first that does not; greedy mode",
       [](const Answer& a) { return value_of(agreement(a)); }},
      {"divergence_margin", "logits",
       "how far the full cache's most probable token leads where the two part; null: they do not; greedy "
       "mode",
       [](const Answer& a) { return value_of(divergence_margin(a)); }},
      {"rouge_l", "share",
       "ROUGE-L of what was generated against what the full cache did: F1 of the longest common subsequence "
       "of their words; greedy mode",
       [](const Answer& a) { return value_of(rouge_l(a)); }},
      {"rep_4", "share",
       "of the generated runs of 4 tokens, those that occurred before: 1 - distinct / all; null: fewer than "
       "4 tokens; greedy mode",
       [](const Answer& a) { return value_of(repetition(a)); }},
      {"kl", "nats", "KL(full || cell) of the next token, mean over the tokens of the answer; teacher mode",
       [](const Answer& a) { return value_of(mean(kl(a))); }},
      {"kl_median", "nats", "the same, median",
       [](const Answer& a) { return value_of(quantile(kl(a), 0.5)); }},
      {"kl_p90", "nats", "the same, 90 %", [](const Answer& a) { return value_of(quantile(kl(a), 0.9)); }},
      {"kl_p99", "nats", "the same, 99 %", [](const Answer& a) { return value_of(quantile(kl(a), 0.99)); }},
      {"kl_p999", "nats", "the same, 99.9 %",
       [](const Answer& a) { return value_of(quantile(kl(a), 0.999)); }},
      {"kl_max", "nats", "the same, largest", [](const Answer& a) { return value_of(quantile(kl(a), 1)); }},
      {"same_top", "share",
       "tokens at which cell and full cache find the same token most probable; teacher mode",
       [](const Answer& a) { return value_of(same_top(a)); }},
      {"log_p", "nats", "log-likelihood of the tokens that are fed; teacher mode",
       [](const Answer& a) { return value_of(log_likelihood(a)); }},
      {"delta_log_p", "nats", "log p of a fed token minus the full cache's, mean over tokens; teacher mode",
       [](const Answer& a) { return value_of(delta_log_p(a)); }},
      {"ppl", "", "perplexity of the fed tokens, exp(-mean log p); null: beyond a double; teacher mode",
       [](const Answer& a) { return value_of(perplexities(a).cell); }},
      {"ppl_full", "", "the same of the full cache",
       [](const Answer& a) { return value_of(perplexities(a).full); }},
      {"delta_ppl", "", "ppl minus ppl_full; teacher mode",
       [](const Answer& a) {
         const Perplexities of = perplexities(a);
         return of.cell && of.full ? Value(*of.cell - *of.full) : Value();
       }},
      {"rms_delta_p", "share", "root mean square of p of a fed token minus the full cache's; teacher mode",
       [](const Answer& a) { return value_of(rms_delta_p(a)); }},
      {"rank", "tokens", "tokens that the cell finds more probable than the fed one, mean; teacher mode",
       [](const Answer& a) { return value_of(rank(a)); }},
      {"residual_l2", "share",
       "|h' - h| / |h| of the residual stream after the last layer, mean over tokens; teacher mode",
       [](const Answer& a) { return value_of(last_drift(a, &sim::LayerDrift::residual_l2)); }},
      {"residual_cosine", "", "cosine of h' and h, mean over tokens; teacher mode",
       [](const Answer& a) { return value_of(last_drift(a, &sim::LayerDrift::residual_cosine)); }},
      {"query_l2", "share", "|q' - q| / |q| of the last layer's queries, mean over tokens; teacher mode",
       [](const Answer& a) { return value_of(last_drift(a, &sim::LayerDrift::query_l2)); }},
      {"tokens", "tokens", "tokens of the answer, fed or generated",
       [](const Answer& a) {
         return a.stream() == nullptr ? Value() : Value(std::uint64_t{a.stream()->tokens.size()});
       }},
      {"kept_tokens", "tokens per lane", "positions held after the cut, mean over lanes",
       [](const Answer& a) { return a.stream() == nullptr ? Value() : Value(a.cell.kept_tokens); }},
      {"held_tokens", "tokens per lane", "positions held at the end, mean over lanes",
       [](const Answer& a) { return a.stream() == nullptr ? Value() : Value(a.stream()->held_tokens); }},
      {"evicted_after_cut", "tokens per lane",
       "positions evicted while the tokens after the cut were fed, mean over lanes",
       [](const Answer& a) {
         const auto held = held_entries(a);
         if (!held) return Value();
         return Value(static_cast<double>(held->evicted) / static_cast<double>(a.item.lanes));
       }},
      {"held_bytes", "bytes", "keys and values held at the end, as they are stored, over all lanes",
       [](const Answer& a) { return bytes(a, &HeldEntries::end_bytes); }},
      {"held_bytes_peak", "bytes", "the most of them that were held at once, from the cut on",
       [](const Answer& a) { return bytes(a, &HeldEntries::peak_bytes); }},
      {"chunk_peak_tokens", "tokens per lane",
       "the most positions that a lane held at once while the prompt came in chunks; null: it did not",
       [](const Answer& a) {
         const std::vector<std::size_t>& peaks = a.cell.chunk_peaks;
         return peaks.empty() ? Value() : Value(std::uint64_t{*std::ranges::max_element(peaks)});
       }},
      {"entry_steps", "share", "entries held, summed over the steps, of those of the full cache",
       [](const Answer& a) { return value_of(entry_steps(a)); }},
      {"read_tokens", "tokens per query head",
       "tokens that a query head reads of what is held, mean over heads and fed tokens",
       [](const Answer& a) {
         const auto read = read_entries(a);
         return read ? Value(read->read_tokens) : Value();
       }},
      {"read_bytes", "bytes per step",
       "what the query heads of a KV head load together, as it is stored, and what choosing reads of the "
       "index, "
       "over all lanes, mean over fed tokens",
       [](const Answer& a) {
         const auto read = read_entries(a);
         return read ? value_of(read->read_bytes) : Value();
       }},
      {"index_bytes", "bytes",
       "what the index of a selection takes at the end, over all lanes; null: there is none",
       [](const Answer& a) {
         const auto read = read_entries(a);
         return read ? value_of(read->index_bytes) : Value();
       }},
      {"evidence_held", "share", "of the evidence tokens, those held at the end, mean over lanes",
       [](const Answer& a) { return a.stream() == nullptr ? Value() : value_of(a.stream()->evidence_held); }},
      {"evidence_nowhere", "share", "of the evidence tokens, those that no lane holds then",
       [](const Answer& a) {
         return a.stream() == nullptr ? Value() : value_of(a.stream()->evidence_nowhere);
       }},
      {"generated", "", "what the cell generated; greedy mode",
       [](const Answer& a) {
         if (a.teacher() || a.stream() == nullptr || !a.item.text) return Value();
         return Value(a.item.text(a.stream()->tokens));
       }},
      {"skipped", "", "why the cell was not run; empty: it was",
       [](const Answer& a) { return Value(a.cell.skipped); }},
      {"idle", "", "parts of the policy that changed nothing; empty: none",
       [](const Answer& a) {
         std::string idle;
         for (const std::string& told : a.cell.idle) idle += (idle.empty() ? "" : "; ") + told;
         return Value(idle);
       }},
  };
  return all;
}

}  // namespace

const std::vector<ColumnInfo>& answer_columns() {
  static const std::vector<ColumnInfo> all = [] {
    std::vector<ColumnInfo> out;
    for (const Column& column : columns()) out.push_back({column.key, column.unit, column.description});
    return out;
  }();
  return all;
}

const std::vector<ColumnInfo>& assembly_columns() {
  static const std::vector<ColumnInfo> kAll = {
      {"computed", "share",
       "of the prompt's tokens in all layers, those that are computed where the others come from documents"},
      {"kl_first", "nats", "KL(full || cell) of the answer's first token; teacher mode"}};
  return kAll;
}

Value answer_field(const Answer& answer, std::size_t column) {
  return columns()[column].get(answer);
}

std::vector<std::vector<Value>> answer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                            const sim::LoopOutcome& outcome) {
  std::vector<std::vector<Value>> rows;
  for (std::size_t cell = 0; cell < request.cells.size(); ++cell)
    for (std::size_t mode = 0; mode < request.modes.size(); ++mode) {
      const Answer answer{item, request, outcome, request.cells[cell], outcome.cells[cell], mode};
      std::vector<Value>& row = rows.emplace_back();
      for (const Column& column : columns()) row.push_back(column.get(answer));
      if (!request.assembled) continue;
      row.emplace_back(request.assembled->computed);
      const std::vector<double> kls = kl(answer);
      row.push_back(kls.empty() ? Value() : Value(kls.front()));
    }
  return rows;
}

}  // namespace kvsim::analysis
