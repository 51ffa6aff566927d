#include "sim/attention/mean_attention.hpp"

#include <algorithm>
#include <string>

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

}  // namespace kvsim::sim
