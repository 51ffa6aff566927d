#pragma once
/// Names and text from files, as messages show them.
#include <string>
#include <string_view>

namespace kvsim {

/// In quotes, control characters escaped, long text cut: a hostile name must neither steer a terminal nor
/// hide the rest of the message.
std::string quoted(std::string_view text);

}  // namespace kvsim
