// Codes whose error is made up for: outliers beside them, and factors of low rank for the rest.
#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <unordered_map>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/low_rank.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::gear {
namespace {

constexpr std::uint64_t kFactorBits = 16, kIndexBits = 16;

struct Rule {
  ScalarCode code{};
  std::size_t group = 0;  ///< tokens of a key's group, channels of a value's; 0: the whole block, the vector
  std::size_t buffer = 0;
  double outliers = 0;
  std::size_t rank = 0, buffer_rank = 0, loops = 0;

  static Rule of(const Params& params) {
    Rule out;
    out.code = scalar_code(params, "gear(" + params.text() + ")");
    if (params.is("base", "kivi")) out.group = params.count("group");
    out.buffer = params.count("buffer");
    out.outliers = params.share("outliers");
    out.rank = params.count("rank");
    out.buffer_rank = params.count("buffer_rank");
    out.loops = params.count("loops");
    return out;
  }
  /// On each side of a coding vector.
  std::size_t outliers_of(std::size_t numbers) const {
    return static_cast<std::size_t>(outliers * static_cast<double>(numbers) / 2);
  }
  std::size_t rank_of(std::size_t block, std::size_t tokens, std::size_t dim) const {
    return std::min({block == 0 ? rank : buffer_rank, tokens, dim});
  }
  std::size_t value_groups(std::size_t dim) const { return group == 0 ? 1 : dim / group; }
};

/// What is held of tokens that were coded together: the prompt's, or a full buffer.
struct Block {
  std::size_t coded = 0;           ///< tokens at the time
  std::size_t held = 0;            ///< of them
  std::size_t groups = 0;          ///< of keys, with a token
  std::uint64_t key_outliers = 0;  ///< of the tokens held, in all lanes
};

void add_block(Ledger& ledger, const Rule& rule, const StorageShape& shape, std::size_t number,
               const Block& block) {
  if (block.held == 0) return;
  const std::uint64_t lanes = shape.n_lanes, held = block.held;
  ledger.codes += lanes * held * (shape.key_dim + shape.value_dim) * rule.code.bits;
  ledger.parameters += lanes * (block.groups * shape.key_dim + held * rule.value_groups(shape.value_dim)) *
                       rule.code.group_bits();
  ledger.outliers += (block.key_outliers + lanes * held * 2 * rule.outliers_of(shape.value_dim)) *
                     (shape.element_bits + kIndexBits);
  for (const std::size_t dim : {shape.key_dim, shape.value_dim})
    ledger.tables += lanes * kFactorBits * rule.rank_of(number, block.coded, dim) * (held + dim);
}

/// The places of the `n` least and the `n` largest numbers of a vector; of equals the earlier ones.
std::vector<std::size_t> outlier_places(const std::vector<float>& vector, std::size_t n) {
  std::vector<std::size_t> order(vector.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (n == 0) return {};
  const auto places = static_cast<std::ptrdiff_t>(n);
  std::ranges::partial_sort(order, order.begin() + places, [&](std::size_t i, std::size_t j) {
    return vector[i] != vector[j] ? vector[i] < vector[j] : i < j;
  });
  std::partial_sort(
      order.begin() + places, order.begin() + 2 * places, order.end(),
      [&](std::size_t i, std::size_t j) { return vector[i] != vector[j] ? vector[i] > vector[j] : i < j; });
  order.resize(2 * n);
  return order;
}

/// Codes a vector in groups, but for its outliers: in their place the vector's mean is coded, and they are
/// read back as they came. Returns where they are.
std::vector<std::size_t> code_vector(const ScalarCode& code, std::size_t group, std::size_t outliers,
                                     std::vector<float>& vector) {
  const std::vector<std::size_t> places = outlier_places(vector, outliers);
  std::vector<float> kept;
  double mean = 0;
  for (const float x : vector) mean += static_cast<double>(x) / static_cast<double>(vector.size());
  for (const std::size_t place : places) {
    kept.push_back(vector[place]);
    vector[place] = static_cast<float>(mean);
  }
  for (std::size_t first = 0; first < vector.size(); first += group)
    code.code(vector.data() + first, std::min(group, vector.size() - first));
  for (std::size_t i = 0; i < places.size(); ++i) vector[places[i]] = kept[i];
  return places;
}

class GearCodec final : public Codec {
 public:
  GearCodec(const Rule& rule, const CacheUnit& unit) : rule_(rule), unit_(unit) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    waiting_.assign(rows.positions().begin(), rows.positions().end());
    std::ranges::sort(waiting_);
    code(waiting_.size() / rule_.buffer * rule_.buffer, rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) {
      const Position position = rows.positions()[victim];
      std::erase(waiting_, position);
      const auto found = coded_.find(position);
      if (found == coded_.end()) continue;
      Block& block = blocks_[found->second.block];
      --block.held;
      block.key_outliers -= found->second.key_outliers;
      if (--left_[found->second.group] == 0) --block.groups;
      coded_.erase(found);
    }
  }
  void settle(std::size_t own_slot, CacheRows& rows) override {
    waiting_.push_back(rows.positions()[own_slot]);
    if (waiting_.size() >= rule_.buffer) code(waiting_.size(), rows);
  }
  Ledger ledger(const CacheRows& rows) const override {
    if (rule_.code.exact()) return exact_ledger(rows.shape(), rows.slots());
    Ledger out = exact_ledger(rows.shape(), waiting_.size());
    for (std::size_t i = 0; i < blocks_.size(); ++i) add_block(out, rule_, rows.shape(), i, blocks_[i]);
    return out;
  }

 private:
  struct Coded {
    std::size_t block = 0, group = 0;
    std::uint64_t key_outliers = 0;
  };

  /// Codes the oldest `n` of those that wait as one block.
  void code(std::size_t n, CacheRows& rows) {
    const std::size_t number = blocks_.size();
    blocks_.push_back({n, n, 0, 0});  // the prompt's block is the first even where it has no token
    if (n == 0) return;
    if (!rule_.code.exact()) {
      const std::vector<Position> tokens(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n));
      const std::size_t group = rule_.group == 0 ? n : rule_.group;
      blocks_.back().groups = n / group;
      for (std::size_t i = 0; i < n; ++i) coded_[tokens[i]] = {number, left_.size() + i / group, 0};
      left_.insert(left_.end(), n / group, group);
      for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
        code_keys(lane, number, tokens, rows);
        code_values(lane, number, tokens, rows);
      }
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n));
  }

  void code_keys(std::size_t lane, std::size_t number, const std::vector<Position>& tokens, CacheRows& rows) {
    const std::size_t n = tokens.size(), dim = rows.shape().key_dim;
    DenseMatrix coded(n, dim), error(n, dim);
    std::vector<float> channel(n);
    for (std::size_t c = 0; c < dim; ++c) {
      for (std::size_t i = 0; i < n; ++i) channel[i] = rows.key(lane, rows.slot_of(tokens[i]))[c];
      const std::vector<float> original = channel;
      for (const std::size_t place :
           code_vector(rule_.code, rule_.group == 0 ? n : rule_.group, rule_.outliers_of(n), channel)) {
        ++coded_[tokens[place]].key_outliers;
        ++blocks_[number].key_outliers;
      }
      for (std::size_t i = 0; i < n; ++i) {
        coded.row(i)[c] = channel[i];
        error.row(i)[c] = original[i] - channel[i];
      }
    }
    add_low_rank(error, rule_.rank_of(number, n, dim), rule_.loops, start(lane, number, "keys"), coded);
    for (std::size_t i = 0; i < n; ++i)
      std::copy_n(coded.row(i), dim, rows.key(lane, rows.slot_of(tokens[i])).begin());
  }

  void code_values(std::size_t lane, std::size_t number, const std::vector<Position>& tokens,
                   CacheRows& rows) {
    const std::size_t n = tokens.size(), dim = rows.shape().value_dim;
    DenseMatrix coded(n, dim), error(n, dim);
    for (std::size_t i = 0; i < n; ++i) {
      const std::span<const float> value = rows.value(lane, rows.slot_of(tokens[i]));
      std::vector<float> vector(value.begin(), value.end());
      code_vector(rule_.code, rule_.group == 0 ? dim : rule_.group, rule_.outliers_of(dim), vector);
      for (std::size_t c = 0; c < dim; ++c) {
        coded.row(i)[c] = vector[c];
        error.row(i)[c] = value[c] - vector[c];
      }
    }
    add_low_rank(error, rule_.rank_of(number, n, dim), rule_.loops, start(lane, number, "values"), coded);
    for (std::size_t i = 0; i < n; ++i)
      std::copy_n(coded.row(i), dim, rows.value(lane, rows.slot_of(tokens[i])).begin());
  }

  std::uint64_t start(std::size_t lane, std::size_t number, const char* side) const {
    return combine({unit_.seed, key_of("gear"), key_of(side), static_cast<std::uint64_t>(unit_.layer),
                    static_cast<std::uint64_t>(unit_.first_kv_head) + lane, number});
  }

  Rule rule_;
  CacheUnit unit_;
  std::deque<Position> waiting_;  ///< exact tokens, in the order in which they joined
  std::vector<Block> blocks_;
  std::unordered_map<Position, Coded> coded_;
  std::vector<std::size_t> left_;  ///< tokens held of each group of keys
};

Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  if (rule.code.exact()) return {};
  CodeOps ops = scalar_code_ops(rule.code);
  const double kept = real(std::min(shape.prompt, shape.budget)), buffer = real(rule.buffer);
  const double numbers = real(shape.kv_heads * (shape.head_dim + shape.value_dim));
  if (rule.outliers > 0) {
    // A coding vector is sorted, and its outliers are put back when it is read.
    ops.make += std::log2(std::max(2.0, buffer));
    ops.read += rule.outliers;
  }
  Cost out = coding_cost(shape, ops, ops, Coding::apart, buffer, buffer);
  // The power iteration multiplies the error with each factor once per loop.
  const auto factorised = [&](std::size_t rank, double tokens) {
    if (rank == 0) return Work{};
    const double loops = real(rule.loops);
    return Work{.flops = loops * 4 * real(rank) * tokens * numbers,
                .ops = (ops.read + 1) * tokens * numbers,
                .bytes = (1 + 2 * loops) * tokens * numbers * real(shape.element_bytes),
                .launches = 2 + 4 * loops};
  };
  out.prompt = out.prompt + factorised(rule.rank, kept);
  out.step = out.step + 1 / buffer * factorised(rule.buffer_rank, buffer);
  // A query meets the keys' factors one after the other, and its weights those of the values, in kernels of
  // their own; all tokens count the prompt's rank.
  if (const double rank = real(std::max(rule.rank, rule.buffer_rank)); rank > 0) {
    const double heads = real(shape.query_heads);
    out.step =
        out.step + Work{.flops = 2 * rank * heads * real(shape.head_dim + shape.value_dim), .launches = 4};
    out.step_slot.flops = 4 * rank * heads;
  }
  return out;
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  if (rule.code.exact()) return exact_ledger(shape, held.all());
  const auto block = [&](std::size_t tokens) {
    return Block{tokens, tokens, rule.group == 0 ? 1 : tokens / rule.group,
                 shape.n_lanes * shape.key_dim * 2 * rule.outliers_of(tokens)};
  };
  const std::uint64_t rest = held.kept % rule.buffer + held.appended;
  Ledger out = exact_ledger(shape, rest % rule.buffer);
  add_block(out, rule, shape, 0, block(held.kept - held.kept % rule.buffer));
  for (std::uint64_t i = 1; i <= rest / rule.buffer; ++i) add_block(out, rule, shape, i, block(rule.buffer));
  return out;
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  const Rule rule = Rule::of(params);
  if (rule.group > 0 && static_cast<std::size_t>(unit.value_dim) % rule.group != 0)
    usage_error("groups of " + std::to_string(rule.group) + " do not divide a vector of " +
                    std::to_string(unit.value_dim) + " numbers",
                "gear(" + params.text() + ")", "Choose a group that does.");
  return std::make_unique<PlainRepresentation<GearCodec, Rule, CacheUnit>>(rule, unit);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "gear",
      .summary = "codes in few bits, with outliers beside them and their error as a product of low rank",
      .paper =
          "Kang, Zhang, Kundu, Jeong, Liu, Krishna, Zhao, GEAR: An Efficient KV Cache Compression Recipe for "
          "Near-Lossless Generative Inference of LLM, 2024, https://arxiv.org/abs/2403.05527",
      .details =
          "A coding vector is a channel of the keys, over the tokens that are coded together, or a token's "
          "values. Its least and its largest numbers are stored as they come; in their place its mean is "
          "coded. What remains of the error is stored per KV head as a product of two factors of few "
          "columns, found by power iteration. Keys and values wait exactly until a buffer is full; the "
          "prompt is one block, each full buffer another. outliers=0 is GEAR-L.",
      .departures = {{"authors' code: the number of outliers of a token is used for a channel, too",
                      "the share is of each coding vector, rounded down on each side: a short buffer has "
                      "none in its keys"},
                     {"paper and code: nothing is evicted",
                      "a token that leaves takes its outliers and its row of the factors with it; the other "
                      "factor, and scales, stay as long as a token of theirs"}},
      .params = {bits_param("2"),
                 choice_param(
                     "base", "kivi", {"kivi", "kcvt"},
                     "what shares a scale: groups of tokens or channels; or whole channels and vectors"),
                 count_param("group", "64", {1, 1 << 20},
                             "with base=kivi: tokens of a key's group, channels of a value's"),
                 count_param(
                     "buffer", "64", {1, 1 << 20},
                     "that wait exactly and are coded at once; with base=kivi a multiple of the group",
                     "tokens"),
                 share_param("outliers", "0.02",
                             "of each coding vector, half of them the least and half the largest numbers"),
                 count_param("rank", "4", {0, 1 << 10}, "columns of the prompt's factors; 0: none"),
                 count_param("buffer_rank", "2", {0, 1 << 10}, "columns of a buffer's factors; 0: none"),
                 count_param("loops", "3", {1, 1000}, "of the power iteration")},
      .randomised = true,
      .cost = cost_of,
      .check =
          [](const Params& params) {
            const Rule rule = Rule::of(params);
            if (rule.group > 0 && rule.buffer % rule.group != 0)
              usage_error("the buffer must be a multiple of the group", "gear(" + params.text() + ")");
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::gear
