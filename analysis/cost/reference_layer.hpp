#pragma once
/// The layer that costs of a rule are told of that is not asked about with a model.
#include <string>

#include "policies/api/cost.hpp"

namespace kvsim::analysis {

/// As in Llama-3-8B.
inline constexpr policy::CostShape kReferenceLayer = {.n_layers = 32,
                                                      .query_heads = 32,
                                                      .kv_heads = 8,
                                                      .head_dim = 128,
                                                      .value_dim = 128,
                                                      .hidden = 4096,
                                                      .prompt = 8192,
                                                      .budget = 2048};

/// Attention rows of the prompt that a rule reads: "all", "last 32", "none".
inline std::string prompt_rows_text(const policy::Cost& cost) {
  if (cost.prompt_rows == policy::kAllRows) return "all";
  return cost.prompt_rows == 0 ? "none" : "last " + std::to_string(cost.prompt_rows);
}

}  // namespace kvsim::analysis
