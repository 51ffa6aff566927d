#include "analysis/loop/answer_rows.hpp"

#include <algorithm>

#include "analysis/loop/answer_measures.hpp"
#include "analysis/results/cell_columns.hpp"
#include "analysis/results/declared_columns.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::analysis {
namespace {

/// What is left undefined where a cell was skipped, and where `of` has nothing.
template <class Of, class Read>
auto where(Of of, Read read) {
  return [of, read](const Answer& answer) {
    const auto found = of(answer);
    return found ? as_field(std::invoke(read, *found)) : Value();
  };
}

template <class Read>
auto of_stream(Read read) {
  return where([](const Answer& answer) { return answer.stream(); }, read);
}

const Columns<Answer>& columns() {
  using sim::LayerDrift, sim::StreamOutcome;
  const auto of_item = [](auto AnswerItem::*what) {
    return [what](const Answer& a) { return a.item.*what; };
  };
  const auto of_policy = [](std::string policy::Composition::*what) {
    return [what](const Answer& a) { return a.asked.composition.*what; };
  };
  const auto of_budget = [](std::size_t i) {
    return [i](const Answer& a) { return budget_fields(a.asked.budget.text)[i]; };
  };
  const auto kl_at = [](double share) { return [share](const Answer& a) { return quantile(kl(a), share); }; };
  const auto ppl = [](Number Perplexities::*which) {
    return [which](const Answer& a) { return perplexities(a).*which; };
  };
  const auto last_drift = [](double LayerDrift::*number) {
    return of_stream([number](const StreamOutcome& stream) {
      return stream.drift.empty() ? Value() : Value(stream.drift.back().*number);
    });
  };
  const auto of_held = [](auto what) { return where(held_entries, what); };
  const auto of_read = [](auto what) { return where(read_entries, what); };
  static const Columns<Answer> all = {
      {"item", "", "prompt of the workload, or the prompt's file", of_item(&AnswerItem::item)},
      {"workload", "", "kind of prompt; empty: not known", of_item(&AnswerItem::workload)},
      {"model", "", "folder of the checkpoint", of_item(&AnswerItem::model)},
      {"policy", "", "composition, as a table shows it", of_policy(&policy::Composition::name)},
      {"params", "", "composition with every effective parameter", of_policy(&policy::Composition::params)},
      {"budget", "", "budget, as given", [](const Answer& a) { return a.asked.budget.text; }},
      {budget_columns()[0], of_budget(0)},
      {budget_columns()[1], of_budget(1)},
      {"budget_tokens", "tokens per lane", "what the budget comes to for this prompt",
       [](const Answer& a) { return a.cell.skipped.empty() ? Value(a.cell.budget_tokens) : Value(); }},
      {"cut", "", "where the prompt ends for policies: prompt, question, or so many tokens",
       [](const Answer& a) { return a.outcome.cut; }},
      {"turn", "index", "number of the question about its context", of_item(&AnswerItem::turn)},
      {"seed", "", "of random policies", [](const Answer& a) { return a.request.seed; }},
      {"mode", "",
       "teacher: every cell is fed the same tokens, those of the expected answer or of the full cache; "
       "greedy: what it generates itself",
       [](const Answer& a) { return std::string(sim::loop_mode_name(a.loop_mode())); }},
      {"turns", "",
       "requests: questions about one context leave no trace for each other; golden, own: each follows the "
       "earlier ones with the expected answers, or with what the cell answered",
       [](const Answer& a) { return std::string(sim::turn_protocol_name(a.request.protocol)); }},
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
       [](const Answer& a) { return std::string(a.cell.profiled ? "dense" : ""); }},
      {"positions", "",
       "of keys in rotary embedding. text: those of the text; cache-step: those in the cache, at every step; "
       "cache-once: those in the cache after the cut",
       [](const Answer& a) { return std::string(sim::loop_positions_name(a.request.positions)); }},
      {"right", "0 or 1", "whether the answer is right by the workload's own rule; greedy mode",
       [](const Answer& a) { return is_right(a, a.stream()); }},
      {"right_full", "0 or 1", "the same of the full cache",
       [](const Answer& a) { return is_right(a, &a.reference()); }},
      {"kept", "0 or 1", "right, where the full cache's answer is; null: it is not",
       [](const Answer& a) {
         return is_right(a, &a.reference()) == true ? is_right(a, a.stream()) : std::nullopt;
       }},
      {"contains", "0 or 1", "whether one of the expected answers occurs in what was generated; greedy mode",
       contains_answer},
      {"agreement", "tokens",
       "generated tokens that equal the full cache's before the first that does not; greedy mode", agreement},
      {"divergence_margin", "logits",
       "how far the full cache's most probable token leads where the two part; null: they do not; greedy "
       "mode",
       divergence_margin},
      {"rouge_l", "share",
       "ROUGE-L of what was generated against what the full cache did: F1 of the longest common subsequence "
       "of their words; greedy mode",
       [](const Answer& a) { return rouge_l(a); }},
      {"rep_4", "share",
       "of the generated runs of 4 tokens, those that occurred before: 1 - distinct / all; null: fewer than "
       "4 tokens; greedy mode",
       repetition},
      {"kl", "nats", "KL(full || cell) of the next token, mean over the tokens of the answer; teacher mode",
       [](const Answer& a) { return mean(kl(a)); }},
      {"kl_median", "nats", "the same, median", kl_at(0.5)},
      {"kl_p90", "nats", "the same, 90 %", kl_at(0.9)},
      {"kl_p99", "nats", "the same, 99 %", kl_at(0.99)},
      {"kl_p999", "nats", "the same, 99.9 %", kl_at(0.999)},
      {"kl_max", "nats", "the same, largest", kl_at(1)},
      {"same_top", "share",
       "tokens at which cell and full cache find the same token most probable; teacher mode", same_top},
      {"log_p", "nats", "log-likelihood of the tokens that are fed; teacher mode", log_likelihood},
      {"delta_log_p", "nats", "log p of a fed token minus the full cache's, mean over tokens; teacher mode",
       delta_log_p},
      {"ppl", "", "perplexity of the fed tokens, exp(-mean log p); null: beyond a double; teacher mode",
       ppl(&Perplexities::cell)},
      {"ppl_full", "", "the same of the full cache", ppl(&Perplexities::full)},
      {"delta_ppl", "", "ppl minus ppl_full; teacher mode",
       [](const Answer& a) {
         const Perplexities of = perplexities(a);
         return of.cell && of.full ? Value(*of.cell - *of.full) : Value();
       }},
      {"rms_delta_p", "share", "root mean square of p of a fed token minus the full cache's; teacher mode",
       rms_delta_p},
      {"rank", "tokens", "tokens that the cell finds more probable than the fed one, mean; teacher mode",
       rank},
      {"residual_l2", "share",
       "|h' - h| / |h| of the residual stream after the last layer, mean over tokens; teacher mode",
       last_drift(&LayerDrift::residual_l2)},
      {"residual_cosine", "", "cosine of h' and h, mean over tokens; teacher mode",
       last_drift(&LayerDrift::residual_cosine)},
      {"query_l2", "share", "|q' - q| / |q| of the last layer's queries, mean over tokens; teacher mode",
       last_drift(&LayerDrift::query_l2)},
      {"tokens", "tokens", "tokens of the answer, fed or generated",
       of_stream([](const StreamOutcome& stream) { return stream.tokens.size(); })},
      {"kept_tokens", "tokens per lane", "positions held after the cut, mean over lanes",
       [](const Answer& a) { return a.stream() == nullptr ? Value() : Value(a.cell.kept_tokens); }},
      {"held_tokens", "tokens per lane", "positions held at the end, mean over lanes",
       of_stream(&StreamOutcome::held_tokens)},
      {"evicted_after_cut", "tokens per lane",
       "positions evicted while the tokens after the cut were fed, mean over lanes",
       [](const Answer& a) {
         const auto held = held_entries(a);
         if (!held) return Value();
         return Value(static_cast<double>(held->evicted) / static_cast<double>(a.item.lanes));
       }},
      {"held_bytes", "bytes", "keys and values held at the end, as they are stored, over all lanes",
       of_held(&HeldEntries::end_bytes)},
      {"held_bytes_peak", "bytes", "the most of them that were held at once, from the cut on",
       of_held(&HeldEntries::peak_bytes)},
      {"chunk_peak_tokens", "tokens per lane",
       "the most positions that a lane held at once while the prompt came in chunks; null: it did not",
       [](const Answer& a) {
         const std::vector<std::size_t>& peaks = a.cell.chunk_peaks;
         return peaks.empty() ? Value() : Value(std::uint64_t{*std::ranges::max_element(peaks)});
       }},
      {"entry_steps", "share", "entries held, summed over the steps, of those of the full cache",
       entry_steps},
      {"read_tokens", "tokens per query head",
       "tokens that a query head reads of what is held, mean over heads and fed tokens",
       of_read(&ReadEntries::read_tokens)},
      {"read_bytes", "bytes per step",
       "what the query heads of a KV head load together, as it is stored, and what choosing reads of the "
       "index, "
       "over all lanes, mean over fed tokens",
       of_read(&ReadEntries::read_bytes)},
      {"index_bytes", "bytes",
       "what the index of a selection takes at the end, over all lanes; null: there is none",
       of_read(&ReadEntries::index_bytes)},
      {"evidence_held", "share", "of the evidence tokens, those held at the end, mean over lanes",
       of_stream(&StreamOutcome::evidence_held)},
      {"evidence_nowhere", "share", "of the evidence tokens, those that no lane holds then",
       of_stream(&StreamOutcome::evidence_nowhere)},
      {"generated", "", "what the cell generated; greedy mode",
       [](const Answer& a) {
         if (a.teacher() || a.stream() == nullptr || !a.item.text) return Value();
         return Value(a.item.text(a.stream()->tokens));
       }},
      {"skipped", "", "why the cell was not run; empty: it was",
       [](const Answer& a) { return a.cell.skipped; }},
      {"idle", "", "parts of the policy that changed nothing; empty: none",
       [](const Answer& a) { return joined(a.cell.idle, "; "); }},
  };
  return all;
}

}  // namespace

const std::vector<ColumnInfo>& answer_columns() {
  static const std::vector<ColumnInfo> all = infos(columns());
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
      for (const Column<Answer>& column : columns()) row.push_back(column.get(answer));
      if (!request.assembled) continue;
      row.emplace_back(request.assembled->computed);
      const std::vector<double> kls = kl(answer);
      row.push_back(kls.empty() ? Value() : Value(kls.front()));
    }
  return rows;
}

}  // namespace kvsim::analysis
