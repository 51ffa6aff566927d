#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>

#include "traces/comparison/trace_comparison.hpp"

namespace kvsim::trace {
namespace {

/// A layer's tensors, null where they were not compared.
struct Stages {
  const TensorComparison *q = nullptr, *k = nullptr, *v = nullptr, *attention = nullptr,
                         *column_sum = nullptr, *wo = nullptr;

  explicit Stages(const std::vector<TensorComparison>& tensors, std::uint32_t layer) {
    for (const TensorComparison& tensor : tensors) {
      if (tensor.layer != layer) continue;
      if (tensor.part == "q") q = &tensor;
      if (tensor.part == "k") k = &tensor;
      if (tensor.part == "v") v = &tensor;
      if (tensor.part == "attention") attention = &tensor;
      if (tensor.part.starts_with("column") && (column_sum == nullptr || column_sum->within()))
        column_sum = &tensor;
      if (tensor.part == "wo") wo = &tensor;
    }
  }
  /// The inputs of attention.
  std::array<const TensorComparison*, 3> inputs() const { return {k, q, v}; }
};

bool differs(const TensorComparison* tensor) {
  return tensor != nullptr && !tensor->within();
}

std::string names_of(const Stages& stages) {
  std::string names;
  for (const TensorComparison* tensor : stages.inputs())
    if (differs(tensor)) names += (names.empty() ? "" : ", ") + tensor->part;
  return names;
}

/// Names the cause of a difference that begins in a projection. RoPE rotates keys and queries but not values,
/// and its rotation at position 0 is the identity.
std::string cause_in_projection(const Stages& stages) {
  if (differs(stages.v)) return "value projection or its bias";
  std::uint64_t first = UINT64_MAX;
  bool from_a_row = true;
  for (const TensorComparison* tensor : {stages.k, stages.q}) {
    if (!differs(tensor)) continue;
    from_a_row = from_a_row && tensor->difference.first_row_beyond.has_value();
    first = std::min(first, tensor->difference.first_row_beyond.value_or(0));
  }
  if (from_a_row && first > 0)
    return "RoPE (theta, scaling or positions): v agrees, and so does what comes before token " +
           std::to_string(first);
  return "projection, bias, QK-norm or RoPE layout: v agrees";
}

/// Names the cause where all inputs of attention differ: then the hidden state from which they are computed
/// differs too.
std::string cause_in_hidden_state(const std::optional<Stages>& previous, std::uint32_t layer) {
  if (layer == 0) return "embedding, first norm, or other weights";
  const std::string before = "layer " + std::to_string(layer - 1);
  std::string text = "what " + before +
                     " does after its keys: mask, window, scale, head mapping, output projection, MLP, norms";
  double used = 0;
  for (const TensorComparison* tensor : previous->inputs())
    if (tensor != nullptr && tensor->tolerance.tensor > 0)
      used = std::max(used, tensor->difference.relative_error / tensor->tolerance.tensor);
  if (used < 0.25) return text;
  char share[32];
  std::snprintf(share, sizeof share, "%.2g", used);
  return text + "; or at rounding that grows: " + before + " took " + share + " of the tolerance";
}

}  // namespace

std::string diagnosis(const TraceComparison& comparison) {
  if (comparison.tensors.empty()) return {};
  const std::uint32_t layers = comparison.tensors.back().layer + 1;
  std::optional<Stages> previous;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const Stages stages(comparison.tensors, layer);
    const std::string where = " of layer " + std::to_string(layer);
    if (const std::string names = names_of(stages); !names.empty()) {
      const bool all = differs(stages.v) && differs(stages.k) && (stages.q == nullptr || differs(stages.q));
      return "First to differ: " + names + where + ". Look at " +
             (all ? cause_in_hidden_state(previous, layer) : cause_in_projection(stages)) + ".";
    }
    if (differs(stages.attention))
      return "First to differ: attention rows" + where +
             ", though its q and k agree. Look at mask, window, scale or soft cap.";
    if (differs(stages.column_sum))
      return "First to differ: column statistics" + where +
             ", though its q and k agree. Look at mask, window, scale, and at which queries were counted.";
    if (differs(stages.wo)) return "First to differ: output weights" + where + ". These are other weights.";
    previous = stages;
  }
  return {};
}

}  // namespace kvsim::trace
