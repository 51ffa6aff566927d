#pragma once
/// Lists of a trace (tokens, segments, passes, ...) with the SHA-256 of their stored bytes as attribute
/// `sha256`: contiguous datasets carry no checksum of their own.
#include <span>
#include <string>
#include <vector>

#include "traces/format/hdf5_input.hpp"

namespace kvsim::trace {

/// Writes a whole dataset at once, contiguous, and its digest unless `sealed` is false. Returns the digest.
std::string put_sealed_array(hid_t parent, const std::string& name, hdf5::Type type, const void* data,
                             const std::vector<std::uint64_t>& dims, std::string_view where,
                             bool sealed = true);
template <typename Value>
std::string put_sealed_list(hid_t parent, const std::string& name, const std::vector<Value>& values,
                            std::string_view where, bool sealed = true) {
  return put_sealed_array(parent, name, hdf5::type_of<Value>(), values.data(), {values.size()}, where,
                          sealed);
}

/// Overwrites all values of a list, and its digest where it has one. Throws Error(input) if it has another
/// length.
void replace_sealed_list(hid_t parent, const std::string& name, const std::vector<std::uint32_t>& values,
                         std::string_view where);

/// Throws Error(input) if `stored`, all bytes of the list, does not match the digest that the list has, if
/// any.
void check_seal(const hdf5::InputDataset& list, std::span<const std::byte> stored);

}  // namespace kvsim::trace
