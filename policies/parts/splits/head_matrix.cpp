#include "policies/parts/splits/head_matrix.hpp"

#include <cmath>

#include "sim/base/error.hpp"

namespace kvsim::policy {
namespace {

void check_row(const std::vector<double>& row, std::size_t layer, std::size_t n_columns,
               std::size_t n_kv_heads, const std::string& file) {
  const std::string where = file + ", layer " + std::to_string(layer);
  if (row.size() != n_columns)
    input_error(
        "has " + std::to_string(row.size()) + " heads, the first layer has " + std::to_string(n_columns),
        where);
  if (row.empty() || (row.size() > 1 && row.size() % n_kv_heads != 0))
    input_error("has " + std::to_string(row.size()) + " heads; the run has " + std::to_string(n_kv_heads) +
                    " KV heads per layer",
                where, "One number per layer, per KV head or per query head.");
  for (const double x : row)
    if (!(x >= 0) || std::isinf(x)) input_error("a number is negative or not finite", where);
}

}  // namespace

std::vector<std::vector<double>> head_matrix(const AllocationRequest& request, const std::string& file) {
  if (!request.tables) bug("no tables were given to read files from", file);
  const std::vector<std::vector<double>> rows = request.tables->matrix(file);
  if (rows.size() != request.n_layers)
    input_error("has " + std::to_string(rows.size()) + " layers, the run " + std::to_string(request.n_layers),
                file);
  std::vector<std::vector<double>> out;
  for (std::size_t layer = 0; layer < rows.size(); ++layer) {
    const std::vector<double>& row = rows[layer];
    check_row(row, layer, rows[0].size(), request.n_kv_heads, file);
    const std::size_t group = row.size() / request.n_kv_heads;
    for (std::size_t head = 0; head < request.n_kv_heads; ++head) {
      const auto first = row.begin() + static_cast<std::ptrdiff_t>(head * group);
      if (row.size() == 1)
        out.push_back(row);
      else
        out.emplace_back(first, first + static_cast<std::ptrdiff_t>(group));
    }
  }
  return out;
}

}  // namespace kvsim::policy
