#pragma once
/// Checks what must hold between the fields of a Header, whether it was read from a file or built in memory.
/// All functions throw Error(input) naming `where` (file or "memory"), the dataset of the schema and the
/// index at fault.
#include <string>

#include "traces/format/header.hpp"

namespace kvsim::trace {

/// Whether a layer's stored queries and keys depend on their positions.
bool rotates(const Model& model, std::uint32_t layer);

/// Checks shape limits, group divisibility, RoPE and window fields.
void check_model(const Model& model, const std::string& where);

/// Runs check_model, then checks the lengths of all lists, the segment tree, that positions ascend along
/// every path, that ids lie within the vocabulary and passes inside their segments, that stored rows ascend,
/// and that names of prompts are printable.
void check_header(const Header& header, const std::string& where);

}  // namespace kvsim::trace
