#pragma once
/// Prices the work of one device in a forward pass, operation by operation.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "policies/api/cost.hpp"
#include "sim/cost/holding.hpp"
#include "sim/cost/latency.hpp"

namespace kvsim::cost {

/// The resources that an operation needs, and the ceilings it can reach.
struct Demand {
  double flops = 0, ops = 0;  ///< work of matrix and of vector units
  double bytes = 0;
  double compute_ceiling = 1, memory_ceiling = 1;
  double rate = 0;             ///< FLOP/s of matrix units; 0: that of 16 bits
  double overhead = 0;         ///< s, added
  double hidden_overhead = 0;  ///< s of launches that overlap with the work before them: a third limit
};

/// `tokens` tokens of a prompt after `past` ones whose keys and values are there.
struct Chunk {
  std::uint64_t tokens = 0, past = 0;
};

/// What single rows of sequences with common tokens read when these are read once for all of them (Hydragen,
/// Juravsky et al. 2024): one kernel for each level of the tree of their tokens, whose results are merged.
struct SharedRows {
  std::uint64_t tokens = 0;  ///< whose keys and values are read
  std::uint64_t partials =
      0;                     ///< results of one sequence on one level that are written, and read to be merged
  std::uint64_t levels = 1;  ///< kernels of a layer
};

/// Prices the operations of a pass for one of Serving::tensor_parallel devices, all of which do the same.
/// Every number of tokens is per sequence; the batch is Serving's. The references must outlive the object.
class DevicePass {
 public:
  /// Throws what check_serving throws, and Error(usage) when several devices have no link.
  DevicePass(const Model& model, const Machine& machine, const Serving& serving);

  /// Adds the work that does not depend on the cache: projections, MLPs, elementwise operations, all-reduces,
  /// for `tokens` new tokens per sequence; in an engine's step of `sequences` sequences together. Of these
  /// the last `crossing` pass through layers that share a cache; none: all do.
  void dense(PassTime& pass, std::uint64_t tokens, std::uint64_t sequences = 1,
             std::optional<std::uint64_t> crossing = {}) const;
  /// Adds only the products of the last layer's MLP.
  void one_mlp(OpTime& op, std::uint64_t tokens) const;
  /// Adds the logits of `rows` tokens per sequence.
  void head(PassTime& pass, std::uint64_t rows) const;
  /// Adds the attention of `tokens` new rows after `past` cached tokens, causal, all layers; of the last
  /// `crossing` in those that share a cache.
  void prefill_attention(PassTime& pass, const policy::Cost& cost, std::uint64_t tokens, std::uint64_t past,
                         std::uint64_t crossing = 1) const;
  bool shares_cache() const { return crossing_layers_ > 0; }
  /// Adds the same for a policy that never holds more than its budget of the prompt.
  void streamed_attention(PassTime& pass, const policy::Cost& cost, std::uint64_t tokens, std::uint64_t past,
                          const Holding& holding) const;
  /// Adds the attention of `rows` rows over the resident tokens at `step`, which are read once.
  void decode_attention(PassTime& pass, const Holding& holding, const policy::Cost& cost, std::uint64_t step,
                        std::uint64_t rows = 1) const;
  // Attention of an engine's step, whose sequences differ in length. Serving's batch must be 1, and numbers
  // be stored as they come.

  /// Adds the attention of chunks of several prompts, which one kernel computes.
  void chunks_attention(PassTime& pass, std::span<const Chunk> chunks) const;
  /// Adds the attention of one row of each of `sequences` sequences, which attend to `attended` tokens
  /// altogether, to `within_window` in layers that have a window, and read these, or what they share.
  void rows_attention(PassTime& pass, std::uint64_t sequences, std::uint64_t attended,
                      std::uint64_t within_window, const std::optional<SharedRows>& shared = {}) const;
  /// Adds the policy's work when the prompt ends, without its extra passes.
  void prompt_policy(PassTime& pass, const policy::Cost& cost) const;
  void step_policy(PassTime& pass, const Holding& holding, const policy::Cost& cost,
                   std::uint64_t step) const;
  // Time that layers wait for the links, by FlexGen's block schedule (offload.hpp) or one layer ahead. Call
  // these when all computing of the layers is in the pass; each layer takes an equal part of it. A layer's
  // weights, its cache and what it stores cross a link in one copy each; of the cache, each contiguous piece
  // takes Link::operation.

  /// A chunk loads the resident tokens before it and stores those of its own tokens that are kept.
  void prefill_transfers(PassTime& pass, std::uint64_t tokens, std::uint64_t past, const Holding& holding,
                         bool streams) const;
  /// A step loads the tokens it attends to and stores one token per lane.
  void step_transfers(PassTime& pass, const Holding& holding, std::uint64_t step) const;

