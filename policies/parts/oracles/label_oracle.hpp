#pragma once
/// An oracle that labels every position once, by the attention it is going to receive, and keeps the highest
/// labels, as a predictor trained on such labels would do if it were always right.
#include <vector>

#include "policies/api/oracle.hpp"
#include "policies/api/spec.hpp"

namespace kvsim::policy {

/// `generated`: whether generated tokens are only appended, or compete by their labels for a full cache.
ParamSpec generated_param(const char* fallback);
/// OracleRule::appends of a policy with this parameter.
bool label_oracle_appends(const Params& params);

class LabelOracle : public Oracle {
 public:
  void set_future(const Future& future) final;
  void finish_prompt(const Prompt& /*prompt*/) final {}
  Start start(std::size_t budget) const final;

 protected:
  /// Reads the parameters `generated` and `horizon`.
  explicit LabelOracle(const Params& params);

  /// Returns one label per column of the future, prompt and generated; never NaN. Of equal labels the oldest
  /// position is evicted first.
  virtual std::vector<double> label(const Future& future, std::size_t horizon) = 0;

 private:
  std::size_t horizon_, prompt_ = 0, origin_ = 0;
  bool evicts_;
  std::vector<double> labels_;
};

}  // namespace kvsim::policy
