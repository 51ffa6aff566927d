#pragma once
/// A trace's tensors and lists as named arrays in one file that other programs read.
#include <string>

#include "sim/base/progress.hpp"
#include "traces/format/source.hpp"

namespace kvsim::trace {

/// Writes `path`, whose end says which: .safetensors (https://huggingface.co/docs/safetensors), or .npz, a
/// zip file of uncompressed .npy arrays. The stored bits, blocks of rows at a time:
///   layers.I.q, .k, .v   [heads, rows, dim]; no v where values are in keys, no q where none is stored
///   layers.I.wo          [query heads, v_head_dim, hidden_size], where it is stored
///   layers.I.attention   [query heads, rows, tokens], where rows are stored: a token's attention to all
///   tokens
///                        in file order, 0 to those that its path or its window lacks
///   layers.I.column_sum, .column_sum_squares  [query heads, counted tokens] f32, where they are stored
///   token_ids, positions, flags [tokens] i32; q_token [rows] i64, where not every token has a query;
///   attention_token [rows] i64, where attention is stored
///   inv_freq             [rotations *] [rotary_dim / 2] f32; sinks [layers, query heads] f32, where there
///   are any; text_offset [tokens + 1] i64, text_bytes u8, where text is stored
/// `description`, JSON, is the entry kvsim of safetensors' metadata, and the array description (u8) of .npz.
/// NumPy has no bfloat16: .npz holds its bits as uint16. Progress counts bytes of tensors. Throws
/// Error(usage) for another end of the name, Error(input) for damage that a digest shows.
void export_arrays(const Source& source, const std::string& path, bool overwrite,
                   const std::string& description, Progress& progress);

}  // namespace kvsim::trace
