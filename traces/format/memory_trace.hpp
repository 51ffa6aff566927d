#pragma once
/// A whole trace in memory, as generators and tests build it; the writer stores it.
#include <vector>

#include "traces/format/source.hpp"

namespace kvsim::trace {

class MemoryTrace final : public Source {
 public:
  /// Allocates zero tensors in the shape of `header` (model, tokens, query_token); checks the header
  /// (validate.hpp).
  explicit MemoryTrace(Header header);

  const Header& header() const override { return header_; }
  std::string name() const override { return "memory"; }
  std::string content_sha256() const override { return {}; }
  void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
            std::uint64_t n_rows, std::span<float> out) const override;
  void read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                           std::span<float> out) const override;

  void read_column_statistics(std::uint32_t layer, std::uint32_t query_head, std::span<float> sum,
                              std::span<float> sum_squares) const override;

  /// All rows of one head, row-major, writable.
  std::span<float> rows(Tensor tensor, std::uint32_t layer, std::uint32_t head);
  /// Header::token_logprob, writable.
  std::span<float> logprobs() { return header_.token_logprob; }
  /// Output weights of one query head, row-major [v_head_dim, hidden_size], writable; the header must have an
  /// output_elem.
  std::span<float> output_weights(std::uint32_t layer, std::uint32_t query_head);
  /// Column statistics of one query head, [counted_tokens], writable; the header must count tokens.
  std::span<float> column_sums(std::uint32_t layer, std::uint32_t query_head);
  std::span<float> column_sums_of_squares(std::uint32_t layer, std::uint32_t query_head);

 private:
  std::size_t offset(Tensor tensor, std::uint32_t layer, std::uint32_t head) const;
  Header header_;
  std::size_t output_offset(std::uint32_t layer, std::uint32_t query_head) const;
  std::size_t column_offset(std::uint32_t layer, std::uint32_t query_head) const;
  std::vector<float> query_, key_, value_, output_, column_sum_, column_sum_squares_;
};

/// Header of a plain trace: `prompt` tokens followed by `decode` generated ones, two segments, one sequence,
/// default model arithmetic. The shape fields of `model` must be set; the others are filled in.
Header plain_header(Model model, std::uint64_t prompt, std::uint64_t decode);

}  // namespace kvsim::trace
