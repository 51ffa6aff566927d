// Values, and a number in each logit, by which what is kept answers as the whole prompt does.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/reference_rows.hpp"

namespace kvsim::policy::fitted_values {
namespace {

struct Rule {
  ReferenceQueries queries{};
  std::size_t steps = 2;
  double least = 0, most = 0;  ///< of the weights, the exponentials of the biases

  static Rule of(const Params& params) {
    return {ReferenceQueries::of(params), params.count("steps"), std::exp(params.real("least")),
            std::exp(params.real("most"))};
  }
};

using Numbers = std::vector<double>;

/// [rows, columns], by rows.
Numbers product(std::span<const double> matrix, std::size_t columns, std::span<const double> vector) {
  Numbers out(matrix.size() / columns);
  for (std::size_t i = 0; i < out.size(); ++i)
    for (std::size_t c = 0; c < columns; ++c) out[i] += matrix[i * columns + c] * vector[c];
  return out;
}
Numbers transposed_product(std::span<const double> matrix, std::size_t columns,
                           std::span<const double> vector) {
  Numbers out(columns);
  for (std::size_t i = 0; i < vector.size(); ++i)
    for (std::size_t c = 0; c < columns; ++c) out[c] += matrix[i * columns + c] * vector[i];
  return out;
}
double length(std::span<const double> vector) {
  double squares = 0;
  for (const double x : vector) squares += x * x;
  return std::sqrt(squares);
}

/// The largest singular value, by three turns of the power iteration. The matrix has no negative number, so
/// that ones are no bad start.
double norm_of(std::span<const double> matrix, std::size_t columns) {
  Numbers along(columns, 1.0);
  double norm = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const double before = length(along);
    for (double& x : along) x /= before;
    const Numbers image = product(matrix, columns, along);
    norm = length(image);
    along = transposed_product(matrix, columns, image);
  }
  return norm;
}

class FittedCodec final : public Codec {
 public:
  FittedCodec(const Rule& rule, const CacheUnit& unit) : rule_(rule), unit_(unit) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    if (rows.slots() == prompt.length()) return;
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) fit(prompt, lane, rows);
  }
  Ledger ledger(const CacheRows& rows) const override { return fitted_ledger(rows.shape(), rows.slots()); }

  static Ledger fitted_ledger(const StorageShape& shape, std::uint64_t tokens) {
    Ledger out = exact_ledger(shape, tokens);
    out.parameters = shape.n_lanes * tokens * shape.element_bits;
    return out;
  }

 private:
  void fit(const Prompt& prompt, std::size_t lane, CacheRows& rows) const {
    const ReferenceRows whole(prompt, unit_, static_cast<int>(lane), rule_.queries);
    const std::size_t n = whole.rows(), held = rows.slots(), dim = rows.shape().value_dim;
    const MatrixView values = prompt.values(static_cast<int>(lane));
    const DotRows components(values.data, 1, dim, prompt.length(), values.stride);
    Numbers part, outputs(n * dim), sums, row(prompt.length());  // part: [n, held]
    part.reserve(n * held);
    for (std::size_t i = 0; i < n; ++i) {
      sums.push_back(whole.find(i, row));
      for (const Position position : rows.positions())
        part.push_back(row[static_cast<std::size_t>(position) - prompt.first()]);
      for (double& weight : row) weight /= sums[i];
      components.products(row.data(), dim, outputs.data() + i * dim);
    }
    const Numbers weights = weights_of(part, held, sums);
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t s = 0; s < held; ++s) sum += part[i * held + s] *= weights[s];
      for (std::size_t s = 0; s < held && sum > 0; ++s) part[i * held + s] /= sum;
    }
    const Numbers fitted = ridge_solution(part, held, outputs, dim);
    for (std::size_t s = 0; s < held; ++s) {
      rows.bias(lane, s) = static_cast<float>(std::log(weights[s]));
      for (std::size_t c = 0; c < dim; ++c) rows.value(lane, s)[c] = static_cast<float>(fitted[s * dim + c]);
    }
  }

  /// Those by which what is held adds up to the sums of all.
  Numbers weights_of(const Numbers& part, std::size_t held, const Numbers& sums) const {
    Numbers out = ridge_solution(part, held, sums, 1);
    const auto bound = [&] {
      for (double& x : out) x = std::clamp(x, rule_.least, rule_.most);
    };
    bound();
    const double norm = rule_.steps > 0 ? norm_of(part, held) : 0;
    for (std::size_t step = 0; step < rule_.steps && norm > 0; ++step) {
      Numbers rest = product(part, held, out);
      for (std::size_t i = 0; i < rest.size(); ++i) rest[i] -= sums[i];
      const Numbers slope = transposed_product(part, held, rest);
      for (std::size_t s = 0; s < held; ++s) out[s] -= slope[s] / (norm * norm);
      bound();
    }
    return out;
  }

  Rule rule_;
  CacheUnit unit_;
};

