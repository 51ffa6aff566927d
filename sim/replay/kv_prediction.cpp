#include "sim/replay/kv_prediction.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/attention/group_tensors.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/symmetric_matrix.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::sim {
namespace {

using trace::schema::tensor_dim;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr trace::Tensor kTensors[] = {trace::Tensor::key, trace::Tensor::value};

/// [tokens of the prompt, heads * dim], keys before rotation.
Matrix rows_of(const trace::Sequence& sequence, trace::Tensor tensor, std::uint32_t layer) {
  const trace::Model& model = sequence.model();
  const std::size_t dim = tensor_dim(model, tensor), tokens = sequence.prompt_length();
  Matrix out(tokens, model.n_kv_heads * dim);
  std::vector<float> rows(tokens * dim);
  for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
    read_finite(sequence, tensor, layer, head, 0, tokens, rows);
    if (tensor == trace::Tensor::key) unrotate(model.rotary(layer), 0, dim, rows);
    for (std::size_t token = 0; token < tokens; ++token)
      for (std::size_t c = 0; c < dim; ++c)
        out(static_cast<Eigen::Index>(token), static_cast<Eigen::Index>(head * dim + c)) =
            double{rows[token * dim + c]};
  }
  return out;
}

/// The same with a one behind each token's numbers.
Matrix inputs_of(const trace::Sequence& small, trace::Tensor tensor, std::size_t layer) {
  const Matrix rows = rows_of(small, tensor, static_cast<std::uint32_t>(layer));
  Matrix out(rows.rows(), rows.cols() + 1);
  out << rows, Eigen::VectorXd::Ones(rows.rows());
  return out;
}

/// Of the X for which squares X is nearest to products, the shortest.
Matrix shortest_solution(const Matrix& squares, const Matrix& products) {
  const auto n = static_cast<std::size_t>(squares.rows());
  const Eigenvectors found = eigenvectors({squares.data(), n * n}, n);
  const Eigen::Map<const Matrix> vectors(found.vectors.data(), squares.rows(), squares.rows());
  const double least = found.values[0] * static_cast<double>(n) * std::numeric_limits<double>::epsilon();
  Matrix along = vectors * products;
  for (std::size_t i = 0; i < n; ++i)
    along.row(static_cast<Eigen::Index>(i)) *= found.values[i] > least ? 1 / found.values[i] : 0;
  return vectors.transpose() * along;
}

/// [inputs, outputs] of one layer.
Matrix fitted(std::span<const PredictionRun> runs, trace::Tensor tensor, std::uint32_t layer,
              std::size_t from, double ridge) {
  Matrix squares, products;
  double tokens = 0;
  for (const PredictionRun& run : runs) {
    const Matrix x = inputs_of(*run.small, tensor, from), y = rows_of(*run.large, tensor, layer);
    if (squares.size() == 0) {
      squares = Matrix::Zero(x.cols(), x.cols());
      products = Matrix::Zero(x.cols(), y.cols());
    }
    squares.noalias() += x.transpose() * x;
    products.noalias() += x.transpose() * y;
    tokens += static_cast<double>(x.rows());
  }
  for (Eigen::Index i = 0; i + 1 < squares.rows(); ++i) squares(i, i) += ridge * tokens;
  // Every input as if its mean square were one: what follows tells small numbers from none.
  Eigen::VectorXd scale = squares.diagonal().cwiseSqrt();
  for (double& s : scale) s = s > 0 ? 1 / s : 1;
  squares = (scale.asDiagonal() * squares * scale.asDiagonal()).eval();
  products = (scale.asDiagonal() * products).eval();
  return scale.asDiagonal() * shortest_solution(squares, products);
}

void check_same_text(const PredictionRun& run) {
  const auto id = [](const trace::Sequence& sequence, std::uint64_t position) {
    return sequence.source().header().token_id[sequence.token(position)];
  };
  bool same = run.large->prompt_length() == run.small->prompt_length();
  for (std::uint64_t i = 0; same && i < run.large->prompt_length(); ++i)
    same = id(*run.large, i) == id(*run.small, i);
  if (!same)
    input_error("has other tokens in its prompt than " + run.name, run.small_name,
                "Both models read the same text, with one tokenizer.");
}

/// Numbers of the map to one head of `large`.
std::size_t map_numbers(const trace::Model& large, const trace::Model& small, trace::Tensor tensor) {
  return (std::size_t{small.n_kv_heads} * tensor_dim(small, tensor) + 1) * tensor_dim(large, tensor);
}

std::string maker_of(const trace::Model& small, std::span<const std::size_t> from) {
  std::string out = "kv_prediction of " + small.name + ", " + std::to_string(small.n_kv_heads) +
                    " KV heads of " + std::to_string(small.head_dim) + " and " +
                    std::to_string(small.v_head_dim) + ", layers";
  for (const std::size_t layer : from) out += ' ' + std::to_string(layer);
  return out;
}

}  // namespace

std::vector<std::size_t> prediction_layers(std::size_t large, std::size_t small) {
  std::vector<std::size_t> out(large);
  for (std::size_t i = 0; i < large; ++i) {
    if (large < small || large > 2 * small)
      out[i] = i * small / large;
    else
      out[i] = i < 2 * (large - small) ? i / 2 : i - (large - small);
  }
  return out;
}

