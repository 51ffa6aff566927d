#pragma once
/// Calibrations in memory: measured on runs of a test, or written by hand.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "policies/api/composition.hpp"

namespace kvsim::policy::test {

/// Runs of noise, of as many tokens each.
struct NoiseRuns {
  std::size_t runs = 2, tokens = 40, n_lanes = 1, dim = 4;
  std::size_t group = 1;  ///< query heads per lane
  std::uint64_t seed = 11;
  std::vector<float> inv_freq{};
};

class MemoryCalibration final : public Tables {
 public:
  /// By table: numbers per KV head.
  using Heads = std::map<std::string, std::vector<std::vector<float>>, std::less<>>;

  explicit MemoryCalibration(Heads tables) : tables_(std::move(tables)) {}
  /// What the calibrator of `codec` ("kvquant(bits=2)", without file=) measures on runs of noise.
  MemoryCalibration(const std::string& codec, const NoiseRuns& shape);

  std::vector<float> row(std::string_view file, std::string_view dataset, int layer,
                         int kv_head) const override;
  std::vector<std::vector<double>> matrix(std::string_view file) const override;
  std::vector<float> calibrated(const CalibrationRequest& request, std::string_view table, int layer,
                                int kv_head) const override;

  /// The same tables, of a file of any program.
  std::vector<float> of_head(std::string_view file, std::string_view dataset, int layer, int kv_head,
                             std::span<const std::size_t> dims) const override;

  const Heads& tables() const { return tables_; }
  /// Of run, token, lane and channel, as attention uses them.
  float key(std::size_t run, std::size_t token, std::size_t lane, std::size_t channel) const;
  float value(std::size_t run, std::size_t token, std::size_t lane, std::size_t channel) const;
  float query(std::size_t run, std::size_t token, std::size_t query_head, std::size_t channel) const;

 private:
  Heads tables_;
  NoiseRuns shape_{};
  std::vector<std::vector<float>> keys_{}, values_{};  ///< per run: [n_lanes][tokens][dim]
  std::vector<std::vector<float>> queries_{};          ///< per run: [n_lanes * group][tokens][dim]
};

/// The codec with a file: "kvquant(file=x,bits=2)".
std::string with_file(const std::string& codec);

/// Eigenvectors by Jacobi's rotations, one per row, as kvsim::eigenvectors says.
std::vector<double> slow_eigenvectors(std::span<const double> matrix, std::size_t n);

}  // namespace kvsim::policy::test
