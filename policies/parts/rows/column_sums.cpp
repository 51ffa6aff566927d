#include "policies/parts/rows/column_sums.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

/// Rows added per pass over the sums: enough that the cost of reading and writing the sums is negligible.
constexpr std::size_t kSweep = 8;

/// Adds p(first, j), then p(first + 1, j), ... to sums[j]: in the order of single rows, for any kSweep.
void add_rows(const MatrixView& p, std::size_t first, std::size_t count, double* sums) {
  const float* rows = p.data + first * p.stride;
  if (count == kSweep) {
    for (std::size_t j = 0; j < p.cols; ++j) {
      double sum = sums[j];
      for (std::size_t i = 0; i < kSweep; ++i) sum += static_cast<double>(rows[i * p.stride + j]);
      sums[j] = sum;
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t j = 0; j < p.cols; ++j) sums[j] += static_cast<double>(rows[i * p.stride + j]);
}

}  // namespace

LastRows LastRows::of_share(double share) {
  LastRows out(0);
  out.share = share;
  return out;
}

std::size_t LastRows::in(std::size_t prompt) const {
  if (share == 0) return std::min(count, prompt);
  const auto rows = static_cast<std::size_t>(share * static_cast<double>(prompt));
  return std::clamp<std::size_t>(rows, 1, prompt);
}

void ColumnSums::take(int query_head, std::span<const double> sums) {
  if (rows_.in(sums.size()) != sums.size()) bug("sums over some rows cannot be taken from sums over all");
  heads_[static_cast<std::size_t>(query_head)].assign(sums.begin(), sums.end());
  taken_ = true;
}

std::vector<double>& ColumnSums::open(const PromptRows& block) {
  std::vector<double>& sums = heads_[static_cast<std::size_t>(block.query_head)];
  if (sums.empty()) sums.resize(block.prompt_length);
  if (block.p.cols > sums.size()) bug("prompt rows are wider than the prompt");
  return sums;
}

std::size_t ColumnSums::first_row(const PromptRows& block) const {
  if (taken_) return block.p.rows;
  const std::size_t wanted_from = block.prompt_length - rows_.in(block.prompt_length);
  const std::size_t skipped = wanted_from > block.first_query ? wanted_from - block.first_query : 0;
  return std::min(skipped, block.p.rows);
}

void ColumnSums::add(const PromptRows& block) {
  std::vector<double>& sums = open(block);
  for (std::size_t i = first_row(block); i < block.p.rows; i += kSweep)
    add_rows(block.p, i, std::min(kSweep, block.p.rows - i), sums.data());
}

std::vector<double> ColumnSums::mean() const {
  std::vector<double> out(heads_[0].size());
  for (const std::vector<double>& sums : heads_)
    for (std::size_t j = 0; j < out.size(); ++j) out[j] += sums[j];
  for (double& value : out) value /= static_cast<double>(heads_.size());
  return out;
}

}  // namespace kvsim::policy
