#pragma once
/// Seconds of one step of an engine with continuous batching: chunks of some prompts and one token each of
/// other sequences go through the layers together.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/cost/device_pass.hpp"

namespace kvsim::cost {

/// What a step computes.
struct StepWork {
  std::span<const Chunk> chunks{};
  std::uint64_t decoding = 0;  ///< sequences that get one token
  /// Tokens that these attend to, themselves included, all sequences together.
  std::uint64_t attended = 0;
  std::uint64_t sampled = 0;  ///< rows of logits: decoding sequences and the chunks that end a prompt
  /// What they read where common tokens are read once for all of them; nothing: each reads its own.
  std::optional<SharedRows> shared{};
  std::uint64_t within_window = 0;  ///< as `attended`, in the layers that have a window
};

/// Prices steps by the operations of DevicePass. Matrix products and element-wise operations see all tokens
/// of the step at once; attention is one kernel for the chunks and one for single rows. A step of one chunk
/// is prefill_time() and one of equal sequences step_time(), without a policy.
class EngineStep {
 public:
  /// Of `serving` the layout's element size, the runtime and the devices count. Throws Error(usage) for what
  /// steps have no price of: representations, selections, offloading; and what DevicePass throws.
  EngineStep(Model model, Machine machine, const Serving& serving);
  EngineStep(const EngineStep&) = delete;
  EngineStep& operator=(const EngineStep&) = delete;

  PassTime pass(const StepWork& work) const;
  /// pass().seconds(), by tables of what depends on the number of tokens alone; not for two threads at once.
  double seconds(const StepWork& work);

 private:
  const Model model_;
  const Machine machine_;
  Serving serving_;
  std::unique_ptr<DevicePass> device_;    ///< refers to the three above
  std::vector<double> dense_{}, head_{};  ///< seconds by tokens and by rows; negative: not asked yet
};

}  // namespace kvsim::cost
