#include "sim/replay/table_files.hpp"

#include <cmath>

#include "sim/base/error.hpp"
#include "sim/replay/matrix_file.hpp"
#include "traces/format/hdf5_input.hpp"

namespace kvsim::sim {
namespace {

hdf5::InputDataset open(const hdf5::InputGroup& group, const std::string& path) {
  const std::size_t slash = path.find('/');
  if (slash == 0) return open(group, path.substr(1));
  if (slash != std::string::npos) return open(group.group(path.substr(0, slash)), path.substr(slash + 1));
  return group.dataset(path, {hdf5::Type::f32, hdf5::Type::f64, hdf5::Type::u8}, 3);
}

template <class Stored>
std::vector<float> values(const hdf5::InputDataset& dataset, std::size_t n) {
  std::vector<Stored> stored(n);
  dataset.read_all(stored.data());
  return {stored.begin(), stored.end()};
}

}  // namespace

TableFiles::TableFiles(const trace::Sequence& sequence)
    : n_layers_(sequence.model().n_layers),
      n_kv_heads_(sequence.model().n_kv_heads),
      length_(sequence.length()) {}

std::vector<float> TableFiles::load(const std::string& file, const std::string& dataset) const {
  const hdf5::InputFile input(file);
  const hdf5::InputDataset table = open(input.root(), dataset);
  const std::uint64_t n = table.dims()[2];
  table.expect({n_layers_, n_kv_heads_, n}, "the run's model (layers, KV heads, positions)");
  if (n == 0 || n > length_)
    input_error("has numbers for " + std::to_string(n) + " positions, the run has " + std::to_string(length_),
                table.where(), "It was made for another run.");
  const std::size_t total = n_layers_ * n_kv_heads_ * n;
  std::vector<float> out = table.type() == hdf5::Type::f32   ? values<float>(table, total)
                           : table.type() == hdf5::Type::f64 ? values<double>(table, total)
                                                             : values<std::uint8_t>(table, total);
  for (std::size_t i = 0; i < total; ++i)
    if (!std::isfinite(out[i]))
      input_error("layer " + std::to_string(i / n / n_kv_heads_) + ", KV head " +
                      std::to_string(i / n % n_kv_heads_) + ", position " + std::to_string(i % n) +
                      " is not a finite f32",
                  table.where());
  return out;
}

std::vector<float> TableFiles::row(std::string_view file, std::string_view dataset, int layer,
                                   int kv_head) const {
  const std::lock_guard lock(mutex_);
  std::vector<float>& table = loaded_[{std::string(file), std::string(dataset)}];
  if (table.empty()) table = load(std::string(file), std::string(dataset));
  const std::size_t n = table.size() / (n_layers_ * n_kv_heads_);
  const std::size_t lane = static_cast<std::size_t>(layer) * n_kv_heads_ + static_cast<std::size_t>(kv_head);
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(lane * n);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

std::vector<std::vector<double>> TableFiles::matrix(std::string_view file) const {
  return read_matrix(std::string(file));
}

}  // namespace kvsim::sim
