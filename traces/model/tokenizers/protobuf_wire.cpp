#include "traces/model/tokenizers/protobuf_wire.hpp"

#include <bit>

#include "sim/base/error.hpp"

namespace kvsim::model {
namespace {

constexpr unsigned kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

void put_varint(std::string& message, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) message += static_cast<char>(0x80 | (value & 0x7f));
  message += static_cast<char>(value);
}

void put_tag(std::string& message, std::uint32_t number, unsigned type) {
  put_varint(message, static_cast<std::uint64_t>(number) << 3 | type);
}

}  // namespace

std::uint64_t WireReader::varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  input_error("a number without an end", where_);
}

std::uint64_t WireReader::fixed(std::size_t bytes) {
  if (rest_.size() < bytes) input_error("a field runs past the end", where_);
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(rest_[i])) << 8 * i;
  rest_.remove_prefix(bytes);
  return value;
}

bool WireReader::next(WireField& field) {
  if (rest_.empty()) return false;
  const std::uint64_t tag = varint();
  if (tag >> 3 == 0 || tag >> 3 >= 1U << 29) input_error("a field without a number", where_);
  field = {.number = static_cast<std::uint32_t>(tag >> 3)};
  switch (tag & 7) {
    case kVarint:
      field.integer = varint();
      return true;
    case kFixed64:
      field.integer = fixed(8);
      return true;
    case kFixed32:
      field.integer = fixed(4);
      return true;
    case kBytes: {
      const std::uint64_t length = varint();
      if (length > rest_.size()) input_error("a field runs past the end", where_);
      field.is_bytes = true;
      field.bytes = rest_.substr(0, length);
      rest_.remove_prefix(length);
      return true;
    }
    default:
      input_error("a field of unknown type", where_);
  }
}

void put_integer(std::string& message, std::uint32_t number, std::uint64_t value) {
  put_tag(message, number, kVarint);
  put_varint(message, value);
}

void put_float(std::string& message, std::uint32_t number, float value) {
  put_tag(message, number, kFixed32);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (unsigned shift = 0; shift < 32; shift += 8) message += static_cast<char>(bits >> shift & 0xff);
}

void put_bytes(std::string& message, std::uint32_t number, std::string_view bytes) {
  put_tag(message, number, kBytes);
  put_varint(message, bytes.size());
  message.append(bytes);
}

}  // namespace kvsim::model
