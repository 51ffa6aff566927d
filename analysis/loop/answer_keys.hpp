#pragma once
/// The columns of a row of answers that say which answer it is: rows of its tokens and layers begin with
/// them.
#include <cstddef>
#include <span>
#include <string_view>

namespace kvsim::analysis {

std::span<const std::string_view> answer_keys();

/// The number of a column of answer_columns().
std::size_t answer_column(std::string_view key);

}  // namespace kvsim::analysis
