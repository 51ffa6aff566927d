#include "policies/parts/rows/accumulated_attention.hpp"

#include <algorithm>

#include "policies/api/slots.hpp"

namespace kvsim::policy {
namespace {

double score_of(const Accumulation& rule, const Received& received) {
  if (!rule.mean) return received.sum;
  return received.rows > 0 ? received.sum / received.rows : 0;  // no row sees it: no attention
}

std::vector<double> scores_of(const Accumulation& rule, const std::vector<Received>& received) {
  std::vector<double> out(received.size());
  std::transform(received.begin(), received.end(), out.begin(),
                 [&](const Received& r) { return score_of(rule, r); });
  return out;
}

}  // namespace

ParamSpec recent_param(const char* fallback) {
  return real_param("recent", fallback, {0, 1},
                    "what goes to the most recent positions, beyond `window` and as far as sinks leave room",
                    "share of the budget");
}

ParamSpec rows_param() {
  return count_param("rows", "0", {0, 1 << 30}, "last rows of the prompt that count; 0: all", "rows");
}

ParamSpec prompt_weight_param() {
  return choice_param(
      "prompt_weight", "sum", {"sum", "mean", "visible"},
      "what the prompt contributes: the sum of its rows, or, counting as one row, their mean or their "
      "mean over the rows that see the position");
}

ParamSpec normalise_param() {
  return choice_param(
      "normalise", "sum", {"sum", "mean", "mean_since"},
      "mean: the sum divided by the number of rows that count and see the position; mean_since: by all "
      "rows since the position, also those that a sliding window keeps from seeing it");
}

Accumulation Accumulation::of(const Params& params) {
  Accumulation out;
  if (params.has("rows") && params.count("rows") > 0) out.rows = params.count("rows");
  if (params.has("prompt_weight")) {
    const std::string& weight = params.word("prompt_weight");
    out.prompt_weight = weight == "sum"    ? PromptWeight::sum
                        : weight == "mean" ? PromptWeight::mean
                                           : PromptWeight::visible;
  }
  if (params.has("normalise")) {
    out.mean = params.word("normalise") != "sum";
    out.unseen = params.word("normalise") == "mean_since";
  }
  if (params.has("alpha")) out.decay = params.real("alpha");
  if (params.has("decode")) out.decode = params.flag("decode");
  if (params.has("feedback")) out.feedback = feedback_of(params);
  return out;
}

Needs accumulation_needs(const Params& params) {
  const Accumulation rule = Accumulation::of(params);
  return {.prompt_rows = rule.rows == kAllRows ? RowNeed::all : RowNeed::window, .decode_rows = rule.decode};
}

AccumulatingDecoder::AccumulatingDecoder(const CacheUnit& unit, const Accumulation& rule,
                                         const KeepRule& selection, std::vector<Received> received)
    : ScoredDecoder(selection, scores_of(rule, received)),
      unit_(unit),
      rule_(rule),
      received_(std::move(received)) {
  if (rule_.unseen) unit_.span = 0;
}

void AccumulatingDecoder::observe(const Step& step) {
  const std::span<double> scores = admit(step, 0);
  if (!rule_.mean) {
    if (rule_.decay != 1)
      for (double& score : scores) score *= rule_.decay;
    add_attention(step, rule_.feedback, Group::mean, 1, scores);
    return;
  }
  received_.resize(scores.size());
  received_[step.own_slot] = {};
  row_.assign(scores.size(), 0);
  add_attention(step, rule_.feedback, Group::mean, 1, row_);
  for (std::size_t slot = 0; slot < scores.size(); ++slot) {
    Received& received = received_[slot];
    received.sum = received.sum * rule_.decay + row_[slot];
    if (unit_.sees(static_cast<std::size_t>(step.position), static_cast<std::size_t>(step.slots[slot])))
      received.rows += 1;
    scores[slot] = score_of(rule_, received);
  }
}

void AccumulatingDecoder::close_slots(std::span<const std::size_t> victims) {
  ScoredDecoder::close_slots(victims);
  if (rule_.mean) close_up(received_, victims);
}

void AccumulatingEviction::observe(const PromptRows& rows) {
  if (rule_.decay == 1)
    sums_.add(rows);
  else
    sums_.fold(rows, [decay = rule_.decay](double sum, double p, std::size_t) { return sum * decay + p; });
}

void AccumulatingEviction::observe_columns(const PromptColumns& columns) {
  if (plain_sum()) sums_.take(columns.query_head, columns.sum);
}

std::vector<double> AccumulatingEviction::score(const Prompt& prompt) {
  const std::vector<double> sums = sums_.mean();
  const std::size_t n_rows = std::min(rule_.rows, prompt.length());
  CacheUnit span = unit();
  if (rule_.unseen) span.span = 0;
  received_.resize(prompt.length());
  for (std::size_t j = 0; j < received_.size(); ++j) {
    const std::size_t seen_by = span.seen_by(j, n_rows, prompt.length());
    Received& received = received_[j];
    switch (rule_.prompt_weight) {
      case Accumulation::PromptWeight::sum:
        received = {.sum = sums[j], .rows = static_cast<double>(seen_by)};
        break;
      case Accumulation::PromptWeight::mean:
        received = {.sum = sums[j] / static_cast<double>(n_rows), .rows = 1};
        break;
      case Accumulation::PromptWeight::visible:
        received = {.sum = seen_by > 0 ? sums[j] / static_cast<double>(seen_by) : 0, .rows = 1};
        break;
    }
  }
  return kvsim::policy::scores_of(rule_, received_);
}

double AccumulatingEviction::rows_in_score(std::size_t prompt) const {
  if (rule_.mean || rule_.prompt_weight != Accumulation::PromptWeight::sum) return 1;
  double sum = 0;  // one row's weight, summed from the newest row on
  double weight = 1;
  for (std::size_t row = 0; row < std::min(rule_.rows, prompt); ++row, weight *= rule_.decay) sum += weight;
  return sum;
}

std::unique_ptr<Decoder> AccumulatingEviction::decoder(std::size_t budget,
                                                       std::span<const Position> slots) const {
  if (!rule_.decode) return nullptr;
  return std::make_unique<AccumulatingDecoder>(unit(), rule_, selection(budget),
                                               at_positions(received_, slots));
}

}  // namespace kvsim::policy
