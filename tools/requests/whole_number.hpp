#pragma once
/// What CLI11 lets through for unsigned 64-bit options, it wraps (-1) or clamps (2^64): this refuses both.
#include <CLI/CLI.hpp>

namespace kvsim::tools {

/// Accepts digits only, up to 2^64 - 1.
CLI::Validator whole_number();

}  // namespace kvsim::tools
