// The keys of the prompt before rotation as a product of low rank, with the chunks that do not fit their mean
// exact.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/outlier_chunks.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy::shadowkv_keys {
namespace {

using Keys = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Numbers = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// The product of two factors of `rank` columns, rounded to 16-bit floats, that is nearest to `keys`: its
/// first singular directions are the first eigenvectors of its moments.
Keys nearest_of_rank(const Keys& keys, std::size_t rank) {
  const Numbers numbers = keys.cast<double>(), moments = numbers.transpose() * numbers;
  const auto width = static_cast<std::size_t>(keys.cols());
  const std::vector<double> vectors = eigenvectors({moments.data(), width * width}, width).vectors;
  const Numbers directions =
      Eigen::Map<const Numbers>(vectors.data(), static_cast<Eigen::Index>(rank), keys.cols()).transpose();
  const auto half = [](double x) { return nearest_half(static_cast<float>(x)); };
  const Keys along = (numbers * directions).unaryExpr(half), back = directions.unaryExpr(half);
  return along * back.transpose();
}

struct Rule {
  std::size_t rank = 160, chunk = 8, outliers = 48, local = 4, align = 1;
  bool whole_layer = true;

  static Rule of(const Params& params) {
    return {params.count("rank"),  params.count("chunk"), params.count("outliers"),
            params.count("local"), params.count("align"), params.is("heads", "layer")};
  }
  /// Chunks of a prompt of n tokens that are not exact for being its last.
  std::size_t chunks(std::size_t n) const {
    const std::size_t all = n / chunk - std::min(n / chunk, local);
    return all - all % align;
  }
  std::size_t outliers_of(std::size_t n) const { return std::min(outliers, chunks(n)); }
  std::size_t rank_of(std::size_t n, std::size_t width) const { return std::min({rank, n, width}); }
};

/// `exact`: keys of single lanes that are stored as they come; `coded`: tokens held of a prompt of `prompt`.
Ledger shadowkv_ledger(const Rule& rule, const StorageShape& shape, std::uint64_t tokens, std::uint64_t exact,
                       std::uint64_t coded, std::size_t prompt) {
  Ledger out;
  out.exact = (shape.n_lanes * tokens * shape.value_dim + exact * shape.key_dim) * shape.element_bits;
  if (coded == 0 || rule.chunks(prompt) == 0) return out;
  const std::size_t blocks = rule.whole_layer ? 1 : shape.n_lanes;
  const std::size_t width = rule.whole_layer ? shape.n_lanes * shape.key_dim : shape.key_dim;
  const std::size_t rank = rule.rank_of(prompt, width);
  out.codes = 16 * blocks * coded * rank;
  out.tables = 16 * blocks * width * rank;
  out.indices = 32 * shape.n_lanes * rule.outliers_of(prompt);
  return out;
}

class ShadowkvCodec final : public Codec {
 public:
  explicit ShadowkvCodec(const Rule& rule) : rule_(rule) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    tokens_ = ascending(rows.positions());
    prompt_ = tokens_.size();
    const std::size_t end = tokens_.empty() ? 0 : static_cast<std::size_t>(tokens_.back()) + 1,
                      lanes = rows.shape().n_lanes;
    exact_.assign(lanes, std::vector<char>(end, 1));
    if (rule_.chunks(prompt_) == rule_.outliers_of(prompt_)) return;  // nothing is read from the factors
    for (std::size_t lane = 0; lane < lanes; ++lane) choose(lane, rows);
    for (std::size_t first = 0; first < lanes; first += rule_.whole_layer ? lanes : 1)
      code(prompt.rotary(), first, rule_.whole_layer ? lanes : 1, rows);
  }
  Ledger ledger(const CacheRows& rows) const override {
    std::uint64_t exact = 0, coded = 0;
    for (const Position position : rows.positions()) {
      const auto at = static_cast<std::size_t>(position);
      coded += from_prompt(at) ? 1 : 0;
      for (const std::vector<char>& lane : exact_) exact += from_prompt(at) ? lane[at] : 1;
    }
    return shadowkv_ledger(rule_, rows.shape(), rows.slots(), exact, coded, prompt_);
  }

 private:
  bool from_prompt(std::size_t position) const { return !exact_.empty() && position < exact_[0].size(); }

  /// Marks the tokens of a lane whose keys are read from the product.
  void choose(std::size_t lane, CacheRows& rows) {
    const std::size_t chunks = rule_.chunks(prompt_);
    const std::vector<char> outlier = outlier_chunks(
        chunks, rule_.chunk, rule_.outliers_of(prompt_),
        [&](std::size_t i) -> std::span<const float> { return rows.key(lane, rows.slot_of(tokens_[i])); });
    for (std::size_t i = 0; i < chunks * rule_.chunk; ++i) {
      if (outlier[i / rule_.chunk] != 0) continue;
      const auto& key = rows.key(lane, rows.slot_of(tokens_[i]));
      exact_[lane][static_cast<std::size_t>(tokens_[i])] =
          std::ranges::all_of(key, [](float x) { return std::isfinite(x); }) ? 0 : 1;
    }
  }

