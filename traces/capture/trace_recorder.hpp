#pragma once
/// Hands what a run shows to a trace's writer. There is one sequence, so positions are file order.
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/capture/model_run.hpp"
#include "traces/writer.hpp"

namespace kvsim::capture {

class TraceRecorder : public RunObserver {
 public:
  /// Stores every key and value, and queries and attention rows from the given positions on. Stops the run
  /// (Error interrupted) between layers when `progress` says so.
  TraceRecorder(trace::Writer& writer, const Progress& progress, std::uint32_t query_heads,
                std::uint64_t first_query, std::uint64_t first_attention);

  void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, std::span<const float> q,
                  std::span<const float> k, std::span<const float> v) override;
  std::uint64_t first_attention_row() const override { return first_attention_; }
  void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                    std::uint64_t n_keys, std::span<const float> p) override;

 private:
  std::span<const float> last_rows(std::span<const float> q, std::uint64_t n, std::uint64_t kept);

  trace::Writer& writer_;
  const Progress& progress_;
  std::uint64_t query_heads_, first_query_, first_attention_;
  std::vector<float> rows_;
};

}  // namespace kvsim::capture
