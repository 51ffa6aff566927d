#pragma once
/// Numbers that options take, and the options of numbers that many commands have. What CLI11 lets through for
/// unsigned 64-bit options, it wraps (-1) or clamps (2^64): these refuse both.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// For check(): digits only, up to 2^64 - 1.
Check whole_number();
/// For transform(): tokens as tokens_of() reads them, 2K for 2048.
Check token_count();
/// For transform(): bytes as bytes_of() reads them, 64MiB.
Check byte_count();

/// Adds --threads, which never changes a result: up to `most`, 0 being all.
void add_threads(Command command, unsigned& threads, unsigned most);
/// Adds --memory-limit in bytes, which has no default.
void add_memory_limit(Command command, std::uint64_t& bytes, const std::string& help);

// Ranges in the lists of options: `1K..128K:x2` doubles, `1K..8K:+1K` adds.

/// Appends the values that an item of a list stands for: of a range of tokens, of bytes (both ends end with
/// B) or of percents its values, smallest first; any other text as it is. `where` names the option in
/// messages. Throws Error(usage) for what is no range, and for more than 100,000 values.
void append_values(std::vector<std::string>& out, std::string_view item, const std::string& where);

// What is said of options wherever they are.

/// Puts options of one command into a group; those that it lacks are left out, and those
/// that it requires stay with the first.
void group_options(Command command, const std::string& group, const std::vector<std::string>& names);

/// Puts options that many commands have into the groups `Results` and `Run`, in `root` and all below.
void group_shared_options(Command root);

/// An option that names an output is refused without a name, instead of meaning nothing; in `root` and all
/// below.
void require_names_of_outputs(Command root);

}  // namespace kvsim::tools
