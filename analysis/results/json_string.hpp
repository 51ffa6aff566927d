#pragma once
#include <string>
#include <string_view>

namespace kvsim::analysis {

/// `text` as a JSON string with its quotes. File names may hold any bytes: what is not UTF-8 becomes U+FFFD,
/// so the document stays one.
std::string json_string(std::string_view text);

}  // namespace kvsim::analysis
