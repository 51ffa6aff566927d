#pragma once
/// What a prefix cache saves: seconds and operations of prefills on a machine.
#include <cstdint>
#include <vector>

#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"

namespace kvsim::analysis {

struct PrefillWork {
  double seconds = 0, flops = 0;
};

/// Of prefills of one sequence without a policy, by sim/cost.
class PrefillCost {
 public:
  PrefillCost(cost::Model model, cost::Machine machine, cost::Serving serving);

  /// Of a prompt of which the first `cached` tokens are there. At least one token is computed, since the
  /// first answer token follows from the last one of the prompt. Nothing for a prompt without tokens.
  PrefillWork of(std::uint64_t prompt, std::uint64_t cached) const;
  /// Seconds that a block adds to a prefill that reaches its end, by the number of blocks before it: what
  /// policies of cost weigh. A block deep in a prompt takes longer, because its tokens attend to all before
  /// them.
  std::vector<double> seconds_of_blocks(std::uint32_t block_tokens, std::size_t blocks) const;

  const cost::Model& model() const { return model_; }
  const cost::Machine& machine() const { return machine_; }

 private:
  cost::Model model_;
  cost::Machine machine_;
  cost::Serving serving_;
};

}  // namespace kvsim::analysis
