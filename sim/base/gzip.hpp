#pragma once
/// Text in the gzip format (RFC 1952), which zcat, pandas and R read.
#include <cstdint>
#include <string>
#include <string_view>

namespace kvsim {

/// One member without a name or a time, so that equal texts are equal bytes. Members one behind the other are
/// their texts one behind the other.
std::string gzipped(std::string_view text);

/// What zlib calls the window bits: the largest window, and gzip's header and checksum.
inline constexpr int kGzipWindow = 15 + 16;

/// Whether these are the first bytes of a gzip file.
bool is_gzip(std::string_view bytes);

/// The text of all members. Throws Error(input) at `where` for what is damaged or cut off, and for more than
/// `most` bytes of text.
std::string gunzipped(std::string_view bytes, std::uint64_t most, const std::string& where);

}  // namespace kvsim
