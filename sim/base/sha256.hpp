#pragma once
/// SHA-256, for content hashes in traces and results.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace kvsim {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(const void* data, std::size_t bytes);
  /// Returns 64 lower-case hexadecimal digits. Call once, last.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Hexadecimal digits of a text.
std::string sha256_of(std::string_view text);

}  // namespace kvsim
