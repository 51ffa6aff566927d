#pragma once
/// Writes a trace file: `PATH.partial` first, renamed to PATH when complete and synced, so that a killed run
/// never looks finished.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sim/base/elements.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace {

struct WriteOptions {
  bool overwrite = false;  ///< replace an existing PATH; otherwise refuse before any work
  bool checksum = true;    ///< fletcher32 on tensors
};

class Writer {
 public:
  /// Creates PATH.partial. `header` must hold model, capture and elem; token lists may still grow (finish).
  /// Throws Error(usage) when PATH exists and may not be replaced, Error(input) when it cannot be written.
  Writer(const std::string& path, const Header& header, const WriteOptions& options = {});
  /// Without finish(): removes the partial file.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Appends rows for every head of one tensor of a layer, row-major [heads, n_rows, dim], in token order,
  /// rounded to the trace's element type if they are of another. Buffered to whole chunks.
  void append(Tensor tensor, std::uint32_t layer, std::uint64_t n_rows, const Elements& rows);
  /// Appends one attention row of a layer: [n_q_heads, n_keys] probabilities, keys from `first_key` along the
  /// path.
  void append_attention(std::uint32_t layer, std::uint64_t first_key, std::uint64_t n_keys,
                        std::span<const float> p);

  /// The output projection of a layer, row-major [n_q_heads, v_head_dim, hidden_size] (source.hpp). Once per
  /// layer if the header has an output_elem, otherwise never.
  void put_output_weights(std::uint32_t layer, std::span<const float> weights);

  /// Column statistics of a layer's first `tokens` tokens, [n_q_heads, tokens] each (source.hpp). Once per
  /// layer or never.
  void put_column_statistics(std::uint32_t layer, std::uint64_t tokens, std::span<const float> sum,
                             std::span<const float> sum_squares);

  /// Everything known only at the end (tokens, segments, passes, timings, text, query_token,
  /// attention_token, counted_tokens). Checks it against what was appended, writes it, marks the file
  /// complete, syncs and renames.
  void finish(const Header& header);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Stores a whole source.
void write_trace(const std::string& path, const Source& source, const WriteOptions& options = {});

}  // namespace kvsim::trace
