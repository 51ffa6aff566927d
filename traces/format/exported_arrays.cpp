#include "traces/format/exported_arrays.hpp"

#include <zlib.h>

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "sim/base/elements.hpp"
#include "sim/base/error.hpp"
#include "sim/base/partial_file.hpp"
#include "traces/format/file_trace.hpp"
#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"

namespace kvsim::trace {
namespace {

constexpr std::uint64_t kBlockRows = 4096;  // a multiple of the rows of every digest

using Sink = std::function<void(std::string_view)>;

/// How both formats call a type.
struct ArrayType {
  const char *safetensors, *numpy;
  std::uint64_t bytes;
};
constexpr ArrayType kI64{"I64", "<i8", 8}, kI32{"I32", "<i4", 4}, kF32{"F32", "<f4", 4},
    kF16{"F16", "<f2", 2}, kBf16{"BF16", "<u2", 2}, kU8{"U8", "|u1", 1};

ArrayType type_of(Elem elem) {
  return elem == Elem::f32 ? kF32 : elem == Elem::f16 ? kF16 : kBf16;
}

struct NamedArray {
  std::string name;
  ArrayType type;
  std::vector<std::uint64_t> shape;
  std::function<void(const Sink&)> write;

  std::uint64_t bytes() const {
    return std::accumulate(shape.begin(), shape.end(), type.bytes, std::multiplies<>());
  }
};

template <class Number>
std::string_view bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

class Exported {
 public:
  Exported(const Source& source, Progress& progress) : source_(source), progress_(progress) {
    const Header& header = source.header();
    const Model& model = header.model;
    const std::uint64_t tokens = header.n_tokens();
    // Wide types first, so that none begins between its words.
    if (!header.query_token.empty())
      list("q_token", kI64, {header.n_query_rows()}, bytes_of(header.query_token));
    if (!header.attention_token.empty())
      list("attention_token", kI64, {header.attention_token.size()}, bytes_of(header.attention_token));
    if (!header.text_offset.empty())
      list("text_offset", kI64, {header.text_offset.size()}, bytes_of(header.text_offset));
    list("token_ids", kI32, {tokens}, bytes_of(header.token_id));
    list("positions", kI32, {tokens}, bytes_of(header.token_position));
    list("flags", kI32, {tokens}, bytes_of(header.token_flags));
    std::vector<std::uint64_t> frequencies{model.rotary_dim / 2};
    if (!model.rotation_factor.empty()) frequencies.insert(frequencies.begin(), model.rotation_factor.size());
    list("inv_freq", kF32, frequencies, bytes_of(model.inv_freq));
    if (!model.sinks.empty()) list("sinks", kF32, {model.n_layers, model.n_q_heads}, bytes_of(model.sinks));
    if (!header.attention_token.empty())
      for (const AttentionRows& rows : dynamic_cast<const FileTrace&>(source).attention())
        add_attention(rows);
    if (source.has_column_statistics())
      for (std::uint32_t layer = 0; layer < model.n_layers; ++layer)
        for (const bool squares : {false, true}) add_columns(layer, squares);
    for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) add_layer(layer);
    if (!header.text_offset.empty()) list("text_bytes", kU8, {header.text_bytes.size()}, header.text_bytes);
  }

  const std::vector<NamedArray>& arrays() const { return arrays_; }
  void list(const char* name, ArrayType type, std::vector<std::uint64_t> shape, std::string_view bytes) {
    arrays_.push_back({name, type, std::move(shape), [bytes](const Sink& sink) { sink(bytes); }});
  }

 private:
  /// Over all tokens in file order, as a query meets keys: 0 where no key of the row's path is.
  void add_attention(const AttentionRows& rows) {
    const Header& header = source_.header();
    const std::uint64_t heads = header.model.n_q_heads, stored = header.attention_token.size();
    progress_.total += heads * stored * header.n_tokens() * elem_bytes(rows.elem());
    arrays_.push_back({"layers." + std::to_string(attended_layers_++) + ".attention",
                       type_of(rows.elem()),
                       {heads, stored, header.n_tokens()},
                       [this, &rows, heads, stored](const Sink& sink) {
                         for (std::uint32_t head = 0; head < heads; ++head)
                           for (std::uint64_t row = 0; row < stored; ++row) {
                             read_attention(rows, head, row);
                             write_wide(rows.elem(), sink);
                           }
                       }});
  }

