#pragma once
/// Helpers of the CUDA tests: random numbers, and copies to the device and back.
#include <cstdint>
#include <vector>

#include "sim/base/half.hpp"
#include "sim/base/rng.hpp"
#include "traces/model/cuda/cuda_device.hpp"
#include "traces/model/cuda/device_kernels.hpp"

namespace kvsim::model::cuda {

inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(normal(combine({seed, i})));
  return values;
}

template <class T>
T as(float value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return {narrow_bf16(value)};
  } else {
    return value;
  }
}
inline float value_of(float element) {
  return element;
}
inline float value_of(Bf16 element) {
  return widen_bf16(element.bits);
}
/// `value` rounded to T.
template <class T>
float rounded(float value) {
  return value_of(as<T>(value));
}

template <class T>
std::vector<T> all_as(const std::vector<float>& values) {
  std::vector<T> elements;
  for (const float value : values) elements.push_back(as<T>(value));
  return elements;
}
template <class T>
std::vector<float> values_of(const std::vector<T>& elements) {
  std::vector<float> values;
  for (const T element : elements) values.push_back(value_of(element));
  return values;
}

template <class T>
DeviceArray<T> on_device(const std::vector<T>& elements, const Stream& stream) {
  DeviceArray<T> array(elements.size(), "a test's array");
  copy_to_device(array.data(), elements.data(), elements.size() * sizeof(T), stream);
  return array;
}
template <class T>
std::vector<T> from_device(const T* data, std::size_t count, const Stream& stream) {
  std::vector<T> elements(count);
  copy_from_device(elements.data(), data, count * sizeof(T), stream);
  stream.synchronize();
  return elements;
}
template <class T>
std::vector<T> from_device(const DeviceArray<T>& array, const Stream& stream) {
  return from_device(array.data(), array.size(), stream);
}

}  // namespace kvsim::model::cuda
