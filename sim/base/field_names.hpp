#pragma once
/// Fields of a user's file that have other names than kvsim's.
#include <string>
#include <utility>
#include <vector>

namespace kvsim {

/// kvsim's name, then the file's.
using FieldNames = std::vector<std::pair<std::string, std::string>>;

/// Of "prompt=instruction,answers=gold"; none of an empty text. `known`: kvsim's names. Throws Error(usage)
/// naming --fields.
FieldNames parse_field_names(const std::string& text, const std::vector<std::string>& known);

}  // namespace kvsim