  void read_attention(const AttentionRows& rows, std::uint32_t head, std::uint64_t row) {
    const Header& header = source_.header();
    path_.assign(rows.first_key[row] + rows.keys(row), 0.0F);
    rows.read(head, row, path_.data() + rows.first_key[row]);
    wide_.assign(header.n_tokens(), 0.0F);
    auto end = path_.cend();
    for (auto at = static_cast<std::int32_t>(header.token_segment[header.attention_token[row]]); at >= 0;) {
      const Segment& segment = header.segments[static_cast<std::size_t>(at)];
      const auto begin = path_.cbegin() + segment.path_len;
      std::copy(begin, end, wide_.begin() + static_cast<std::ptrdiff_t>(segment.begin));
      end = begin;
      at = segment.parent;
    }
  }

  void add_columns(std::uint32_t layer, bool squares) {
    const std::uint64_t heads = source_.header().model.n_q_heads, counted = source_.header().counted_tokens;
    progress_.total += heads * counted * elem_bytes(Elem::f32);
    arrays_.push_back({"layers." + std::to_string(layer) + (squares ? ".column_sum_squares" : ".column_sum"),
                       kF32,
                       {heads, counted},
                       [this, layer, squares, heads, counted](const Sink& sink) {
                         for (std::uint32_t head = 0; head < heads; ++head) {
                           wide_.resize(counted);
                           path_.resize(counted);
                           source_.read_column_statistics(layer, head, squares ? path_ : wide_,
                                                          squares ? wide_ : path_);
                           write_wide(Elem::f32, sink);
                         }
                       }});
  }

  void add_layer(std::uint32_t layer) {
    const Header& header = source_.header();
    const Model& model = header.model;
    const std::string name = "layers." + std::to_string(layer) + ".";
    for (const Tensor tensor : {Tensor::query, Tensor::key, Tensor::value}) {
      if (tensor == Tensor::query ? !holds_queries(header) : tensor == Tensor::value && model.values_in_keys)
        continue;
      const std::uint64_t heads = schema::tensor_heads(model, tensor);
      const std::uint64_t rows = schema::tensor_rows(header, tensor), dim = schema::tensor_dim(model, tensor);
      progress_.total += heads * rows * dim * elem_bytes(header.elem);
      arrays_.push_back({name + schema::tensor_name(tensor),
                         type_of(header.elem),
                         {heads, rows, dim},
                         [this, tensor, layer, heads, rows, dim](const Sink& sink) {
                           for (std::uint32_t head = 0; head < heads; ++head)
                             for (std::uint64_t row = 0; row < rows; row += kBlockRows) {
                               wide_.resize(std::min(kBlockRows, rows - row) * dim);
                               source_.read(tensor, layer, head, row, wide_.size() / dim, wide_);
                               write_wide(source_.header().elem, sink);
                             }
                         }});
    }
    if (!header.output_elem) return;
    const std::uint64_t of_head = std::uint64_t{model.v_head_dim} * model.hidden_size;
    progress_.total += model.n_q_heads * of_head * elem_bytes(*header.output_elem);
    arrays_.push_back({name + "wo",
                       type_of(*header.output_elem),
                       {model.n_q_heads, model.v_head_dim, model.hidden_size},
                       [this, layer, of_head](const Sink& sink) {
                         for (std::uint32_t head = 0; head < source_.header().model.n_q_heads; ++head) {
                           wide_.resize(of_head);
                           source_.read_output_weights(layer, head, wide_);
                           write_wide(*source_.header().output_elem, sink);
                         }
                       }});
  }

  void write_wide(Elem elem, const Sink& sink) {
    progress_.check();
    stored_.resize(wide_.size() * elem_bytes(elem));
    Elements(wide_).store(elem, stored_.data());
    sink(stored_);
    progress_.advance(stored_.size());
  }

