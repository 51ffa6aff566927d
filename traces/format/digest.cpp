#include "traces/format/digest.hpp"

#include "traces/format/header.hpp"

namespace kvsim::trace {
namespace {

std::uint8_t nibble(char digit) {
  return static_cast<std::uint8_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

}  // namespace

std::string TensorDigest::hex() {
  Sha256 all;
  for (Sha256& head : heads_) {
    const std::string digest = head.hex();
    all.update(digest.data(), digest.size());
  }
  return all.hex();
}

std::string content_digest(const std::vector<std::int32_t>& token_ids,
                           const std::vector<std::string>& tensors) {
  Sha256 ids, all;
  ids.update(token_ids.data(), token_ids.size() * sizeof(std::int32_t));
  const std::string digest = ids.hex();
  all.update(digest.data(), digest.size());
  for (const std::string& tensor : tensors) all.update(tensor.data(), tensor.size());
  return all.hex();
}

std::vector<std::uint8_t> segment_digests(const Header& header) {
  std::vector<std::uint8_t> out(header.segments.size() * 32);
  for (std::size_t s = 0; s < header.segments.size(); ++s) {
    const Segment& segment = header.segments[s];
    Sha256 path;
    if (segment.parent >= 0) path.update(out.data() + static_cast<std::size_t>(segment.parent) * 32, 32);
    path.update(header.token_id.data() + segment.begin, segment.count * sizeof(std::int32_t));
    const std::string hex = path.hex();
    for (std::size_t i = 0; i < 32; ++i)
      out[s * 32 + i] = static_cast<std::uint8_t>(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
  }
  return out;
}

}  // namespace kvsim::trace
