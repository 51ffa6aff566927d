#pragma once
/// Numbers of tokens and of bytes as people write them, in every option that takes one. A bare number, or one
/// with K or M, counts tokens; bytes have a unit that ends with B.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvsim {

inline constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

/// 8192, 8K (8 * 1024), 1M (1024 * 1024); nothing for other texts and for what does not fit 64 bits.
std::optional<std::uint64_t> tokens_of(std::string_view text);
/// 512B, 64KiB, 1.5 MiB, 80GiB, 2TiB (powers of 1024), 500KB, 2MB, 80GB, 1TB (powers of 1000); nothing for
/// other texts.
std::optional<double> bytes_of(std::string_view text);

/// The same, with `where` naming the option in messages. Throw Error(usage) for other texts, for zero, and
/// for what does not fit 64 bits.
std::uint64_t parse_tokens(std::string_view text, const std::string& where);
std::uint64_t parse_bytes(std::string_view text, const std::string& where);

inline double real(std::uint64_t count) {
  return static_cast<double>(count);
}

}  // namespace kvsim
