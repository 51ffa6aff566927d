#pragma once
/// Memory that a model, its cache and its policy take on one device, in bytes.
#include <cstdint>

#include "policies/api/cost.hpp"
#include "sim/cost/holding.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"

namespace kvsim::cost {

/// Bytes on one device by class, for the whole batch.
struct Memory {
  std::uint64_t weights = 0;
  std::uint64_t keys_values = 0;  ///< of the resident tokens as they are stored: codes, scales, exact windows
  std::uint64_t padding = 0;      ///< slots without a token: shorter lanes, the rest of last pages
  std::uint64_t metadata = 0;     ///< the policy's metadata, and masks
  std::uint64_t page_tables = 0;
  std::uint64_t states = 0;         ///< of layers that hold a state of fixed size
  std::uint64_t shared_tables = 0;  ///< of a representation, once for all sequences
  std::uint64_t activations = 0;  ///< largest live set of a forward pass, score matrices and logits included
  std::uint64_t scratch = 0;      ///< the policy's scratch while it compresses a layer
  std::uint64_t reserved = 0;     ///< reserved by the machine's runtime
  PerTier<std::uint64_t> away{};  ///< in the tiers behind it, for this device; not part of the total

  std::uint64_t cache() const;  ///< payload, padding, metadata, page tables, shared tables, states
  std::uint64_t total() const;
};

/// Returns the bytes of the weights on one of `tensor_parallel` devices.
std::uint64_t weight_bytes(const Model& model, const Runtime& runtime, std::uint64_t tensor_parallel);

/// Returns the keys and values of b sequences of n tokens of a prompt without eviction, ignoring any window,
/// on all devices together: b * L * Hs lanes of them, of L layers that attend, as they are stored.
std::uint64_t full_cache_bytes(const Model& model, const Layout& layout, std::uint64_t tokens,
                               std::uint64_t batch);

/// Bytes of one sequence's cache on one device.
struct SequenceBytes {
  std::uint64_t stored = 0;  ///< keys and values as they are stored, and states
  std::uint64_t empty = 0;   ///< slots without a token: the rest of last pages

  std::uint64_t all() const { return stored + empty; }
};
/// Returns what a sequence of these tokens holds that evicts nothing (full_holding): keys, values, padding
/// and states of memory_at(). Of `serving` the layout and the devices count.
SequenceBytes sequence_bytes(const Model& model, const Serving& serving, const LaneTokens& tokens);

// Where evicted tokens leave holes (Vacated::left), the pages in use are the expected number when the evicted
// tokens are drawn at random; lanes that share pages are taken as independent unless they hold the same
// tokens.

/// Returns the memory after `step` generated tokens, between two steps (activations of a decode step
/// included).
Memory memory_at(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                 const policy::Cost& cost, std::uint64_t step);

/// Returns the memory at the moment of the prefill that needs most. Evictions that score when the prompt ends
/// hold the whole prompt of the current layer and the budgets of the layers before it; one that has the
/// prompt repeated, all layers' prompt and what of it is repeated at once; a policy that streams its prompt
/// never holds more than its budget; one that never evicts holds all tokens. Under a sliding window a chunk
/// finds only the window's tokens in the cache, and the current layer holds its whole chunk beside them.
Memory prefill_peak(const Model& model, const Machine& machine, const Serving& serving,
                    const Holding& holding, const policy::Cost& cost);

// Where weights or cache are offloaded, `weights` and `keys_values` are the part that stays on the device,
// and room for two layers of the rest: one being computed, one being copied; `keys_values` has the buffer of
// every lane, too (Offload::buffer).

// All throw Error(usage) when a size does not fit 64 bits.

}  // namespace kvsim::cost
