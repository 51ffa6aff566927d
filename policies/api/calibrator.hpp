#pragma once
/// Defines what a policy learns of other runs before it is used on one. A Calibrator
/// measures one layer; its tables go into a file, which a parameter of the policy names (Tables::calibrated).
#include <string>
#include <vector>

#include "sim/base/matrix_view.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy {

/// One layer of one run: prompt and generated tokens.
struct LayerTokens {
  std::vector<MatrixView> keys{},
      values{};                       ///< per KV head, [tokens, dim]; keys after RoPE, row i at position i
  std::vector<MatrixView> queries{};  ///< per query head, where the calibrator needs them; after RoPE
  Rotary rotary{};
};

/// Numbers that were measured for each KV head of a layer, equally many of each.
struct CalibratedTable {
  std::string name{};
  std::vector<std::vector<float>> of_head{};
};

class Calibrator {
 public:
  virtual ~Calibrator() = default;
  virtual bool needs_queries() const { return false; }
  /// Comes once per run.
  virtual void observe(const LayerTokens& tokens) = 0;
  /// Comes last, and once. Throws Error(input) when the runs hold too little to measure.
  virtual std::vector<CalibratedTable> tables() = 0;
};

}  // namespace kvsim::policy
