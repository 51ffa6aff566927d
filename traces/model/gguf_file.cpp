#include "traces/model/gguf_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"

namespace kvsim::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMaxFileBytes = 1ULL << 40;
constexpr std::uint64_t kMaxKeys = 65'536, kMaxGgufTensors = 200'000;
constexpr std::uint64_t kMaxKeyBytes = 65'535, kMaxGgufNameBytes = 64, kMaxGgufRank = 4,
                        kMaxAlignment = 1ULL << 20;
constexpr const char* kTruncated = "The file is truncated or damaged: get it again.";

// Codes of metadata values.
constexpr std::uint32_t kBool = 7, kText = 8, kArray = 9;
struct ValueType {
  std::string_view name;
  std::uint32_t bytes;  ///< 0: a text or an array, which says its length itself
};
constexpr std::array<ValueType, 13> kValueTypes{{{"uint8", 1},
                                                 {"int8", 1},
                                                 {"uint16", 2},
                                                 {"int16", 2},
                                                 {"uint32", 4},
                                                 {"int32", 4},
                                                 {"float32", 4},
                                                 {"bool", 1},
                                                 {"text", 0},
                                                 {"array", 0},
                                                 {"uint64", 8},
                                                 {"int64", 8},
                                                 {"float64", 8}}};

// Codes of tensors; those that are missing were withdrawn.
constexpr GgufType kTensorTypes[]{
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 40},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
};

template <class T>
T stored(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// A float32 as the double nearest to its shortest decimal form.
double as_written(float value) {
  char text[32];
  const auto written = std::to_chars(text, std::end(text), value);
  double result = value;
  std::from_chars(text, written.ptr, result);
  return result;
}

/// The value of this type at `from`, unless it is no integer or larger than an int64.
std::optional<std::int64_t> integer_at(std::uint32_t type, const std::byte* from) {
  switch (type) {
    case 0:
      return stored<std::uint8_t>(from);
    case 1:
      return stored<std::int8_t>(from);
    case 2:
      return stored<std::uint16_t>(from);
    case 3:
      return stored<std::int16_t>(from);
    case 4:
      return stored<std::uint32_t>(from);
    case 5:
      return stored<std::int32_t>(from);
    case 10:
    case 11: {
      const auto value = stored<std::int64_t>(from);
      if (type == 10 && value < 0) return std::nullopt;
      return value;
    }
    default:
      return std::nullopt;
  }
}
std::optional<double> number_at(std::uint32_t type, const std::byte* from) {
  if (type == 6) return as_written(stored<float>(from));
  if (type == 12) return stored<double>(from);
  return std::nullopt;
}
std::optional<bool> flag_at(std::uint32_t type, const std::byte* from) {
  if (type == kBool) return *from != std::byte{0};
  return std::nullopt;
}

const GgufType& tensor_type(std::uint32_t code, const std::string& where) {
  for (const GgufType& known : kTensorTypes) {
    if (known.code == code) return known;
  }
  input_error("its type has the code " + std::to_string(code) + ", which no known type has", where,
              kTruncated);
}

std::uint64_t padded(std::uint64_t at, std::uint64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

std::pair<std::string, std::string> folder_and_name(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

/// Takes one thing after another from a file, and never more than is left of it.
class Gguf::Reader {
 public:
  Reader(std::span<const std::byte> file, std::string path) : file_(file), path_(std::move(path)) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return file_.size() - at_; }
  std::span<const std::byte> since(std::uint64_t begin) const { return file_.subspan(begin, at_ - begin); }

  std::span<const std::byte> bytes(std::uint64_t n, const std::string& what) {
    if (n > left()) {
      input_error(what + " takes " + std::to_string(n) + " bytes, " + std::to_string(left()) + " are left",
                  path_, kTruncated);
    }
    at_ += n;
    return file_.subspan(at_ - n, n);
  }
  template <class T>
  T number(const std::string& what) {
    return stored<T>(bytes(sizeof(T), what).data());
  }
  std::string_view text(const std::string& what) {
    const std::span<const std::byte> text = bytes(number<std::uint64_t>(what), what);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  /// A name of 1 to `most` bytes that `names` does not hold.
  template <class Names>
  std::string name(const std::string& what, std::uint64_t most, const Names& names) {
    const std::string_view name = text("a " + what);
    if (name.empty() || name.size() > most) {
      input_error("a " + what + " is " + std::to_string(name.size()) + " bytes long, 1 to " +
                      std::to_string(most) + " are allowed",
                  path_);
    }
    if (names.contains(name)) input_error(what + " " + in_quotes(name) + " occurs twice", path_);
    return std::string(name);
  }

 private:
  std::span<const std::byte> file_;
  std::uint64_t at_ = 0;
  std::string path_;
};

std::uint64_t GgufTensor::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t dimension : shape) product *= dimension;
  return product;
}

Gguf::Gguf(std::span<const std::byte> file, const std::string& path) : path_(path) {
  Reader reader(file, path);
  if (file.size() < kMagic.size() || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0)
    input_error("not a GGUF file: it does not begin with GGUF", path);
  reader.bytes(kMagic.size(), "the magic");
  version_ = reader.number<std::uint32_t>("the version");
  if (version_ != 2 && version_ != 3) {
    const bool swapped = version_ == 0x02000000 || version_ == 0x03000000;
    input_error(swapped ? "a big-endian GGUF file" : "GGUF version " + std::to_string(version_), path,
                "kvsim reads versions 2 and 3, little-endian.");
  }
  const auto n_tensors = reader.number<std::uint64_t>("the number of tensors");
  const auto n_keys = reader.number<std::uint64_t>("the number of keys");
  if (n_tensors > kMaxGgufTensors)
    input_error("announces " + std::to_string(n_tensors) + " tensors", path, kTruncated);
  if (n_keys > kMaxKeys) input_error("announces " + std::to_string(n_keys) + " keys", path, kTruncated);
  read_metadata(reader, n_keys);
  read_tensors(reader, n_tensors, file);
}

void Gguf::read_metadata(Reader& reader, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string key = reader.name("key", kMaxKeyBytes, values_),
                      what = "the value of key " + in_quotes(key);
    Value value;
    value.type = reader.number<std::uint32_t>(what);
    value.is_array = value.type == kArray;
    if (value.is_array) {
      value.type = reader.number<std::uint32_t>(what);
      value.count = reader.number<std::uint64_t>(what);
      if (value.type == kArray) input_error("an array of arrays, which kvsim does not read", where(key));
    }
    if (value.type >= kValueTypes.size())
      input_error("type code " + std::to_string(value.type) + " is not one of 0..12", where(key), kTruncated);
    const std::uint64_t begin = reader.at(), width = kValueTypes[value.type].bytes;
    if (width == 0) {
      for (std::uint64_t k = 0; k < value.count; ++k) reader.text(what);
    } else {
      if (value.count > reader.left() / width) {
        input_error("lists " + std::to_string(value.count) + " values, more than the file has room for",
                    where(key), kTruncated);
      }
      reader.bytes(value.count * width, what);
    }
    value.bytes = reader.since(begin);
    if (value.type == kBool) {
      for (const std::byte flag : value.bytes)
        if (flag > std::byte{1}) input_error("a bool is neither 0 nor 1", where(key));
    }
    values_.emplace(key, value);
  }
}

