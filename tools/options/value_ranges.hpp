#pragma once
/// Ranges in the lists of options: `1K..128K:x2` doubles, `1K..8K:+1K` adds.
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::tools {

/// Appends the values that an item of a list stands for: of a range of tokens, of bytes (both ends end with
/// B) or of percents its values, smallest first; any other text as it is. `where` names the option in
/// messages. Throws Error(usage) for what is no range, and for more than 100,000 values.
void append_values(std::vector<std::string>& out, std::string_view item, const std::string& where);

}  // namespace kvsim::tools
