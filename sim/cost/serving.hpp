#pragma once
/// How a model is served: the workload, the layout of the cache, the runtime.
#include <cstdint>
#include <optional>

#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/storage.hpp"

namespace kvsim::cost {

/// What happens to the slot of an evicted token.
enum class Vacated {
  reused,  ///< another token takes it: lanes are dense, by slot reuse or by compaction
  left,    ///< it stays a hole: a page is free only when it holds no token, contiguous memory never
};

/// How a lane's slots lie in memory.
struct Layout {
  std::uint64_t stored_kv_heads =
      0;  ///< 0: the model's; the query heads' number when groups are expanded before caching
  Storage storage{};
  std::optional<policy::Part> selection{};  ///< what a step reads of it; none: everything
  std::uint64_t page = 0;                   ///< tokens per page; 0: contiguous
  bool head_pages = false;  ///< every lane has its own page table; otherwise a layer's lanes share one
  bool padded = false;      ///< a layer's lanes are all stored with the length of its longest
  Vacated vacated = Vacated::reused;
  /// Slots of the last step's tokens exist from the start: static caches.
  bool preallocated = false;
  std::uint64_t mask_bytes = 0;   ///< per slot of a lane, in caches that keep a validity mask
  std::uint64_t table_entry = 4;  ///< bytes of a page table's entry
};

enum class Attention {
  flash,  ///< scores never leave the chip
  eager,  ///< score matrices are written and read
};
/// How a policy gets the attention rows of the prompt if it reads all of them.
enum class RowSource {
  written,     ///< the score matrix goes through memory, as published codes do
  recomputed,  ///< Q K^T is computed once more
};

struct Runtime {
  Attention attention = Attention::flash;
  RowSource rows = RowSource::written;
  double cache_traffic =
      1;  ///< times a step moves the cache: 1 in place, 3 where each step copies it (concatenation)
  double host_floor = 0;                ///< s: a step is never faster (eager Python frameworks: 25 to 60 ms)
  std::optional<double> weight_bits{};  ///< per parameter of matrices, scales included; absent: the model's
  std::optional<double>
      embedding_bits{};           ///< per parameter of the embedding and the head; absent: the model's
  std::uint64_t score_bytes = 4;  ///< alive at once per score of eager attention: two in 16 bits (FlexGen); 8
                                  ///< with a softmax in 32 bits between (transformers)
  std::uint64_t activation_bytes = 2;  ///< per element
  std::uint64_t logits_rows =
      0;  ///< rows of logits per sequence in the prefill; 0: the last one only, as servers do
  double row_share =
      0.1;  ///< share of requests that pay for an allocation's own pass over the prompt (XKV samples a tenth)
};

/// Shares of a layer's weights and cache that are in the tiers behind the device and are copied to it
/// whenever the layer is computed. What is on the SSD crosses both links. Embedding, head, norms and the
/// policy's data stay on the device.
struct Offload {
  PerTier<double> weights{};  ///< shares of the blocks' matrices
  PerTier<double> cache{};    ///< shares of keys and values, empty slots included
  /// Tokens of each lane for which the device has room beside its own share, so that what a step reads and
  /// the step before has read need not be copied again.
  std::uint64_t buffer = 0;
  /// Of the tokens that the heads of a lane read together at a step, the share that the step before has read,
  /// too: where a selection chooses, and no replay says it.
  double hit_rate = 0;
  /// A layer's copies begin while the layer before computes, as far as they are known: its weights, a cache
  /// that is read as a whole, and what a selection is guessed to choose, of which this share is right.
  /// Nothing: they begin when the layer does.
  std::optional<double> prefetch{};

  double weights_away() const { return weights.host + weights.ssd; }
  double cache_away() const { return cache.host + cache.ssd; }
  bool any() const { return weights_away() > 0 || cache_away() > 0; }
  bool uses(Tier tier) const { return weights[tier] > 0 || cache[tier] > 0; }
};

struct Serving {
  std::uint64_t prompt = 0, generate = 0, batch = 1;
  std::uint64_t chunk = 0;            ///< tokens of a prefill chunk; 0: the whole prompt at once
  std::uint64_t tensor_parallel = 1;  ///< devices that share every layer
  Layout layout{};
  Runtime runtime{};
  Offload offload{};
};

/// Throws Error(usage) naming the field: zero prompt, batch, degree or size, a chunk above the prompt, head
/// counts that do not divide, shares outside [0, 1]. Every function that takes a Serving calls it.
void check_serving(const Model& model, const Serving& serving);
/// Returns `serving` with what is kept stored as the composition does.
Serving served_with(const Serving& serving, const policy::Composition& composition);
/// Returns Layout::stored_kv_heads, or the model's number where it is 0.
std::uint64_t stored_heads(const Model& model, const Layout& layout);

}  // namespace kvsim::cost