void Gguf::read_tensors(Reader& reader, std::uint64_t count, std::span<const std::byte> file) {
  struct Place {
    std::uint64_t begin, bytes;
    std::string name;
  };
  std::vector<Place> places;
  const std::uint64_t alignment = integer_or("general.alignment", 32);
  if (alignment == 0 || alignment % 8 != 0 || alignment > kMaxAlignment)
    input_error(std::to_string(alignment) + " is no multiple of 8 up to 1048576", where("general.alignment"));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string name = reader.name("tensor name", kMaxGgufNameBytes, tensors_),
                      what = "tensor " + in_quotes(name);
    const std::string place = path_ + " " + what;
    GgufTensor tensor;
    const auto rank = reader.number<std::uint32_t>(what);
    if (rank > kMaxGgufRank)
      input_error(std::to_string(rank) + " dimensions, at most 4 are allowed", place, kTruncated);
    for (std::uint32_t k = 0; k < rank; ++k) tensor.shape.push_back(reader.number<std::uint64_t>(what));
    tensor.type = &tensor_type(reader.number<std::uint32_t>(what), place);
    const auto offset = reader.number<std::uint64_t>(what);
    std::uint64_t bytes = tensor.type->bytes;
    if ((rank > 0 ? tensor.shape[0] : 1) % tensor.type->items != 0) {
      input_error("its rows are no whole number of blocks of " + std::to_string(tensor.type->items) +
                      " elements, as " + std::string(tensor.type->name) + " needs",
                  place);
    }
    for (std::uint32_t k = 0; k < rank; ++k) {
      const std::uint64_t units = k == 0 ? tensor.shape[0] / tensor.type->items : tensor.shape[k];
      if (__builtin_mul_overflow(bytes, units, &bytes)) input_error("its size overflows 64 bits", place);
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    places.push_back({offset, bytes, name});
    tensors_.emplace(name, std::move(tensor));
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  // Where there are no tensors the file may end unpadded.
  const std::uint64_t base = std::min<std::uint64_t>(padded(reader.at(), alignment), file.size());
  const std::span<const std::byte> data = file.subspan(base);
  std::uint64_t expected = 0;
  for (const Place& place : places) {
    const std::string where = path_ + " tensor " + in_quotes(place.name);
    if (place.begin != expected) {
      input_error((place.begin % alignment != 0 ? "is not aligned"
                   : place.begin < expected     ? "overlaps the tensor before it"
                                                : "leaves a hole before it") +
                      (" (begins at " + std::to_string(place.begin)) + ", expected " +
                      std::to_string(expected) + ")",
                  where);
    }
    if (place.begin > data.size() || place.bytes > data.size() - place.begin)
      input_error("takes " + std::to_string(place.bytes) + " bytes from " + std::to_string(place.begin) +
                      " of " + std::to_string(data.size()) + " data bytes",
                  where, kTruncated);
    tensors_.find(place.name)->second.data = data.subspan(place.begin, place.bytes);
    expected = padded(place.begin + place.bytes, alignment);
  }
  if (data.size() > expected)
    input_error("has " + std::to_string(data.size() - expected) + " foreign bytes after its last tensor",
                path_);
}

std::vector<std::string> Gguf::keys() const {
  std::vector<std::string> keys;
  for (const auto& entry : values_) keys.push_back(entry.first);
  return keys;
}

std::string Gguf::where(std::string_view key) const {
  return path_ + " key " + in_quotes(key);
}

const Gguf::Value& Gguf::value(std::string_view key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) input_error("the key " + in_quotes(key) + " is missing", path_);
  return found->second;
}

