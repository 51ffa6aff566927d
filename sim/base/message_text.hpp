#pragma once
/// Text that people read: lists of words, quoted names, lines of limited length, and words of commands to be
/// pasted.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim {

/// The words with a separator between them.
inline std::string joined(const std::vector<std::string>& items, std::string_view separator = ", ") {
  std::string out;
  for (const std::string& item : items) {
    if (!out.empty()) out += separator;
    out += item;
  }
  return out;
}

/// Adds what is not there yet.
inline void add_once(std::vector<std::string>& all, const std::string& item) {
  if (std::find(all.begin(), all.end(), item) == all.end()) all.push_back(item);
}

/// Returns `text` in quotes, with control characters escaped and long text cut, because a hostile name must
/// neither control a terminal nor hide the rest of the message.
std::string in_quotes(std::string_view text);

/// How many characters a reader sees in well-formed UTF-8.
std::size_t characters(std::string_view text);

/// Lines of at most `limit` characters, broken at white space; a longer word stands alone.
std::vector<std::string> wrapped(const std::string& text, std::size_t limit);

/// The same as one text: each line ends, behind `indent` spaces that count towards the limit.
std::string wrapped_text(const std::string& text, std::size_t limit, std::size_t indent = 0);

/// `text` in single quotes, as bash and zsh read it.
std::string shell_quoted(std::string_view text);

/// The same, but as it is where no shell sees anything in it but a word.
std::string shell_word(std::string_view text);

/// Each as a shell_word(), with spaces between.
std::string shell_words(const std::vector<std::string>& words);

}  // namespace kvsim
