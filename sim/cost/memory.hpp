#pragma once
/// Bytes: what a model, its cache and its policy take on one device.
#include <cstdint>

#include "policies/api/cost.hpp"
#include "sim/cost/holding.hpp"
#include "sim/cost/machine.hpp"
#include "sim/cost/model.hpp"
#include "sim/cost/serving.hpp"

namespace kvsim::cost {

/// By class. Bytes on one device, batch included.
struct Memory {
  std::uint64_t weights = 0;
  std::uint64_t keys_values = 0;  ///< encoded payload of the tokens held, scales included
  std::uint64_t padding = 0;      ///< slots no token is in: shorter lanes, the rest of last pages
  std::uint64_t metadata = 0;     ///< of the policy, and masks
  std::uint64_t page_tables = 0;
  std::uint64_t activations = 0;  ///< largest live set of a forward pass, score matrices and logits included
  std::uint64_t scratch = 0;      ///< of the policy, while it compresses a layer
  std::uint64_t reserved = 0;     ///< of the machine's runtime
  std::uint64_t host = 0;         ///< in host memory, for this device: no part of the total

  std::uint64_t cache() const;  ///< what the cache occupies: payload, padding, metadata, page tables
  std::uint64_t total() const;
};

/// Bytes of the weights on one of `tensor_parallel` devices.
std::uint64_t weight_bytes(const Model& model, const Runtime& runtime, std::uint64_t tensor_parallel);

/// Cache of b sequences of n tokens that all stay, window or not: b * n * L * Hs * (Dk k_K + Dv k_V).
std::uint64_t full_cache_bytes(const Model& model, const Layout& layout, std::uint64_t tokens,
                               std::uint64_t batch);

// Where evicted tokens leave holes (Vacated::left), the pages in use are those expected when the tokens that
// are gone are drawn at random; lanes that share pages are taken as independent unless they hold the same
// tokens.

/// After `step` generated tokens, at rest between two steps (activations of a decode step included).
Memory memory_at(const Model& model, const Machine& machine, const Serving& serving, const Holding& holding,
                 const policy::Cost& cost, std::uint64_t step);

/// The moment of the prefill that needs most. Evictions that score when the prompt ends hold the whole prompt
/// of the layer in work and the budgets of the layers before it; a policy that streams its prompt never holds
/// more than its budget; one that keeps everything holds everything. Under a sliding window chunks find the
/// window's tokens alone in the cache, and the layer in work holds its whole chunk beside them.
Memory prefill_peak(const Model& model, const Machine& machine, const Serving& serving,
                    const Holding& holding, const policy::Cost& cost);

// Where weights or cache are offloaded, `weights` and `keys_values` are what stays on the device and room for
// two layers of what does not: one at work, one on its way.

// All throw Error(usage) when a size does not fit 64 bits.

}  // namespace kvsim::cost