  /// Keys of `n` lanes side by side; what is not finite counts as 0 and is not read from the product.
  void code(const Rotary& rotary, std::size_t first, std::size_t n, CacheRows& rows) {
    const std::size_t dim = rows.shape().key_dim;
    Keys keys(prompt_, n * dim);
    const auto key_of = [&](Keys& of, std::size_t i, std::size_t lane) {
      return std::span<float>(of.data() + (i * n + lane) * dim, dim);
    };
    for (std::size_t i = 0; i < prompt_; ++i)
      for (std::size_t lane = 0; lane < n; ++lane) {
        const std::span<float> key = key_of(keys, i, lane);
        std::ranges::copy(rows.key(first + lane, rows.slot_of(tokens_[i])), key.begin());
        unrotate(rotary, static_cast<std::uint64_t>(tokens_[i]), dim, key);
        for (float& x : key)
          if (!std::isfinite(x)) x = 0;
      }
    Keys read = nearest_of_rank(keys, rule_.rank_of(prompt_, n * dim));
    for (std::size_t i = 0; i < prompt_; ++i)
      for (std::size_t lane = 0; lane < n; ++lane) {
        if (exact_[first + lane][static_cast<std::size_t>(tokens_[i])] != 0) continue;
        const std::span<float> key = key_of(read, i, lane);
        rotate(rotary, static_cast<std::uint64_t>(tokens_[i]), dim, key);
        std::ranges::copy(key, rows.key(first + lane, rows.slot_of(tokens_[i])).begin());
      }
  }

  Rule rule_;
  std::vector<Position> tokens_;          ///< kept of the prompt, ascending
  std::size_t prompt_ = 0;                ///< how many
  std::vector<std::vector<char>> exact_;  ///< per lane and position of the prompt
};

Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  const std::size_t kept = std::min(shape.prompt, shape.budget);
  const std::size_t width = (rule.whole_layer ? shape.kv_heads : 1) * shape.head_dim;
  const double rank = real(rule.rank_of(kept, width)), w = real(width);
  const double numbers = real(kept) * real(shape.kv_heads * shape.head_dim);
  Cost out;
  // The moments, their eigenvectors (9 w^3: Golub and Van Loan, Matrix Computations, 8.3) and the product
  // with those; chunks are compared with their means.
  out.prompt = {
      .flops = 2 * numbers * (w + rank) + 9 * w * w * w * (rule.whole_layer ? 1 : real(shape.kv_heads)),
      .ops = 4 * numbers,
      .bytes = 3 * numbers * real(shape.element_bytes),
      .launches = 4};
  // A key is made from its row of the one factor and all of the other, and rotated.
  out.read_number = {.flops = 2 * rank, .ops = kRotationOps};
  return out;
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t coded = (rule.chunks(held.kept) - rule.outliers_of(held.kept)) * rule.chunk;
  return shadowkv_ledger(rule, shape, held.all(), shape.n_lanes * (held.all() - coded), held.kept, held.kept);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "shadowkv_keys",
      .summary =
          "the prompt's keys before rotation as a product of low rank, chunks that do not fit it exact",
      .paper =
          "Sun, Chang, Bao, Zheng, Zheng, Liu, Dong, Chi, Chen, ShadowKV: KV Cache in Shadows for "
          "High-Throughput Long-Context LLM Inference, ICML 2025, https://arxiv.org/abs/2410.21465",
      .details =
          "How ShadowKV stores keys. Those of what is kept of the prompt, before rotation and of all KV "
          "heads side by side, become a product of two factors of 16-bit floats; what is read is rotated "
          "again. Of each KV head the chunks in which a rotated key is least like the chunk's mean, by "
          "cosine, stay exact, as do the prompt's last chunks and every generated token. Values stay as they "
          "come.",
      .departures = {{"paper and code: values lie in host memory, and a query reads the chunks alone that "
                      "landmarks (means of chunks) point to",
                      "the selection shadowkv reads so, and the preset shadowkv has both; values count as on "
                      "the device"},
                     {"paper and code: nothing is evicted",
                      "chunks are of successive tokens that are kept; a token that leaves takes its row of "
                      "the factors with it"}},
      .params = {count_param("rank", "160", {1, 1 << 20}, "columns of the factors"),
                 count_param("chunk", "8", {1, 1 << 20}, "tokens of a chunk"),
                 count_param("outliers", "48", {0, 1 << 20}, "chunks of each KV head that stay exact"),
                 count_param("local", "4", {0, 1 << 20},
                             "last chunks of the prompt that stay exact, and what is behind them"),
                 count_param("align", "1", {1, 1 << 20},
                             "chunks that do not stay exact for being last are a multiple of this"),
                 choice_param("heads", "layer", {"layer", "head"},
                              "whose keys have factors in common: all KV heads of the layer, or one")},
      .layer_unit = [](const Params& params) { return params.is("heads", "layer"); },
      .cost = cost_of,
      .rule = RepresentationRule{.ledger = ledger_of,
                                 .make = made<PlainRepresentation<ShadowkvCodec, Rule>, Rule>}};
}

}  // namespace kvsim::policy::shadowkv_keys
