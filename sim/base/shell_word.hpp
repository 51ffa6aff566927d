#pragma once
/// Words of commands that are printed to be pasted.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

/// `text` in single quotes, as bash and zsh read it.
std::string shell_quoted(std::string_view text);

/// The same, but as it is where no shell sees anything in it but a word.
std::string shell_word(std::string_view text);

/// Each as a shell_word(), with spaces between.
std::string shell_words(const std::vector<std::string>& words);

}  // namespace kvsim