Calibration fit_prediction(std::span<const PredictionRun> runs, std::span<const std::size_t> from,
                           double ridge, Progress& progress) {
  if (runs.empty()) usage_error("no trace to measure");
  const trace::Model &model = runs[0].large->model(), &small = runs[0].small->model();
  if (model.values_in_keys || small.values_in_keys)
    usage_error("keeps values in its keys, which is no cache of heads", runs[0].name);
  Calibration out = calibration_of(model, maker_of(small, from));
  std::uint64_t tokens = 0;
  for (const PredictionRun& run : runs) {
    check_same_text(run);
    if (maker_of(run.small->model(), from) != out.maker || run.large->model().n_layers != model.n_layers ||
        run.large->model().n_kv_heads != model.n_kv_heads || run.large->model().head_dim != model.head_dim)
      usage_error("is of another model than the first", run.name,
                  "Maps are fitted to runs of one pair of models.");
    out.traces.push_back({run.name, run.large->source().content_sha256(), prompt_digest(*run.large),
                          run.large->prompt_length()});
    tokens += run.large->prompt_length();
  }
  const std::size_t inputs = small.n_kv_heads * std::max(small.head_dim, small.v_head_dim) + 1;
  if (ridge == 0 && tokens <= inputs)
    usage_error("have " + std::to_string(tokens) + " tokens, and a map " + std::to_string(inputs) +
                    " numbers for each of its outputs",
                "the prompts", "Give more runs, or --ridge 0.001.");
  progress.total.store(2 * model.n_layers, std::memory_order_relaxed);
  for (const trace::Tensor tensor : kTensors) {
    const std::size_t dim = tensor_dim(model, tensor);
    Calibration::Table& table = out.tables.emplace_back();
    table.name = tensor == trace::Tensor::key ? "keys" : "values";
    table.numbers = map_numbers(model, small, tensor);
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
      progress.check();
      const Matrix map = fitted(runs, tensor, layer, from[layer], ridge);
      for (std::uint32_t head = 0; head < model.n_kv_heads; ++head)
        for (Eigen::Index row = 0; row < map.rows(); ++row)
          for (std::size_t c = 0; c < dim; ++c)
            table.values.push_back(static_cast<float>(map(row, static_cast<Eigen::Index>(head * dim + c))));
      progress.advance(1);
    }
  }
  return out;
}

std::vector<std::size_t> check_prediction(const Calibration& maps, const PredictionRun& run) {
  const trace::Model &model = run.large->model(), &small = run.small->model();
  const std::string layers = ", layers ";
  const std::size_t begin = maps.maker.rfind(layers);
  if (!maps.maker.starts_with("kv_prediction") || begin == std::string::npos)
    usage_error("holds no maps of one model's cache to another's", "the maps",
                "Make them with kvsim calibrate kv_prediction.");
  if (maps.n_layers != model.n_layers || maps.n_kv_heads != model.n_kv_heads ||
      maps.head_dim != model.head_dim || maps.value_dim != model.v_head_dim)
    usage_error("is of another model than the maps (" + maps.model + ")", run.name);
  std::vector<std::size_t> from;
  for (const std::string_view layer : split(std::string_view(maps.maker).substr(begin + layers.size()), ' '))
    from.push_back(tokens_of(layer).value_or(small.n_layers));
  if (from.size() != maps.n_layers ||
      std::ranges::any_of(from, [&](std::size_t l) { return l >= small.n_layers; }) ||
      maps.maker != maker_of(small, from) || maps.tables.size() != 2 ||
      maps.tables[0].numbers != map_numbers(model, small, trace::Tensor::key) ||
      maps.tables[1].numbers != map_numbers(model, small, trace::Tensor::value))
    usage_error("is of another model than the maps (" + maps.maker + ")", run.small_name);
  check_same_text(run);
  if (measured_on(maps, run.large->source().content_sha256(), prompt_digest(*run.large)) != nullptr)
    usage_error("is one of the runs that the maps were fitted to", run.name, "Apply them to another text.");
  return from;
}

PredictedLayer predict_layer(const Calibration& maps, const PredictionRun& run, std::uint32_t layer,
                             std::size_t from) {
  const trace::Model& model = run.large->model();
  PredictedLayer out;
  for (const trace::Tensor tensor : kTensors) {
    const bool keys = tensor == trace::Tensor::key;
    const std::size_t dim = tensor_dim(model, tensor), tokens = run.large->prompt_length();
    const Matrix x = inputs_of(*run.small, tensor, from);
    const Matrix recorded = rows_of(*run.large, tensor, layer);
    const Calibration::Table& table = maps.tables[keys ? 0 : 1];
    std::vector<float>& to = keys ? out.keys : out.values;
    double wrong = 0, whole = 0;
    for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
      const float* numbers = table.values.data() + (layer * model.n_kv_heads + head) * table.numbers;
      const Matrix map =
          Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
              numbers, x.cols(), static_cast<Eigen::Index>(dim))
              .cast<double>();
      Matrix rows = x * map;
      const auto own =
          recorded.middleCols(static_cast<Eigen::Index>(head * dim), static_cast<Eigen::Index>(dim));
      const Eigen::Index before = rows.rows() - 1;
      wrong += (rows.topRows(before) - own.topRows(before)).squaredNorm();
      whole += own.topRows(before).squaredNorm();
      rows.row(before) = own.row(before);
      std::vector<float> numbers_of(tokens * dim);
      std::transform(rows.data(), rows.data() + rows.size(), numbers_of.begin(),
                     [](double number) { return static_cast<float>(number); });
      if (keys) rotate(model.rotary(layer), 0, dim, numbers_of);
      to.insert(to.end(), numbers_of.begin(), numbers_of.end());
    }
    (keys ? out.key_error : out.value_error) = whole > 0 ? std::sqrt(wrong / whole) : 0;
  }
  return out;
}

}  // namespace kvsim::sim
