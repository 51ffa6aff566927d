#include "policies/parts/rows/reference_rows.hpp"

#include <algorithm>
#include <array>

#include "policies/parts/rows/repeated_prompt.hpp"
#include "sim/base/cap_logits.hpp"
#include "sim/base/error.hpp"
#include "sim/base/exponentials.hpp"
#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy {
namespace {

constexpr std::string_view kOfPrompt = "prompt";

/// Adds X'X, its lower triangle alone, and X'Y. Four rows at a time, because sums are read and written at
/// every turn.
void add_products(std::span<const double> x, std::size_t columns, std::span<const double> y,
                  std::size_t width, std::vector<double>& moments, std::vector<double>& products) {
  constexpr std::size_t kTurn = 4;
  const std::size_t rows = x.size() / columns;
  const std::vector<double> nothing(std::max(columns, width));
  for (std::size_t i = 0; i < rows; i += kTurn) {
    const double *of_x[kTurn], *of_y[kTurn];
    for (std::size_t r = 0; r < kTurn; ++r) {
      of_x[r] = i + r < rows ? x.data() + (i + r) * columns : nothing.data();
      of_y[r] = i + r < rows ? y.data() + (i + r) * width : nothing.data();
    }
    for (std::size_t a = 0; a < columns; ++a) {
      double times[kTurn];
      for (std::size_t r = 0; r < kTurn; ++r) times[r] = of_x[r][a];
      const auto add = [&](double* to, const double* const* from, std::size_t n) {
        for (std::size_t b = 0; b < n; ++b)
          to[b] += (times[0] * from[0][b] + times[1] * from[1][b]) +
                   (times[2] * from[2][b] + times[3] * from[3][b]);
      };
      add(moments.data() + a * columns, of_x, a + 1);
      add(products.data() + a * width, of_y, width);
    }
  }
}

}  // namespace

std::size_t reference_rows(std::size_t prompt, std::size_t most) {
  return most == 0 ? prompt : std::min(prompt, most);
}

ReferenceQueries ReferenceQueries::of(const Params& params) {
  return {params.is("queries", kOfPrompt) ? std::string() : params.word("queries"), params.count("rows")};
}

Needs ReferenceQueries::needs(const Params& params, Needs needs) {
  needs.queries = params.is("queries", kOfPrompt);
  needs.second_pass = needs.repeated_queries = params.is("queries", Tables::kOfRun);
  return needs;
}

std::size_t ReferenceQueries::repeated_at_once(const Params& params) {
  return params.is("queries", kOfPrompt) ? 0 : kRepeatedAtOnce;
}

ReferenceRows::ReferenceRows(const Prompt& prompt, const CacheUnit& unit, int lane,
                             const ReferenceQueries& asked)
    : scale_(prompt.scale()),
      cap_(prompt.cap()),
      keys_(prompt.keys(lane).data, prompt.keys(lane).stride, prompt.length(), prompt.keys(lane).cols) {
  const std::size_t keys = prompt.length(), dim = prompt.keys(lane).cols;
  const auto group = static_cast<std::size_t>(unit.group);
  if (!asked.file.empty()) {
    if (!unit.tables) bug("queries of a second pass are read where no tables are");
    repeated_ =
        unit.tables->of_head(asked.file, std::to_string(prompt.first() + keys) + "/queries", unit.layer,
                             unit.first_kv_head + lane, std::array{group, Tables::kPositions, dim});
  }
  const std::size_t there = asked.file.empty() ? keys : repeated_.size() / group / dim;
  const std::size_t rows = reference_rows(there, asked.most);
  for (std::size_t i = 0; i < rows * group; ++i) {
    const std::size_t at = (i % rows + 1) * there / rows - 1;
    queries_.push_back(asked.file.empty()
                           ? prompt.queries(lane * unit.group + static_cast<int>(i / rows)).row(at).data()
                           : repeated_.data() + (i / rows * there + at) * dim);
  }
}

double ReferenceRows::find(std::size_t i, std::span<double> weights) const {
  thread_local std::vector<float> products;
  products.resize(weights.size());
  keys_.products(queries_[i], weights.size(), products.data());
  for (std::size_t j = 0; j < weights.size(); ++j)
    weights[j] = capped(scale_ * static_cast<double>(products[j]), cap_);
  return exponentials(weights);
}

ParamSpec reference_queries_param() {
  return word_param(
      "queries", std::string(kOfPrompt),
      "prompt: its own; run: of the second pass that kvsim evaluate makes; or the HDF5 file of one");
}

ParamSpec reference_rows_param() {
  return count_param("rows", "0", {0, 1 << 20},
                     "of the queries that are matched, of each query head, spread evenly; 0: all");
}

std::vector<double> ridge_solution(std::span<const double> x, std::size_t columns, std::span<const double> y,
                                   std::size_t width) {
  std::vector<double> moments(columns * columns), out(columns * width);
  add_products(x, columns, y, width, moments, out);
  for (std::size_t c = 0; c < columns; ++c) moments[c * columns + c] += kMatchingRidge;
  cholesky_solve(cholesky_factor(moments, columns, kMatchingRidge), columns, out, width);
  return out;
}

}  // namespace kvsim::policy
