#pragma once
/// A view as one HTML page that needs nothing else: no network, no file.
#include <string>

namespace kvsim::analysis {

/// `packed` as packed_view() writes it; `title` is shown as text.
std::string view_page(const std::string& packed, const std::string& title);

}  // namespace kvsim::analysis
