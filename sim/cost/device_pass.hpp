#pragma once
/// What one device does in a forward pass, operation by operation.
#include <cstdint>

#include "policies/api/cost.hpp"
#include "sim/cost/holding.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::cost {

/// What an operation needs, and the ceilings it can reach.
struct Demand {
  double flops = 0, ops = 0;  ///< of matrix and of vector units
  double bytes = 0;
  double compute_ceiling = 1, memory_ceiling = 1;
  double overhead = 0;         ///< s, added
  double hidden_overhead = 0;  ///< s, of launches that overlap with the work before them: a third limit
};

/// Prices the operations of a pass for one of Serving::tensor_parallel devices, all of which do the same.
/// Every number of tokens is of one sequence; the batch is Serving's. References must outlive it.
class DevicePass {
 public:
  /// Throws what check_serving throws, and Error(usage) when several devices have no link.
  DevicePass(const Model& model, const Machine& machine, const Serving& serving);

  /// Everything that does not depend on what is cached: projections, MLPs, elementwise operations,
  /// all-reduces, for `tokens` new tokens per sequence.
  void dense(PassTime& pass, std::uint64_t tokens) const;
  /// The MLPs' products alone, of one layer.
  void one_mlp(OpTime& op, std::uint64_t tokens) const;
  /// Logits of `rows` tokens per sequence.
  void head(PassTime& pass, std::uint64_t rows) const;
  /// `tokens` new rows after `past` cached tokens, causal, all layers.
  void prefill_attention(PassTime& pass, std::uint64_t tokens, std::uint64_t past) const;
  /// The same for a policy that holds no more than its budget of the prompt at any time.
  void streamed_attention(PassTime& pass, std::uint64_t tokens, std::uint64_t past,
                          const Holding& holding) const;
  /// One row against what is held at `step`.
  void decode_attention(PassTime& pass, const Holding& holding, std::uint64_t step) const;
  /// What the policy does when the prompt ends, without passes of its own.
  void prompt_policy(PassTime& pass, const policy::Cost& cost) const;
  void step_policy(PassTime& pass, const Holding& holding, const policy::Cost& cost,
                   std::uint64_t step) const;
  // What layers wait for the host link, by FlexGen's block schedule (offload.hpp): to be asked when all that
  // layers compute is in the pass; each takes an equal part of it. A layer's weights, its cache and what it
  // stores cross the link in one copy each.

  /// A chunk loads what is held of the tokens before it and stores what will be held of its own.
  void prefill_transfers(PassTime& pass, std::uint64_t tokens, std::uint64_t past, const Holding& holding,
                         bool streams) const;
  /// A step loads what it attends to and stores one token per lane.
  void step_transfers(PassTime& pass, const Holding& holding, std::uint64_t step) const;

 private:
  Demand product(double tokens, double in, double out, double weight_bytes) const;
  /// Kernels start faster on a layer's cache that the last cache level of the device holds.
  double attention_start(double cache_bytes) const;
  Demand chunk_attention(std::uint64_t tokens, std::uint64_t past, std::uint64_t window) const;
  Demand score_rows(const policy::Cost& cost) const;
  Demand demand(const policy::Work& work, double times) const;
  void charge(OpTime& op, const Demand& demand, double times) const;
  double lane_bytes(std::uint64_t tokens) const;
  /// Of one sequence's layer by one step.
  struct Read {
    double slots = 0, bytes = 0;
  };
  Read layer_read(const EqualLayers& group, std::uint64_t step) const;
  double link_time(double bytes) const;
  /// One layer's matrices, as far as the host has them.
  double weights_load() const;
  /// Of one layer, for the batch: the host's share of `tokens(EqualLanes)` in every lane.
  template <class Tokens>
  double cache_move(const EqualLayers& group, Tokens tokens) const;
  template <class Block>
  void let_wait(PassTime& pass, const Holding& holding, Block block) const;

  const Model& model_;
  const Machine& machine_;
  const Serving& serving_;
  double batch_, activation_, matrix_bytes_, head_bytes_;
  // Of one device.
  double share_;  ///< of work that is split by query head
  double query_heads_, kv_heads_, ffn_, vocab_, block_parameters_;
  double stored_heads_, stored_share_;  ///< lanes of a layer, and their share of all its lanes
};

}  // namespace kvsim::cost
