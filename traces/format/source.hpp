#pragma once
/// The interface through which replay reads tensors, from a file (reader.hpp) or from memory
/// (memory_trace.hpp).
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "sim/base/error.hpp"
#include "traces/format/header.hpp"

namespace kvsim::trace {

enum class Tensor : std::uint8_t { query, key, value };

class Source {
 public:
  virtual ~Source() = default;
  virtual const Header& header() const = 0;
  /// The name that messages use: a path or a description.
  virtual std::string name() const = 0;
  /// SHA-256 over the stored q, k, v and token ids, or empty when it is not known.
  virtual std::string content_sha256() const = 0;
  /// Reads rows [first_row, first_row + n_rows) of one head, row-major [n_rows, dim], widened to float.
  /// `head` counts query heads for queries, KV heads otherwise; `first_row` counts tokens in file order for
  /// keys and values, stored query rows for queries. `out` has exactly n_rows * dim elements. May be called
  /// from any thread. Throws Error(input) with file, dataset and row on damage.
  virtual void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
                    std::uint64_t n_rows, std::span<float> out) const = 0;

  /// Says that these rows, counted as in read(), will be read soon, so that the system fetches them from the
  /// disk while others are worked on. May be called from any thread.
  virtual void will_read(Tensor /*tensor*/, std::uint32_t /*layer*/, std::uint32_t /*head*/,
                         std::uint64_t /*first_row*/, std::uint64_t /*n_rows*/) const {}

  /// Whether the attention output projection is stored.
  bool has_output_weights() const { return header().output_elem.has_value(); }
  /// Reads one query head's part of the output projection, row-major [v_head_dim, hidden_size]: the head's
  /// attention output o (a row of v_head_dim) becomes o @ this, and the sum over the query heads, plus the
  /// bias if the model has one, is the layer's attention output. `out` has exactly v_head_dim * hidden_size
  /// elements. May be called from any thread. Throws Error(input) when the trace has no output weights, or on
  /// damage.
  virtual void read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                                   std::span<float> out) const = 0;

  /// Whether column statistics, the summed attention to the prompt's keys, are stored
  /// (header().counted_tokens).
  bool has_column_statistics() const { return header().counted_tokens > 0; }
  /// Reads, for each counted token as a key, the sum and the sum of squares of one query head's attention to
  /// it over the counted tokens as queries. Both spans have exactly counted_tokens elements. May be called
  /// from any thread. Throws Error(input) when the trace has no column statistics, or on damage: values that
  /// are negative or not finite.
  virtual void read_column_statistics(std::uint32_t layer, std::uint32_t query_head, std::span<float> sum,
                                      std::span<float> sum_squares) const = 0;

  /// To be called before results of what was read are kept. Throws Error(input) when the trace is a file that
  /// was rewritten, cut off, replaced or removed since it was opened.
  virtual void require_unchanged() const {}
};

/// A trace of which only the header is known: what can be planned and estimated before a run.
class HeaderSource final : public Source {
 public:
  explicit HeaderSource(Header header) : header_(std::move(header)) {}

  const Header& header() const override { return header_; }
  std::string name() const override { return "a run to come"; }
  std::string content_sha256() const override { return {}; }
  void read(Tensor, std::uint32_t, std::uint32_t, std::uint64_t, std::uint64_t,
            std::span<float>) const override {
    nothing();
  }
  void read_output_weights(std::uint32_t, std::uint32_t, std::span<float>) const override { nothing(); }
  void read_column_statistics(std::uint32_t, std::uint32_t, std::span<float>,
                              std::span<float>) const override {
    nothing();
  }

 private:
  [[noreturn]] static void nothing() { bug("a trace of which only the header is known was read"); }

  Header header_;
};

}  // namespace kvsim::trace
