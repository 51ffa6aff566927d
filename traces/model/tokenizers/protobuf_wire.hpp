#pragma once
/// The wire format of Protocol Buffers: fields, each a number and a value, in any order.
#include <cstdint>
#include <string>
#include <string_view>

namespace kvsim::model {

struct WireField {
  std::uint32_t number = 0;
  bool is_bytes = false;
  std::uint64_t integer = 0;  ///< a varint, or the bits of a fixed-width number
  std::string_view bytes{};
};

/// Reads the fields of one untrusted message.
class WireReader {
 public:
  /// `where` names the message in errors. `message` must outlive this.
  WireReader(std::string_view message, const std::string& where) : rest_(message), where_(where) {}
  /// Reads the next field; returns false at the end. Throws Error(input) on bytes that are not a field.
  bool next(WireField& field);

 private:
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t bytes);

  std::string_view rest_;
  const std::string& where_;
};

void put_integer(std::string& message, std::uint32_t number, std::uint64_t value);
void put_float(std::string& message, std::uint32_t number, float value);
/// Appends a string, bytes or a message.
void put_bytes(std::string& message, std::uint32_t number, std::string_view bytes);

}  // namespace kvsim::model
