#include "sim/base/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim {
namespace {

constexpr std::size_t kBlock = std::size_t{1} << 18;

/// As much as zlib takes at once.
void give(z_stream& stream, std::string_view& text) {
  const std::size_t most = std::numeric_limits<uInt>::max();
  stream.avail_in = static_cast<uInt>(std::min(text.size(), most));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // zlib does not write to it
  text.remove_prefix(stream.avail_in);
}

}  // namespace

std::string gzipped(std::string_view text) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    bug("zlib cannot begin");
  std::string out;
  std::string block(kBlock, '\0');
  int state = Z_OK;
  while (state != Z_STREAM_END) {
    if (stream.avail_in == 0) give(stream, text);
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    state = deflate(&stream, text.empty() ? Z_FINISH : Z_NO_FLUSH);
    out.append(block, 0, block.size() - stream.avail_out);
  }
  deflateEnd(&stream);
  return out;
}

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1f\x8b");
}

std::string gunzipped(std::string_view bytes, std::uint64_t most, const std::string& where) {
  z_stream stream{};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) bug("zlib cannot begin");
  std::string out, problem;
  std::string block(kBlock, '\0');
  while (problem.empty()) {
    if (stream.avail_in == 0) give(stream, bytes);
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = static_cast<uInt>(block.size());
    const int state = inflate(&stream, Z_NO_FLUSH);
    out.append(block, 0, block.size() - stream.avail_out);
    if (out.size() > most) problem = "holds more than " + bytes_text(most) + " of text";
    const bool read = stream.avail_in == 0 && bytes.empty();
    if (state == Z_STREAM_END) {
      if (read) break;
      if (inflateReset(&stream) != Z_OK) bug("zlib cannot go on");
    } else if (state != Z_OK) {
      problem = state == Z_BUF_ERROR ? "is cut off" : "is no sound gzip file";
    }
  }
  inflateEnd(&stream);
  if (!problem.empty()) input_error(problem, where);
  return out;
}

}  // namespace kvsim
