#include "analysis/loop/part_rows.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>

#include "analysis/loop/answer_measures.hpp"
#include "analysis/results/numbers.hpp"
#include "analysis/statistics/answer_statistics.hpp"

namespace kvsim::analysis {
namespace {

constexpr std::string_view kKeys[] = {"item",    "workload",    "model",         "policy",        "params",
                                      "budget",  "budget_kind", "budget_number", "budget_tokens", "cut",
                                      "turn",    "seed",        "mode",          "turns",         "prefill",
                                      "profile", "positions"};

/// The number of a column of answer_columns().
std::size_t answer_column(std::string_view key) {
  const std::vector<ColumnInfo>& all = answer_columns();
  return static_cast<std::size_t>(
      std::ranges::find_if(all, [&](const ColumnInfo& column) { return column.key == key; }) - all.begin());
}

/// The columns of such rows, `mine` in their middle.
std::vector<ColumnInfo> columns_of_parts(const std::vector<ColumnInfo>& mine) {
  std::vector<ColumnInfo> out;
  for (const std::string_view key : kKeys) out.push_back(answer_columns()[answer_column(key)]);
  out.insert(out.end(), mine.begin(), mine.end());
  out.push_back(answer_columns()[answer_column("skipped")]);
  return out;
}

/// The fields of the parts of one answer in the columns `mine`, a row per part. The cell was not skipped.
using PartsOf = std::function<std::vector<std::vector<Value>>(const Answer& answer)>;

/// Rows of one item, by cell in the order of the request, mode and part. A skipped cell has one row per mode
/// with the reason; `mine`: how many columns are the parts' own.
std::vector<std::vector<Value>> rows_of_parts(const AnswerItem& item, const sim::LoopRequest& request,
                                              const sim::LoopOutcome& outcome, std::size_t mine,
                                              const PartsOf& parts_of) {
  std::vector<std::vector<Value>> rows;
  for (std::size_t cell = 0; cell < request.cells.size(); ++cell)
    for (std::size_t mode = 0; mode < request.modes.size(); ++mode) {
      const Answer answer{item, request, outcome, request.cells[cell], outcome.cells[cell], mode};
      std::vector<std::vector<Value>> parts{std::vector<Value>(mine)};
      if (answer.stream() != nullptr) parts = parts_of(answer);
      for (const std::vector<Value>& part : parts) {
        std::vector<Value>& row = rows.emplace_back();
        for (const std::string_view key : kKeys) row.push_back(answer_field(answer, answer_column(key)));
        row.insert(row.end(), part.begin(), part.end());
        row.push_back(answer_field(answer, answer_column("skipped")));
      }
    }
  return rows;
}

std::vector<ColumnInfo> own_layer_columns() {
  std::vector<ColumnInfo> out{{"layer", "index", "layer of the model, from 0"}};
  for (const Metric& metric : drift_metrics()) out.push_back(info_of(metric));
  return out;
}

}  // namespace

const std::vector<ColumnInfo>& layer_columns() {
  static const std::vector<ColumnInfo> all = columns_of_parts(own_layer_columns());
  return all;
}

std::vector<std::vector<Value>> layer_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome) {
  const auto layers = [](const Answer& answer) {
    std::vector<std::vector<Value>> rows;
    for (const sim::LayerDrift& drift : answer.stream()->drift)
      rows.push_back({std::uint64_t{rows.size()}, drift.residual_l2, drift.residual_cosine, drift.query_l2});
    return rows;
  };
  return rows_of_parts(item, request, outcome, own_layer_columns().size(), layers);
}

namespace {

/// The numbers of one token; undefined where it was not compared with the full cache's.
void add_measures(const sim::TokenMeasures* at, std::vector<Value>& row) {
  if (at == nullptr)
    row.resize(row.size() + 5);
  else
    row.insert(row.end(),
               {at->log_p, at->log_p_full, at->kl, at->rank, std::uint64_t{at->same_top ? 1U : 0U}});
}

const std::vector<ColumnInfo>& own_token_columns() {
  static const std::vector<ColumnInfo> all = {
      {"index", "index", "token of the answer, from 0"},
      {"token", "", "its id: fed next in teacher mode, found most probable in greedy mode"},
      {"text", "", "its text"},
      {"log_p", "nats", "natural logarithm of the cell's probability of the token; teacher mode"},
      {"log_p_full", "nats", "of the full cache's; teacher mode"},
      {"kl", "nats", "KL(full || cell) over the vocabulary; teacher mode"},
      {"rank", "tokens", "tokens that the cell finds more probable; teacher mode"},
      {"same_top", "0 or 1", "whether cell and full cache find the same token most probable; teacher mode"},
      {"held_bytes", "bytes", "keys and values held when the token was predicted, over all lanes"},
  };
  return all;
}

}  // namespace

const std::vector<ColumnInfo>& token_columns() {
  static const std::vector<ColumnInfo> all = columns_of_parts(own_token_columns());
  return all;
}

