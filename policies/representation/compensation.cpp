// One key and one value stand for all tokens that have been dropped: RazorAttention's compensation token.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/costs/cost_terms.hpp"

namespace kvsim::policy::compensation {
namespace {

constexpr std::uint64_t kCountBits = 32;

/// Of the lanes that have such a token.
Ledger compensation_ledger(const StorageShape& shape, std::uint64_t tokens, std::uint64_t lanes) {
  Ledger out = exact_ledger(shape, tokens);
  out.codes = lanes * (shape.key_dim + shape.value_dim) * shape.element_bits;
  out.parameters = lanes * kCountBits;
  return out;
}

class CompensationCodec final : public Codec {
 public:
  void begin(const Prompt& prompt, CacheRows& rows) override {
    lanes_.resize(rows.shape().n_lanes);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      const MatrixView keys = prompt.keys(static_cast<int>(lane)),
                       values = prompt.values(static_cast<int>(lane));
      for (std::size_t row = 0; row < prompt.length(); ++row)
        if (!rows.holds(static_cast<Position>(prompt.first() + row)))
          lanes_[lane].add(keys.row(row), values.row(row));
      write(lane, rows);
    }
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> behind) override {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      for (const std::size_t victim : victims)
        if (victim != behind) lanes_[lane].add(rows.key(lane, victim), rows.value(lane, victim));
      write(lane, rows);
    }
  }
  Ledger ledger(const CacheRows& rows) const override {
    std::uint64_t lanes = 0;
    for (const Lane& lane : lanes_) lanes += lane.dropped > 0 ? 1 : 0;
    return compensation_ledger(rows.shape(), rows.slots(), lanes);
  }

 private:
  /// Sums over the dropped tokens.
  struct Lane {
    std::vector<double> key{}, value{};
    std::uint64_t dropped = 0;

    void add(std::span<const float> of_key, std::span<const float> of_value) {
      key.resize(of_key.size());
      value.resize(of_value.size());
      for (std::size_t c = 0; c < key.size(); ++c) key[c] += static_cast<double>(of_key[c]);
      for (std::size_t c = 0; c < value.size(); ++c) value[c] += static_cast<double>(of_value[c]);
      ++dropped;
    }
  };

  void write(std::size_t lane, CacheRows& rows) const {
    const Lane& of = lanes_[lane];
    if (of.dropped == 0) return;
    const auto count = static_cast<double>(of.dropped);
    for (std::size_t c = 0; c < of.key.size(); ++c)
      rows.rest_key(lane)[c] = static_cast<float>(of.key[c] / count);
    for (std::size_t c = 0; c < of.value.size(); ++c)
      rows.rest_value(lane)[c] = static_cast<float>(of.value[c] / count);
    rows.rest_bias(lane) = static_cast<float>(std::log(count));
  }

  std::vector<Lane> lanes_{};
};

/// What is dropped is added to the sums, and a step reads one row more.
Cost compensation_cost(const CostShape& shape) {
  Cost out;
  const std::size_t dropped = shape.prompt - std::min(shape.prompt, shape.budget);
  if (dropped > 0) out.prompt = over_keys(shape, dropped, 1) + over_values(shape, dropped, 1);
  out.leaving = over_keys(shape, 1, 2) + over_values(shape, 1, 2);  // added, and divided by the count
  const double numbers = real(shape.kv_heads * (shape.head_dim + shape.value_dim));
  out.step = {.flops = 2 * real(shape.query_heads * (shape.head_dim + shape.value_dim)),
              .bytes = numbers * real(shape.element_bytes)};
  return out;
}

Ledger ledger_of(const Params&, const StorageShape& shape, LaneTokens held) {
  return compensation_ledger(shape, held.all(), shape.n_lanes);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "compensation",
      .summary = "one key and one value stand for all tokens that the eviction has dropped",
      .paper =
          "Tang, Lin, Lin, Han, Hong, Yao, Wang, RazorAttention: Efficient KV Cache Compression Through "
          "Retrieval Heads, ICLR 2025, https://arxiv.org/abs/2407.15891",
      .details =
          "In each KV head, every query attends one row beside what is held: the mean of the dropped tokens' "
          "keys, as they are rotated, and the mean of their values, as if that token came as often as tokens "
          "were dropped: the logarithm of their number is added to its logit. Tokens that leave while others "
          "are generated join the means. Where nothing has been dropped there is no such row. In layers with "
          "a sliding window it also stands for tokens that the window has left behind. It takes a key, a "
          "value and 32 bits per KV head, not rounded to the format of the trace; the bytes that are known "
          "before a run have it in every KV head.",
      .departures = {{"paper: only heads that are no retrieval heads have such a token",
                      "every KV head that drops something; retrieval_heads never drops in the others"}},
      .needs = {.keys = true, .values = true},
      .cost = [](const Params&, const CostShape& shape) { return compensation_cost(shape); },
      .rule = RepresentationRule{.ledger = ledger_of, .make = made<PlainRepresentation<CompensationCodec>>}};
}

}  // namespace kvsim::policy::compensation
