#include "policies/parts/rows/external_table.hpp"

#include <utility>

#include "sim/base/error.hpp"

namespace kvsim::policy {

std::vector<ParamSpec> external_table_params(const char* dataset) {
  return {
      required_param("file", "HDF5 file with the numbers"),
      word_param("dataset", dataset,
                 "its dataset [n_layers, n_kv_heads, n], a number per position: n is the prompt's length, "
                 "or that of prompt and generated tokens")};
}

ExternalTable::ExternalTable(const Params& params, const CacheUnit& unit)
    : ExternalTable(params.word("file"), params.word("dataset"), unit) {}

ExternalTable::ExternalTable(std::string file, std::string dataset, const CacheUnit& unit)
    : file_(std::move(file)), dataset_(std::move(dataset)), unit_(unit) {}

void ExternalTable::read(std::size_t prompt) {
  if (!unit_.tables) bug("a policy with a file parameter runs where no files can be read");
  rows_.clear();
  for (int lane = 0; lane < unit_.n_lanes; ++lane)
    rows_.push_back(unit_.tables->row(file_, dataset_, unit_.layer, unit_.first_kv_head + lane));
  if (positions() < prompt)
    refuse("covers " + std::to_string(positions()) + " positions, the prompt has " + std::to_string(prompt),
           "It was made for another run.");
}

double ExternalTable::operator()(std::size_t position) const {
  if (position >= positions())
    refuse("covers " + std::to_string(positions()) + " positions, the run has more",
           "Cover the prompt alone, or every generated token too.");
  double sum = 0;
  for (const std::vector<float>& row : rows_) sum += static_cast<double>(row[position]);
  return sum / static_cast<double>(rows_.size());
}

std::vector<Position> ExternalTable::marked(std::size_t first, std::size_t end) const {
  std::vector<Position> out;
  for (std::size_t position = first; position < end; ++position)
    if ((*this)(position) != 0) out.push_back(static_cast<Position>(position - first));
  return out;
}

void ExternalTable::refuse(const std::string& what, const std::string& hint) const {
  input_error(what, file_ + ":/" + dataset_, hint);
}

}  // namespace kvsim::policy