std::vector<std::vector<Value>> token_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome) {
  const auto tokens = [&](const Answer& answer) {
    const sim::StreamOutcome& stream = *answer.stream();
    std::vector<std::vector<Value>> rows;
    for (std::size_t k = 0; k < stream.tokens.size(); ++k) {
      std::vector<Value>& row = rows.emplace_back();
      row.emplace_back(std::uint64_t{k});
      row.emplace_back(static_cast<std::uint64_t>(stream.tokens[k]));
      row.push_back(item.text ? Value(item.text({stream.tokens[k]})) : Value());
      add_measures(k < stream.measures.size() ? &stream.measures[k] : nullptr, row);
      // The last token is not fed: the one before it reads what it is.
      const std::size_t fed = stream.resident.size() - stream.tokens.size() + k;
      if (!stream.stored_bits.empty())
        row.emplace_back((stream.stored_bits[fed] + 7) / 8);
      else
        row.push_back(item.token_bytes > 0 ? Value(stream.resident[fed] * item.token_bytes) : Value());
    }
    return rows;
  };
  return rows_of_parts(item, request, outcome, own_token_columns().size(), tokens);
}

const std::vector<ColumnInfo>& seam_columns() {
  static const std::vector<ColumnInfo> all = {
      {"item", "", "the prompt"},
      {"workload", "", "its kind"},
      {"model", "", "of the run"},
      {"prefill", "", "how the prompt was put together"},
      {"layer", "index", "layer of the model, from 0"},
      {"distance", "tokens", "from where a token's document begins, at least"},
      {"distance_end", "tokens", "below which it is"},
      {"tokens", "tokens", "that stand so, over which the others are means"},
      {"key_l2", "share", "|k' - k| / |k| of keys, all heads together; k of the prompt that is read whole"},
      {"value_l2", "share", "|v' - v| / |v| of values"},
      {"attention_moved", "share",
       "of what the whole prompt's query attends, that which falls on other keys; mean over heads"},
      {"output_l2", "share", "|o' - o| / |o| of what that query reads, all heads together"},
  };
  return all;
}

std::vector<std::vector<Value>> seam_rows(const capture::WorkloadItem& item, const std::string& model,
                                          const std::string& prefill,
                                          std::span<const sim::SeamError> errors) {
  std::vector<std::vector<Value>> rows;
  for (const sim::SeamError& error : errors)
    rows.push_back({item.id, item.kind, model, prefill, std::uint64_t{error.layer}, error.from, error.to,
                    error.tokens, error.key, error.value, error.attention, error.output});
  return rows;
}

