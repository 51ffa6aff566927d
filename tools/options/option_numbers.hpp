#pragma once
/// Numbers that options take. What CLI11 lets through for unsigned 64-bit options, it wraps (-1) or clamps
/// (2^64): these refuse both.
#include "tools/options/command_tree.hpp"

namespace kvsim::tools {

/// For check(): digits only, up to 2^64 - 1.
Check whole_number();
/// For transform(): tokens as tokens_of() reads them, 2K for 2048.
Check token_count();
/// For transform(): bytes as bytes_of() reads them, 64MiB.
Check byte_count();

}  // namespace kvsim::tools
