#pragma once
/// What a person should know although nothing failed. Libraries hand notes to their caller and never print.
#include <functional>
#include <string>

namespace kvsim {

/// Takes one note: a text without a line end.
using NoteListener = std::function<void(const std::string& text)>;

}  // namespace kvsim
