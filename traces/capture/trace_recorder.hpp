#pragma once
/// Hands what a run shows to a trace's writer. There is one sequence, so positions are file order.
#include <cstddef>
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

  void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                  const Elements& k, const Elements& v) override;
  std::uint64_t first_attention_row() const override { return first_attention_; }
  void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                    std::uint64_t n_keys, std::span<const float> p) override;

 private:
  Elements last_rows(const Elements& q, std::uint64_t n, std::uint64_t kept);

  trace::Writer& writer_;
  const Progress& progress_;
  std::uint64_t query_heads_, first_query_, first_attention_;
  std::vector<std::byte> rows_;
};

}  // namespace kvsim::capture