 private:
  Demand product(double tokens, double in, double out, double weight_bytes) const;
  /// Charges a product with the blocks' matrices, in their precision.
  void charge_block(OpTime& op, Demand product) const;
  void multiply(OpTime& op, const Products& products, double tokens) const;
  /// Adds the router, the experts that it picks and what all tokens share. The experts that are read are the
  /// expected number when every token picks its `used` of `count` at random: count (1 - (1 -
  /// used/count)^tokens).
  void experts(OpTime& op, double tokens) const;
  void mlp(OpTime& op, model::LayerKind::Mlp mlp, std::uint64_t tokens) const;
  /// Returns the elements that element-wise operations of a layer read and write per token.
  double elements(const model::LayerKind& kind) const;
  /// Adds keys and values that several layers share; `appended`: bytes that they add to a lane.
  void shared_cache(PassTime& pass, double tokens, double appended) const;
  /// Returns the start time of attention; it is shorter for a layer's cache that fits the device's last cache
  /// level.
  double attention_start(double cache_bytes) const;
  Demand chunk_attention(const policy::Cost& cost, std::uint64_t tokens, std::uint64_t past,
                         std::uint64_t window, bool chunked) const;
  /// The attention of one row per sequence in one layer. `pairs`: of queries and keys; `moved`: bytes of
  /// keys and values, `cache` with what a selection reads of its index, `index`.
  Demand rows_demand(double sequences, double pairs, double moved, double cache, double index) const;
  Demand score_rows(const policy::Cost& cost) const;
  Demand demand(const policy::Work& work, double times) const;
  void charge(OpTime& op, const Demand& demand, double times) const;
  double lane_bytes(const LaneTokens& tokens) const;
  /// Adds to attention the arithmetic of reading what `numbers` codes stand for.
  static void decode_numbers(Demand& attention, const policy::Cost& cost, double numbers);
  /// What one step reads of one sequence's layer.
  struct Read {
    double slots = 0, bytes = 0;  ///< slots: attended by each query head of a lane
    double coded = 0;             ///< numbers that are not stored as they come
    double index_bytes = 0;       ///< of a selection's index
    double lane_tokens = 0;       ///< that the heads of a lane read together, mean over lanes
    double run_tokens = 0;        ///< LayerReads::run_tokens
    bool first = false;           ///< whether it is of the model's first layer
  };
  Read held(const EqualLayers& group, std::uint64_t step) const;
  /// Of each layer of a group where a selection chooses, which layers may do differently; else one for all.
  std::vector<Read> reads_of(const Holding& holding, const EqualLayers& group, std::uint64_t step) const;
  /// What the links carry in one layer.
  struct Copies {
    PerTier<LinkTime> links{};

    /// Both links carry what comes from the SSD, at the same time.
    double seconds() const { return std::max(links.host.seconds, links.ssd.seconds); }
    void add(const Copies& other);
  };
  /// What a layer waits for.
  struct Block {
    double seconds = 0;  ///< with the layer's computing
    Copies loads{};
    double loading = 0;
    double asked = 0, found = 0;
  };
  /// Returns the copies of shares of `bytes`, which all tiers hold in `pieces` contiguous pieces.
  Copies copies(const PerTier<double>& shares, double bytes, double pieces) const;
  /// Returns the copies of the tiers' shares of one layer's matrices.
  Copies weights_load() const;
  /// Returns the copies of the tiers' shares of `tokens(EqualLanes)` in every lane of one layer, for the
  /// batch.
  template <class Tokens>
  Copies cache_move(const EqualLayers& group, Tokens tokens) const;
  /// Returns the share of what a layer reads of the tiers that the device's buffer holds.
  double found(const EqualLayers& group, const Read& read) const;
  /// Returns the contiguous pieces of what one sequence's layer reads; pages are not beside each other.
  double pieces(const Read& read) const;
  Block step_block_of(const EqualLayers& group, const Read& read, double store, double compute) const;
  template <class BlockOf>
  void let_wait(PassTime& pass, const Holding& holding, BlockOf block) const;

  const Model& model_;
  const Machine& machine_;
  const Serving& serving_;
  double batch_, activation_, product_rate_, matrix_bytes_, expert_bytes_, head_bytes_;
  Model local_;  ///< the device's share
  std::vector<model::LayerKind> kinds_;
  double cached_layers_, crossing_layers_;
  double readers_;  ///< layers that read each cached one
  std::vector<WindowRun> windows_{};
  // Shapes of one device.
  double share_;  ///< share of the work that is split by query head
  double query_heads_, kv_heads_, vocab_, block_parameters_;
  double stored_heads_, stored_share_;  ///< lanes of a layer, and their share of all its lanes
};

}  // namespace kvsim::cost