namespace {

/// Of the rounds, those in which so many tokens or more were accepted: for 1, 2, ... gamma.
std::string accepted_by_place(const std::vector<sim::DraftRound>& rounds, std::uint64_t gamma) {
  std::string out;
  for (std::uint64_t place = 0; place < gamma; ++place) {
    const auto reached = std::ranges::count_if(rounds, [&](const sim::DraftRound& round) {
      return round.tested.size() > place && round.tested[place].accepted;
    });
    out += (out.empty() ? "" : " ") +
           rounded_text(static_cast<double>(reached) / static_cast<double>(rounds.size()), 4);
  }
  return out;
}

const std::vector<ColumnInfo>& draft_fields() {
  static const std::vector<ColumnInfo> all = {
      {"drafter", "", "the model that drafts; empty: the one that verifies, through another cache"},
      {"helped", "",
       "the cache of the drafter that drafts for this one, which drafts for the full one; empty: none does"},
      {"draft_documents", "documents", "of the prompt, that the drafter reads; null: all"},
      {"lead", "", "RAPID's eta, by which the drafter leads; 0: what comes out is the full cache's"},
      {"gamma", "tokens", "drafted for each verification"},
      {"temperature", "", "of drafts and verification; 0: greedy"},
      {"rounds", "rounds", "of drafting and verification; the first token of the answer takes none"},
      {"tokens_per_round", "tokens", "that come of a verification, mean: the accepted ones and one more"},
      {"accepted", "tokens", "drafted tokens that a round accepts, mean"},
      {"accepted_by_place", "share", "of the rounds, those that accept 1, 2, ... gamma tokens or more"},
      {"overlap", "share",
       "sum of min(p, q) over the vocabulary, p of the full cache and q of the draft, mean over tested "
       "tokens; at temperature 1 where decoding is greedy"},
      {"accepted_share", "share", "of the tested tokens, those that are accepted"},
      {"draft_passes", "passes", "of this cache in a round, mean; with a helper each is over two tokens"},
      {"helper_overlap", "share", "overlap of this cache and the helper's, mean over what that has proposed"},
      {"helper_accepted_share", "share",
       "of the tokens that the helper has proposed, those that this cache accepts"},
      {"draft_bytes", "bytes per step",
       "keys, values and index that a drafting step reads over all lanes, as they are stored, mean"},
      {"full_bytes", "bytes per step", "that the full cache would read in its place, mean"},
      {"draft_share", "share", "draft_bytes / full_bytes"},
      {"tokens", "tokens", "of the answer"},
      {"generated", "", "the answer: the full cache's, whatever drafts, unless it leads"},
  };
  return all;
}

std::vector<std::vector<Value>> rows_of_draft(const Answer& answer) {
  const sim::StreamOutcome& stream = *answer.stream();
  double tokens = 0, accepted = 0, tested = 0, overlap = 0;
  double helped = 0, helper_accepted = 0, helper_overlap = 0;
  const std::optional<sim::Cell>& helper = answer.request.helper_cell;
  for (const sim::DraftRound& round : stream.rounds) {
    tokens += static_cast<double>(round.tokens);
    for (const sim::DraftedToken& token : round.tested) {
      ++tested;
      accepted += token.accepted ? 1 : 0;
      overlap += token.overlap;
    }
    for (const sim::DraftedToken& token : round.helped) {
      ++helped;
      helper_accepted += token.accepted ? 1 : 0;
      helper_overlap += token.overlap;
    }
  }
  const auto rounds = static_cast<double>(stream.rounds.size());
  const std::optional<ReadEntries> read = stream.resident.empty() ? std::nullopt : read_entries(answer);
  const double full = std::accumulate(stream.full_resident.begin(), stream.full_resident.end(), 0.0) *
                      static_cast<double>(answer.item.full_token_bytes);
  const Value draft_bytes = read ? value_of(read->read_bytes) : Value();
  const Value full_bytes = ratio(full, static_cast<double>(stream.full_resident.size()));
  const bool sized = number(draft_bytes) && number(full_bytes);
  const double passes = helper ? helped : rounds * static_cast<double>(answer.request.gamma);
  return {{answer.item.drafter,
           helper ? helper->composition.params + " at " + helper->budget.text : std::string(),
           answer.item.draft_documents > 0 ? Value(answer.item.draft_documents) : Value(),
           answer.request.lead,
           answer.request.gamma,
           answer.request.temperature,
           std::uint64_t{stream.rounds.size()},
           ratio(tokens, rounds),
           ratio(accepted, rounds),
           stream.rounds.empty()
               ? Value()
               : Value(accepted_by_place(stream.rounds, answer.request.gamma + (helper ? 1 : 0))),
           ratio(overlap, tested),
           ratio(accepted, tested),
           ratio(passes, rounds),
           ratio(helper_overlap, helped),
           ratio(helper_accepted, helped),
           draft_bytes,
           full_bytes,
           sized ? ratio(*number(draft_bytes), *number(full_bytes)) : Value(),
           std::uint64_t{stream.tokens.size()},
           answer.item.text ? Value(answer.item.text(stream.tokens)) : Value()}};
}

const std::vector<ColumnInfo>& drafted_fields() {
  static const std::vector<ColumnInfo> all = {
      {"round", "index", "of drafting and verification, from 0"},
      {"place", "index", "of the token in its draft, from 0"},
      {"token", "", "its id"},
      {"text", "", "its text"},
      {"overlap", "share", "sum of min(p, q) over the vocabulary where it was drafted"},
      {"accepted", "0 or 1", "whether it was accepted"},
  };
  return all;
}

std::vector<std::vector<Value>> rows_of_tokens(const Answer& answer) {
  std::vector<std::vector<Value>> rows;
  const std::vector<sim::DraftRound>& rounds = answer.stream()->rounds;
  for (std::size_t round = 0; round < rounds.size(); ++round)
    for (std::size_t place = 0; place < rounds[round].tested.size(); ++place) {
      const sim::DraftedToken& token = rounds[round].tested[place];
      rows.push_back({std::uint64_t{round}, std::uint64_t{place}, static_cast<std::uint64_t>(token.token),
                      answer.item.text ? Value(answer.item.text({token.token})) : Value(), token.overlap,
                      std::uint64_t{token.accepted ? 1U : 0U}});
    }
  return rows;
}

}  // namespace

const std::vector<ColumnInfo>& draft_columns() {
  static const std::vector<ColumnInfo> all = columns_of_parts(draft_fields());
  return all;
}

std::vector<std::vector<Value>> draft_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                           const sim::LoopOutcome& outcome) {
  return rows_of_parts(item, request, outcome, draft_fields().size(), rows_of_draft);
}

const std::vector<ColumnInfo>& drafted_token_columns() {
  static const std::vector<ColumnInfo> all = columns_of_parts(drafted_fields());
  return all;
}

std::vector<std::vector<Value>> drafted_token_rows(const AnswerItem& item, const sim::LoopRequest& request,
                                                   const sim::LoopOutcome& outcome) {
  return rows_of_parts(item, request, outcome, drafted_fields().size(), rows_of_tokens);
}

}  // namespace kvsim::analysis