class FittedValues final : public Representation {
 public:
  FittedValues(const Rule& rule, const CacheUnit& unit) : rule_(rule), unit_(unit) {}
  std::unique_ptr<Codec> codec() const override { return std::make_unique<FittedCodec>(rule_, unit_); }

 private:
  Rule rule_;
  CacheUnit unit_;
};

/// Attention of the rows on all keys and over all values, moments of what is held, once for the biases and
/// once for the values, and their factors.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  Cost out;
  out.repeated_at_once = ReferenceQueries::repeated_at_once(params);
  out.step_slot.ops = real(shape.query_heads);  // the bias
  if (shape.prompt <= shape.budget) return out;
  const double rows = real(reference_rows(shape.prompt, rule.queries.most)) * real(shape.query_heads),
               held = real(shape.budget), width = real(shape.value_dim);
  out.prompt = over_keys(shape, shape.prompt, 0) + over_values(shape, shape.prompt, 0) +
               Work{.flops = rows * (2 * real(shape.prompt) * (real(shape.head_dim) + width) +
                                     2 * held * (held + width)) +
                             2 * real(shape.kv_heads) * held * held * (held / 3 + width),
                    .ops = 5 * rows * real(shape.prompt),
                    .launches = 4};
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "fitted_values",
      .summary = "values, and a number in each logit, by which what is kept answers as the whole prompt does",
      .paper =
          "Zweiger, Fu, Guo, Kim, Fast KV Compaction via Attention Matching, arXiv 2026, "
          "https://arxiv.org/abs/2602.16284",
      .details =
          "What Attention Matching makes of the keys that are kept, once, when the prompt is cut. Queries of the "
          "prompt, or of the model repeating it (queries=), of all query heads of a KV head together, attend every "
          "key of the prompt, later ones too. First, by "
          "least squares, weights with which the exponentials of the kept keys' logits add up to those of all; "
          "they are clamped, and `steps` of projected gradient descent follow. Their logarithms are added to the "
          "logits. Then, by least squares, the values with which what is kept gives the output of all. Where "
          "everything is kept, and of tokens that come later, nothing is fitted. A sink of the model takes no "
          "part. Bytes have a bias per token and KV head, as wide as a number of the cache; neither biases nor "
          "values are rounded to that width.",
      .departures =
          {{"paper: queries of the model repeating the text and answering questions that it makes up; "
            "the code can take those of the prompt instead (context prefill)",
            "those of the prompt; queries=run: of the model repeating it; no questions"},
           {"authors' code: draws some of the queries at random", "rows= takes them spread evenly"},
           {"authors' code: least squares without a ridge, 1e-6 where that fails", "1e-6 always"},
           {"authors' code: the norm that the steps divide by comes of a random start", "of ones"},
           {"authors' code: can take the queries of a layer from a run over layers before that are "
            "already compacted (on policy)",
            "always those of the recorded run"},
           {"authors' code: a chat template's tokens stay as they are", "they are fitted"}},
      .params = {reference_queries_param(), reference_rows_param(),
                 real_param("least", "-3", {-100, 0}, "bias"),
                 real_param("most", "3", {0, 100}, "bias; with least=0,most=0 logits stay as they are"),
                 count_param("steps", "2", {0, 1000}, "of gradient descent after the clamped solution")},
      .needs = {.keys = true, .values = true, .queries = true},
      .needs_of =
          [](const Params& params) {
            return ReferenceQueries::needs(params, {.keys = true, .values = true});
          },
      .cost = cost_of,
      .rule = RepresentationRule{
          .ledger = [](const Params&, const StorageShape& shape,
                       LaneTokens held) { return FittedCodec::fitted_ledger(shape, held.all()); },
          .make = made<FittedValues, Rule>}};
}

}  // namespace kvsim::policy::fitted_values
