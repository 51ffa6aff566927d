#pragma once
/// What must hold between the fields of a Header, whoever made it. All throw Error(input) naming `where`
/// (file or "memory"), the dataset of the schema and the index at fault.
#include <string>

#include "traces/format/header.hpp"

namespace kvsim::trace {

/// Shape limits, group divisibility, RoPE and window fields.
void check_model(const Model& model, const std::string& where);

/// check_model, then lengths of all lists, the segment tree, positions ascending along every path, ids within
/// the vocabulary, passes inside their segments, stored rows ascending, names of prompts printable.
void check_header(const Header& header, const std::string& where);

}  // namespace kvsim::trace
