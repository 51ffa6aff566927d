#pragma once
/// Writes small GGUF files, right ones and crafted ones.
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace kvsim::test {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string gguf_text(const std::string& text) {
  return raw<std::uint64_t>(text.size()) + text;
}

/// Metadata: a key, the code of its value's type, the value.
inline std::string entry(const std::string& key, std::uint32_t type, const std::string& value) {
  return gguf_text(key) + raw(type) + value;
}
inline std::string entry(const std::string& key, const std::string& text) {
  return entry(key, 8, gguf_text(text));
}
inline std::string entry(const std::string& key, std::uint32_t number) {
  return entry(key, 4, raw(number));
}
inline std::string entry(const std::string& key, float number) {
  return entry(key, 6, raw(number));
}
inline std::string array(const std::string& key, std::uint32_t type, std::uint64_t count,
                         const std::string& values) {
  return entry(key, 9, raw(type) + raw(count) + values);
}
inline std::string array(const std::string& key, const std::vector<std::string>& texts) {
  std::string values;
  for (const std::string& text : texts) values += gguf_text(text);
  return array(key, 8, texts.size(), values);
}

/// A row of the table of tensors; `shape` as the file has it, fastest dimension first.
inline std::string place(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint32_t type,
                         std::uint64_t offset) {
  std::string bytes = gguf_text(name) + raw(static_cast<std::uint32_t>(shape.size()));
  for (const std::uint64_t dimension : shape) bytes += raw(dimension);
  return bytes + raw(type) + raw(offset);
}

inline std::string padded(std::string bytes, std::size_t alignment = 32) {
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  return bytes;
}

/// A whole file. `data` comes after the header, padded.
inline std::string gguf(const std::vector<std::string>& entries, const std::vector<std::string>& places = {},
                        const std::string& data = {}, std::uint32_t version = 3) {
  std::string bytes =
      "GGUF" + raw(version) + raw<std::uint64_t>(places.size()) + raw<std::uint64_t>(entries.size());
  for (const std::string& one : entries) bytes += one;
  for (const std::string& one : places) bytes += one;
  return data.empty() ? bytes : padded(bytes) + data;
}

}  // namespace kvsim::test