/// Every element of an array, or the one of a single value. `read` gives nothing for a type that is not
/// wanted.
template <class T>
std::vector<T> Gguf::read(std::string_view key, bool is_array, const char* wanted,
                          std::optional<T> (*element)(std::uint32_t, const std::byte*)) const {
  const Value& found = value(key);
  std::vector<T> elements;
  for (std::uint64_t i = 0; i < found.count && found.is_array == is_array; ++i) {
    const std::optional<T> one = element(found.type, found.bytes.data() + i * kValueTypes[found.type].bytes);
    if (!one) break;
    elements.push_back(*one);
  }
  if (found.is_array != is_array || elements.size() != found.count) refuse(key, found, wanted);
  return elements;
}

std::vector<std::string_view> Gguf::read_texts(std::string_view key, bool is_array,
                                               const char* wanted) const {
  const Value& found = value(key);
  if (found.is_array != is_array || (found.type != kText && found.count > 0)) refuse(key, found, wanted);
  std::vector<std::string_view> texts;
  Reader reader(found.bytes, path_);
  for (std::uint64_t i = 0; i < found.count; ++i) texts.push_back(reader.text(wanted));
  return texts;
}

void Gguf::refuse(std::string_view key, const Value& value, const char* wanted) const {
  input_error("holds " + std::string(value.is_array ? "an array of " : "a value of type ") +
                  std::string(kValueTypes[value.type].name) + ", expected " + wanted,
              where(key));
}

std::uint64_t Gguf::integer(std::string_view key) const {
  const std::int64_t found = read(key, false, "an integer of at most 63 bits", integer_at)[0];
  if (found < 0) input_error("is negative", where(key));
  return static_cast<std::uint64_t>(found);
}
double Gguf::number(std::string_view key) const {
  const double found = read(key, false, "a float", number_at)[0];
  if (!std::isfinite(found)) input_error("is not finite", where(key));
  return found;
}
bool Gguf::flag(std::string_view key) const {
  return read(key, false, "a bool", flag_at)[0];
}
std::string_view Gguf::text(std::string_view key) const {
  return read_texts(key, false, "a text")[0];
}
std::vector<std::string_view> Gguf::texts(std::string_view key) const {
  return read_texts(key, true, "an array of texts");
}
std::vector<std::int64_t> Gguf::integers(std::string_view key) const {
  return read(key, true, "an array of integers of at most 63 bits", integer_at);
}
std::vector<double> Gguf::numbers(std::string_view key) const {
  return read(key, true, "an array of floats", number_at);
}
std::vector<bool> Gguf::flags(std::string_view key) const {
  return read(key, true, "an array of bools", flag_at);
}

const GgufTensor& Gguf::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) input_error("tensor " + in_quotes(name) + " is missing", path_);
  return found->second;
}

GgufFile::GgufFile(const std::string& path)
    : file(folder_and_name(path).first, folder_and_name(path).second, kMaxFileBytes),
      content(file.bytes(), path) {}

bool is_gguf(const std::string& path) {
  std::error_code none;
  return begins_with(path, kMagic) || (path.ends_with(".gguf") && !std::filesystem::exists(path, none));
}

}  // namespace kvsim::model