  const Source& source_;
  Progress& progress_;
  std::vector<NamedArray> arrays_;
  std::vector<float> wide_, path_;
  std::uint32_t attended_layers_ = 0;
  std::string stored_;
};

/// `value` in little-endian order.
std::string number(std::uint64_t value, std::size_t bytes) {
  return {reinterpret_cast<const char*>(&value), bytes};
}

void write_safetensors(AtomicFile& file, const std::vector<NamedArray>& arrays,
                       const std::string& description) {
  boost::json::object header{{"__metadata__", {{"format", "pt"}, {"kvsim", description}}}};
  std::uint64_t begin = 0;
  for (const NamedArray& array : arrays) {
    const std::uint64_t end = begin + array.bytes();
    header[array.name] = {{"dtype", array.type.safetensors},
                          {"shape", boost::json::value_from(array.shape)},
                          {"data_offsets", boost::json::array{begin, end}}};
    begin = end;
  }
  std::string text = boost::json::serialize(header);
  text.append((8 - text.size() % 8) % 8, ' ');
  file.write(number(text.size(), 8) + text);
  for (const NamedArray& array : arrays) array.write([&](std::string_view bytes) { file.write(bytes); });
}

/// The head of an .npy file, version 1.0: numpy.lib.format.
std::string npy_head(const NamedArray& array) {
  std::string text = "{'descr': '" + std::string(array.type.numpy) + "', 'fortran_order': False, 'shape': (";
  for (const std::uint64_t extent : array.shape) text += std::to_string(extent) + ",";
  text += "), }";
  constexpr std::size_t kBefore = 10;
  text.append(63 - (kBefore + text.size()) % 64, ' ');
  text += '\n';
  return "\x93NUMPY" + std::string{1, 0} + number(text.size(), 2) + text;
}

/// A zip file whose members are stored as they are, with the fields of 64 bits throughout (APPNOTE 6.3.10:
/// 4.3.7, 4.3.9, 4.3.12, 4.3.14 to 4.3.16). The checksum of a member is known behind it (bit 3 of its flags).
void write_npz(AtomicFile& file, const std::vector<NamedArray>& arrays) {
  // Version 4.5, flags, stored, and 1 January 1980, the first day of the format.
  const std::string method =
      number(45, 2) + number(1U << 3, 2) + number(0, 2) + number(0, 2) + number(0x21, 2);
  constexpr std::uint64_t kElsewhere = 0xffffffff;  // in the fields of 64 bits
  std::uint64_t at = 0;
  std::string directory;
  const auto put = [&](std::string_view bytes) {
    file.write(bytes);
    at += bytes.size();
  };
  for (const NamedArray& array : arrays) {
    const std::string name = array.name + ".npy", head = npy_head(array);
    const std::uint64_t begin = at, size = head.size() + array.bytes();
    put("PK\x03\x04" + method + number(0, 4) + number(kElsewhere, 4) + number(kElsewhere, 4) +
        number(name.size(), 2) + number(20, 2) + name + number(1, 2) + number(16, 2) + number(0, 8) +
        number(0, 8));
    std::uint64_t checksum = 0;
    const auto data = [&](std::string_view bytes) {
      if (bytes.empty()) return;  // of no address crc32_z() makes 0
      checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
      put(bytes);
    };
    data(head);
    array.write(data);
    put("PK\x07\x08" + number(checksum, 4) + number(size, 8) + number(size, 8));
    directory += "PK\x01\x02" + number(45, 2) + method + number(checksum, 4) + number(kElsewhere, 4) +
                 number(kElsewhere, 4) + number(name.size(), 2) + number(28, 2) + number(0, 2) +
                 number(0, 2) + number(0, 2) + number(0, 4) + number(kElsewhere, 4) + name + number(1, 2) +
                 number(24, 2) + number(size, 8) + number(size, 8) + number(begin, 8);
  }
  const std::uint64_t begin = at, count = arrays.size();
  put(directory);
  const std::uint64_t end = at;
  put("PK\x06\x06" + number(44, 8) + number(45, 2) + number(45, 2) + number(0, 4) + number(0, 4) +
      number(count, 8) + number(count, 8) + number(directory.size(), 8) + number(begin, 8));
  put("PK\x06\x07" + number(0, 4) + number(end, 8) + number(1, 4));
  put("PK\x05\x06" + number(0, 4) + number(0xffff, 2) + number(0xffff, 2) + number(kElsewhere, 4) +
      number(kElsewhere, 4) + number(0, 2));
}

}  // namespace

void export_arrays(const Source& source, const std::string& path, bool overwrite,
                   const std::string& description, Progress& progress) {
  const bool npz = path.ends_with(".npz");
  if (!npz && !path.ends_with(".safetensors"))
    usage_error("ends with neither .safetensors nor .npz", path,
                "The end of the name says which is written.");
  Exported exported(source, progress);
  AtomicFile file(path, overwrite);
  if (npz) {
    exported.list("description", kU8, {description.size()}, description);
    write_npz(file, exported.arrays());
  } else {
    write_safetensors(file, exported.arrays(), description);
  }
  source.require_unchanged();
  file.commit();
}

}  // namespace kvsim::trace
