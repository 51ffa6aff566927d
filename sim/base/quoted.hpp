#pragma once
/// Quotes names and text from files for messages.
#include <string>
#include <string_view>

namespace kvsim {

/// Returns `text` in quotes, with control characters escaped and long text cut, because a hostile name must
/// neither control a terminal nor hide the rest of the message.
std::string in_quotes(std::string_view text);

}  // namespace kvsim
