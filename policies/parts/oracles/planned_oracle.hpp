#pragma once
/// An oracle that plans every eviction before the first generated token arrives, and then follows the plan.
#include <optional>

#include "policies/api/oracle.hpp"
#include "policies/parts/oracles/retention_plan.hpp"

namespace kvsim::policy {

class PlannedOracle : public Oracle {
 public:
  void set_future(const Future& future) final;
  void finish_prompt(const Prompt& /*prompt*/) final {}
  Start start(std::size_t budget) const final;

 protected:
  explicit PlannedOracle(std::size_t horizon) : horizon_(horizon) {}
  /// Comes before any plan and computes what the plans of all budgets share.
  virtual void prepare(const MassAhead& /*future*/) {}

  /// Valid after set_future().
  const MassAhead& future() const { return future_.value(); }
  virtual RetentionPlan plan(const MassAhead& future, std::size_t budget) const = 0;

 private:
  std::size_t horizon_, origin_ = 0;
  std::optional<MassAhead> future_;
};

}  // namespace kvsim::policy
