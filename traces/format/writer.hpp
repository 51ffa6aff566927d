#pragma once
/// Writes a trace file, which gets its name when it is complete and on the disk (sim/base/partial_file.hpp),
/// so that a killed run never looks finished.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "sim/base/elements.hpp"
#include "sim/base/workers.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace {

struct WriteOptions {
  bool overwrite = false;      ///< replace an existing PATH; otherwise an existing PATH is refused before any
                               ///< work
  bool checksum = true;        ///< fletcher32 on tensors
  unsigned deflate = 0;        ///< level of lossless compression of tensors, 1 to 9; 0: none
  bool digests = true;         ///< of blocks and lists; false: as schema 1.3 had it
  Workers* workers = nullptr;  ///< threads that digest and filter chunks; none: the one that appends
};

class Writer {
 public:
  /// Opens a PartialFile. `header` must hold model, capture and elem; token lists may still grow until
  /// finish(). Throws Error(usage) when PATH exists and may not be replaced, Error(input) when it cannot be
  /// written.
  Writer(const std::string& path, const Header& header, const WriteOptions& options = {});
  /// Removes the partial file unless finish() ran.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Appends rows for every head of one tensor of a layer, row-major [heads, n_rows, dim], in token order.
  /// Rows of another element type are rounded to that of the trace. Rows are buffered to whole chunks.
  void append(Tensor tensor, std::uint32_t layer, std::uint64_t n_rows, const Elements& rows);
  /// Appends one attention row of a layer: [n_q_heads, n_keys] probabilities, keys from `first_key` along the
  /// path.
  void append_attention(std::uint32_t layer, std::uint64_t first_key, std::uint64_t n_keys,
                        std::span<const float> p);

  /// Stores the output projection of a layer, row-major [n_q_heads, v_head_dim, hidden_size] (source.hpp).
  /// Must be called once per layer if the header has an output_elem, otherwise never.
  void put_output_weights(std::uint32_t layer, std::span<const float> weights);

  /// Stores column statistics of a layer's first `tokens` tokens, [n_q_heads, tokens] each (source.hpp). Must
  /// be called once per layer or never.
  void put_column_statistics(std::uint32_t layer, std::uint64_t tokens, std::span<const float> sum,
                             std::span<const float> sum_squares);

  /// Takes everything that is known only at the end (tokens, segments, passes, timings, text, query_token,
  /// attention_token, counted_tokens), checks it against the appended rows, writes it, marks the file
  /// complete, syncs and renames it.
  void finish(const Header& header);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Stores a whole source.
void write_trace(const std::string& path, const Source& source, const WriteOptions& options = {});

}  // namespace kvsim::trace
