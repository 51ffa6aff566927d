#include "analysis/loop/part_rows.hpp"

#include <algorithm>
#include <string_view>

#include "analysis/statistics/drift_metrics.hpp"

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

}  // namespace

std::vector<ColumnInfo> columns_of_parts(const std::vector<ColumnInfo>& mine) {
  std::vector<ColumnInfo> out;
  for (const std::string_view key : kKeys) out.push_back(answer_columns()[answer_column(key)]);
  out.insert(out.end(), mine.begin(), mine.end());
  out.push_back(answer_columns()[answer_column("skipped")]);
  return out;
}

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

namespace {

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

}  // namespace kvsim::analysis
