#pragma once
/// NumPy arrays that own their numbers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace kvsim::python {

/// `numbers` in a shape of as many. With the interpreter's lock, as the other one.
template <class T>
nanobind::object owned_array(std::unique_ptr<T[]> numbers, std::initializer_list<std::size_t> shape) {
  T* const data = numbers.release();
  const nanobind::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(data, shape.size(), shape.begin(), owner));
}

template <class T>
nanobind::object owned_array(std::vector<T> numbers, std::initializer_list<std::size_t> shape) {
  auto* const kept = new std::vector<T>(std::move(numbers));
  const nanobind::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, T>(kept->data(), shape.size(), shape.begin(), owner));
}

}  // namespace kvsim::python
