#pragma once
/// Writes the tensors and attention rows of a run to a trace. There is one sequence, so positions are file
/// order.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/progress.hpp"
#include "traces/format/writer.hpp"
#include "traces/model/model_run.hpp"

namespace kvsim::capture {

class TraceRecorder : public model::RunObserver {
 public:
  struct Choice {
    std::uint64_t prompt = 0;            ///< tokens of the prompt
    std::vector<std::uint64_t> queries;  ///< prompt positions whose queries are stored, ascending
    bool columns = false;                ///< the prompt is counted in the column statistics
    std::uint64_t first_attention = 0;   ///< first position whose attention rows are stored
  };
  /// Stores every key and value, the queries and attention rows that `choice` names, and all queries of the
  /// tokens after the prompt. Throws Error(interrupted) between layers when `progress` is interrupted.
  TraceRecorder(trace::Writer& writer, const Progress& progress, std::uint32_t query_heads, Choice choice);

  void on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                  const Elements& k, const Elements& v) override;
  bool wants_queries(std::uint64_t first, std::uint64_t n) const override {
    return !chosen_rows(first, n).empty();
  }
  std::uint64_t first_attention_row() const override { return choice_.first_attention; }
  bool counts_columns(std::uint64_t first) const override {
    return choice_.columns && first < choice_.prompt;
  }
  void on_attention(std::uint32_t layer, std::uint64_t position, std::uint64_t first_key,
                    std::uint64_t n_keys, std::span<const float> p) override;

 private:
  std::vector<std::uint64_t> chosen_rows(std::uint64_t first, std::uint64_t n) const;
  Elements gathered(const Elements& q, std::uint64_t n, const std::vector<std::uint64_t>& rows);

  trace::Writer& writer_;
  const Progress& progress_;
  std::uint64_t query_heads_;
  Choice choice_;
  std::vector<std::byte> rows_;
};

}  // namespace kvsim::capture
