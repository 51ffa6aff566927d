#pragma once
/// Runs a model on the processor, all arithmetic in float.
#include <memory>

#include "traces/model/model_run.hpp"
#include "traces/model/weights.hpp"

namespace kvsim::model::cpu {

class CpuRun final : public ModelRun {
 public:
  /// `config` and `weights` must outlive this. Throws Error(usage) when the cache, plus the column sums if
  /// options.counts_columns, exceeds the machine's memory.
  CpuRun(const ModelConfig& config, const Weights& weights, const RunOptions& options);
  ~CpuRun() override;

  /// Keys and values [tokens, head_dim] of one head, as another run of these tokens with the same options has
  /// shown them. Given for all heads before the first pass, this run continues where that one was, but for
  /// its logits and column statistics.
  void resume(std::uint32_t layer, std::uint32_t kv_head, std::span<const float> keys,
              std::span<const float> values);
  PassTiming forward(std::span<const std::int32_t> tokens, RunObserver& observer) override;
  std::uint64_t length() const override;
  std::vector<float> logits(std::uint64_t rows = 1) override;
  ColumnStatistics column_statistics(std::uint32_t layer) const override;
  trace::Capture describe() const override;
  unsigned threads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::model::cpu
