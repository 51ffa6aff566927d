#pragma once
/// A model that is small enough for calculation by hand.
#include "sim/cost/model.hpp"

namespace kvsim::cost {

/// Two layers of one KV head of 2 + 2 numbers.
inline Model toy_model() {
  Model model;
  model.name = "toy";
  model.layers = 2;
  model.hidden = 4;
  model.ffn = 8;
  model.vocab = 10;
  model.query_heads = 2;
  model.kv_heads = 1;
  model.head_dim = model.value_dim = 2;
  return model;
}

}  // namespace kvsim::cost
