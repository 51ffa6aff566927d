#pragma once
/// A view of stored elements of any type and alignment, so that tensors can be passed on without widening
/// elements that are stored in 16 bits anyway.
#include <cstddef>
#include <span>
#include <vector>

#include "sim/base/half.hpp"

namespace kvsim {

/// Does not own its elements, like a span.
class Elements {
 public:
  Elements() = default;
  // Floats convert implicitly.
  Elements(std::span<const float> values)
      : data_(reinterpret_cast<const std::byte*>(values.data())), size_(values.size()) {}
  Elements(const std::vector<float>& values) : Elements(std::span(values)) {}
  Elements(Elem elem, const void* data, std::size_t size)
      : elem_(elem), data_(static_cast<const std::byte*>(data)), size_(size) {}

  Elem elem() const { return elem_; }
  std::size_t size() const { return size_; }
  const std::byte* data() const { return data_; }
  Elements subspan(std::size_t first, std::size_t count) const {
    return {elem_, data_ + first * elem_bytes(elem_), count};
  }

  /// Writes the elements as `to`: copied if they have that type, otherwise widened exactly or rounded to
  /// nearest even.
  void store(Elem to, void* out) const;
  std::vector<float> floats() const;

 private:
  Elem elem_ = Elem::f32;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace kvsim
