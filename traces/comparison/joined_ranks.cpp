#include "traces/comparison/joined_ranks.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "traces/comparison/header_comparison.hpp"

namespace kvsim::trace {
namespace {

/// "1 of 4", or "1 of 4, each KV head on 2".
struct RankText {
  unsigned rank = 0, ranks = 0, copies = 1;
};

RankText rank_of(const Source& source) {
  RankText out;
  const std::string& text = source.header().capture.rank;
  if (text.empty()) return out;
  const int found =
      std::sscanf(text.c_str(), "%u of %u, each KV head on %u", &out.rank, &out.ranks, &out.copies);
  std::string read = std::to_string(out.rank) + " of " + std::to_string(out.ranks);
  if (found == 3) read += ", each KV head on " + std::to_string(out.copies);
  if (read != text || out.rank >= out.ranks || out.copies == 0 || out.ranks % out.copies != 0)
    input_error("says that it is rank " + in_quotes(text), source.name());
  return out;
}

/// What headers of one run differ in; empty: nothing.
std::string difference(Header a, Header b) {
  a.model.sinks.clear();  // of each head
  b.model.sinks.clear();
  const HeaderComparison compared = compare_headers(a, b);
  if (!compared.differences.empty())
    return compared.differences[0].part + ": " + compared.differences[0].detail;
  if (a.elem != b.elem) return "types of tensors";
  if (a.output_elem != b.output_elem) return "output weights";
  if (a.query_token != b.query_token) return "tokens whose queries are stored";
  if (a.counted_tokens != b.counted_tokens) return "tokens of column statistics";
  return "";
}

}  // namespace

JoinedRanks::JoinedRanks(std::vector<std::unique_ptr<Source>> ranks) : ranks_(std::move(ranks)) {
  if (ranks_.size() < 2) usage_error("one trace alone has nothing to be joined with", "trace join");
  order();
  require_one_run();
  header_ = ranks_.front()->header();
  header_.file_uuid.clear();
  header_.capture.rank.clear();
  Model& model = header_.model;
  const auto count = static_cast<std::uint32_t>(ranks_.size());
  model.n_q_heads *= count;
  model.n_kv_heads *= count / copies_;
  if (model.sinks.empty()) return;
  model.sinks.clear();
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
    for (const std::unique_ptr<Source>& rank : ranks_)
      for (std::uint32_t head = 0; head < part().n_q_heads; ++head)
        model.sinks.push_back(rank->header().model.sink(layer, head));
}

void JoinedRanks::order() {
  const RankText first = rank_of(*ranks_.front());
  for (const std::unique_ptr<Source>& source : ranks_) {
    const RankText said = rank_of(*source);
    if (said.ranks != first.ranks || said.copies != first.copies)
      input_error("is of a run of other ranks than " + ranks_.front()->name(), source->name());
  }
  if (first.ranks == 0) return;
  if (first.ranks != ranks_.size())
    input_error("is one of " + std::to_string(first.ranks) + " ranks, and " + std::to_string(ranks_.size()) +
                    " traces are given",
                ranks_.front()->name());
  const auto number = [](const std::unique_ptr<Source>& source) { return rank_of(*source).rank; };
  std::ranges::sort(ranks_, {}, number);
  if (const auto twice = std::ranges::adjacent_find(ranks_, {}, number); twice != ranks_.end())
    input_error("is rank " + std::to_string(number(*twice)) + ", as " + (*std::next(twice))->name() + " is",
                (*twice)->name());
  copies_ = first.copies;
  if (copies_ > 1 && part().n_kv_heads != 1)
    input_error("shares its KV heads with other ranks and has several", ranks_.front()->name());
}

void JoinedRanks::require_one_run() const {
  for (const std::unique_ptr<Source>& rank : ranks_) {
    if (!rank->header().attention_token.empty())
      input_error("has attention rows, which are not joined", rank->name(),
                  "Ranks are joined by their queries, keys and values.");
    if (const std::string found = difference(ranks_.front()->header(), rank->header()); !found.empty())
      input_error("is of another run than " + ranks_.front()->name() + ": " + found, rank->name());
  }
}

void JoinedRanks::read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
                       std::uint64_t n_rows, std::span<float> out) const {
  const bool query = tensor == Tensor::query;
  const std::uint32_t heads = query ? part().n_q_heads : part().n_kv_heads;
  ranks_.at(head / heads * (query ? 1 : copies_))->read(tensor, layer, head % heads, first_row, n_rows, out);
}

void JoinedRanks::read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                                      std::span<float> out) const {
  const std::uint32_t heads = part().n_q_heads;
  ranks_.at(query_head / heads)->read_output_weights(layer, query_head % heads, out);
}

void JoinedRanks::read_column_statistics(std::uint32_t layer, std::uint32_t query_head, std::span<float> sum,
                                         std::span<float> sum_squares) const {
  const std::uint32_t heads = part().n_q_heads;
  ranks_.at(query_head / heads)->read_column_statistics(layer, query_head % heads, sum, sum_squares);
}

void JoinedRanks::require_unchanged() const {
  for (const std::unique_ptr<Source>& rank : ranks_) rank->require_unchanged();
}

}  // namespace kvsim::trace
