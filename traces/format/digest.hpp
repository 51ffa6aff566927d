#pragma once
/// The digests of a trace. They do not depend on how its rows were grouped into writes.
///   tensor:   SHA-256 over the hexadecimal digests of its heads; the digest of a head is SHA-256 over its
///             stored bytes in row order
///   content:  SHA-256 over the hexadecimal digests of the token ids (i32), of k, v and q of every layer
///             in turn, and, where the file has them, of the lists of their blocks' digests in the same order
#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/sha256.hpp"

namespace kvsim::trace {

class TensorDigest {
 public:
  explicit TensorDigest(std::uint32_t heads) : heads_(heads) {}
  /// Adds the next stored bytes of a head.
  void update(std::uint32_t head, const void* data, std::size_t bytes) { heads_[head].update(data, bytes); }
  std::string hex();

 private:
  std::vector<Sha256> heads_;
};

/// `tensors`: digests of k, v, q of layer 0, then of layer 1, ...; then those of the lists of their blocks.
std::string content_digest(const std::vector<std::int32_t>& token_ids,
                           const std::vector<std::string>& tensors);

/// Digest of each segment's path, [segments * 32]: SHA-256 over the parent's 32 bytes (none at a root) and
/// the segment's token ids (i32). Two segments have equal digests exactly when their paths hold the same ids.
struct Header;
std::vector<std::uint8_t> segment_digests(const Header& header);

}  // namespace kvsim::trace
