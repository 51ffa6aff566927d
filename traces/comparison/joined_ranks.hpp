#pragma once
/// A run whose heads lie in several traces, one of each tensor-parallel rank, as one.
#include <memory>
#include <string>
#include <vector>

#include "traces/format/source.hpp"

namespace kvsim::trace {

/// Rank after rank has the next query heads and the next KV heads; where there are more ranks than KV heads,
/// several ranks have the same KV head, and the first one's is taken.
class JoinedRanks final : public Source {
 public:
  /// Puts the traces into the order of their ranks (Capture::rank); traces that do not say theirs stay in
  /// order and share no KV head. Throws Error(input) naming the trace for one that is missing or given twice,
  /// has attention rows, or is of another run: other tokens, model or queries.
  explicit JoinedRanks(std::vector<std::unique_ptr<Source>> ranks);

  const Header& header() const override { return header_; }
  std::string name() const override { return ranks_.front()->name(); }
  std::string content_sha256() const override { return {}; }
  void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
            std::uint64_t n_rows, std::span<float> out) const override;
  void read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                           std::span<float> out) const override;
  void read_column_statistics(std::uint32_t layer, std::uint32_t query_head, std::span<float> sum,
                              std::span<float> sum_squares) const override;
  void require_unchanged() const override;

 private:
  void order();
  void require_one_run() const;
  const Model& part() const { return ranks_.front()->header().model; }

  std::vector<std::unique_ptr<Source>> ranks_;
  std::uint32_t copies_ = 1;  ///< ranks that have the same KV head
  Header header_;
};

}  // namespace kvsim::trace
