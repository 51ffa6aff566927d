#pragma once
/// Numbers that options take, and the options of numbers that many commands have. What CLI11 lets through for
/// unsigned 64-bit options, it wraps (-1) or clamps (2^64): these refuse both.
#include <cstdint>
#include <string>

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

}  // namespace kvsim::tools
