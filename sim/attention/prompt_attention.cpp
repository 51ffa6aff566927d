#include "sim/attention/prompt_attention.hpp"

#include <algorithm>
#include <string>

#include "policies/api/call_syntax.hpp"
#include "sim/base/error.hpp"
#include "traces/format/recorded_rows.hpp"

namespace kvsim::sim {

void MeanAttention::observe(const policy::PromptRows& rows) {
  values_.resize(rows.prompt_length);
  for (std::size_t i = 0; i < rows.p.rows; ++i) {
    const std::span<const float> row = rows.p.row(i);
    for (std::size_t j = 0; j < row.size(); ++j) values_[j] += static_cast<double>(row[j]);
  }
}

void MeanAttention::observe_columns(const policy::PromptColumns& columns) {
  values_.resize(columns.sum.size());
  for (std::size_t j = 0; j < values_.size(); ++j) values_[j] += columns.sum[j];
}

void MeanAttention::finish_prompt(const policy::Prompt& prompt) {
  const std::size_t n = prompt.length();
  values_.resize(n);
  for (std::size_t j = 0; j < n; ++j) {
    std::size_t rows = mean_ == RowMean::visible ? n - j : n;
    if (mean_ == RowMean::visible && window_ >= 0) rows = std::min(rows, static_cast<std::size_t>(window_));
    values_[j] /= static_cast<double>(rows * group_);
  }
}

void require_attention(const trace::Sequence& sequence, std::size_t from) {
  const std::string& name = sequence.source().name();
  if (trace::first_row(sequence) > from)
    usage_error("stores queries from position " + std::to_string(sequence.first_query()) +
                    " on; this analysis needs those from position " + std::to_string(from) + " on",
                name, "Capture again with --queries all, or look at fewer rows.");
}

namespace {

ParamSpec share_spec(const char* name, const char* fallback) {
  return {.name = name, .type = ParamType::real, .fallback = fallback, .min = 0.01, .max = 1};
}
ParamSpec tokens_spec(const char* name, const char* fallback) {
  return {.name = name, .type = ParamType::count, .fallback = fallback, .min = 0, .max = 1 << 30};
}

/// Returns the largest value, of values >= 0. Compilers turn the independent chains into vector instructions.
float largest(std::span<const float> values) {
  constexpr std::size_t kChains = 16;
  float most[kChains] = {};
  std::size_t i = 0;
  for (; i + kChains <= values.size(); i += kChains)
    for (std::size_t c = 0; c < kChains; ++c) most[c] = values[i + c] > most[c] ? values[i + c] : most[c];
  for (; i < values.size(); ++i) most[0] = std::max(most[0], values[i]);
  return *std::max_element(most, most + kChains);
}

}  // namespace

PeakRule parse_peak(std::string_view text) {
  static const std::vector<ParamSpec> specs = {share_spec("threshold", "0.5"), share_spec("low", "0.3"),
                                               share_spec("share", "0.5"), tokens_spec("sinks", "4"),
                                               tokens_spec("recent", "32")};
  const policy::Params params = policy::option_list(text, specs, "peak");
  PeakRule out{params.real("threshold"), params.real("low"),     params.real("share"),
               params.count("sinks"),    params.count("recent"), params.text()};
  if (out.low > out.threshold)
    usage_error("low is above threshold: it is to count more rows, not fewer", "peak " + out.text);
  return out;
}

void find_peak(const PeakRule& rule, std::span<const float> row, std::size_t prompt, Peak& out) {
  out.best = out.paid = 0;
  out.positions.clear();
  const std::size_t end = std::min(row.size(), prompt - std::min(prompt, rule.recent));
  if (rule.sinks >= end) return;
  const std::span<const float> far = row.subspan(rule.sinks, end - rule.sinks);
  out.best = static_cast<double>(largest(far));
  if (out.best < rule.low) return;
  const double least = rule.share * out.best;
  for (std::size_t i = 0; i < far.size(); ++i) {
    const double paid = static_cast<double>(far[i]);
    if (paid < least) continue;
    out.paid += paid;
    out.positions.push_back(static_cast<policy::Position>(rule.sinks + i));
  }
}

}  // namespace kvsim::sim
