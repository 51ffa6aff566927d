#include "tools/python/core/arrow_export.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace kvsim::python {
namespace {

using analysis::Records;

/// The fields of one column in the interface's buffers.
struct Column {
  std::vector<std::uint8_t> valid;
  std::vector<char> data;
  std::vector<std::int64_t> offsets;  ///< of text
  std::int64_t nulls = 0;
  std::vector<const void*> buffers;
};

struct Batch {
  std::vector<Column> columns;
  std::vector<ArrowArray> arrays;
  std::vector<ArrowArray*> children;
  const void* buffers[1] = {nullptr};
};

struct Schema {
  std::vector<std::string> names;
  std::vector<ArrowSchema> columns;
  std::vector<ArrowSchema*> children;
};

struct RecordStream {
  Records records;
  bool given = false;
};

template <class T>
void append(std::vector<char>& data, T value) {
  const std::size_t at = data.size();
  data.resize(at + sizeof(T));
  std::memcpy(data.data() + at, &value, sizeof(T));
}

Column column_of(const Records& records, std::size_t index) {
  const ColumnType type = type_of(records, index);
  const std::size_t rows = records.rows.size();
  Column out;
  out.valid.resize((rows + 7) / 8);
  if (type == ColumnType::text) out.offsets.push_back(0);
  for (std::size_t row = 0; row < rows; ++row) {
    const analysis::Value& field = records.rows[row][index];
    const bool defined = !std::holds_alternative<std::monostate>(field);
    if (defined) {
      out.valid[row / 8] = static_cast<std::uint8_t>(out.valid[row / 8] | (1U << (row % 8)));
    } else {
      ++out.nulls;
    }
    if (type == ColumnType::text) {
      if (defined) {
        const std::string text = analysis::exact_field(field, "");
        out.data.insert(out.data.end(), text.begin(), text.end());
      }
      out.offsets.push_back(static_cast<std::int64_t>(out.data.size()));
    } else if (type == ColumnType::real) {
      append(out.data, analysis::number(field).value_or(0));
    } else {
      append(out.data, defined ? std::get<std::uint64_t>(field) : std::uint64_t{0});
    }
  }
  out.buffers = {out.valid.data()};
  if (type == ColumnType::text) out.buffers.push_back(out.offsets.data());
  out.buffers.push_back(out.data.data());
  return out;
}

const char* format_of(ColumnType type) {
  return type == ColumnType::text ? "U" : type == ColumnType::real ? "g" : "L";
}

// A consumer may release a child before its parent, which marks it as released by a null `release`; the
// parent's private data holds the memory of all.

void release_child(ArrowArray* array) {
  array->release = nullptr;
}
void release_child(ArrowSchema* schema) {
  schema->release = nullptr;
}

template <class Node, class Owner>
void release_root(Node* node) {
  for (std::int64_t i = 0; i < node->n_children; ++i)
    if (node->children[i]->release != nullptr) node->children[i]->release(node->children[i]);
  delete static_cast<Owner*>(node->private_data);
  node->release = nullptr;
}

void write_schema(const Records& records, ArrowSchema* out) {
  auto owner = std::make_unique<Schema>();
  owner->names.reserve(records.columns.size());
  owner->columns.resize(records.columns.size());
  for (std::size_t i = 0; i < records.columns.size(); ++i) {
    owner->names.push_back(records.columns[i].key);
    constexpr std::int64_t kNullable = 2;
    owner->columns[i] = {format_of(type_of(records, i)),
                         owner->names[i].c_str(),
                         nullptr,
                         kNullable,
                         0,
                         nullptr,
                         nullptr,
                         release_child,
                         nullptr};
    owner->children.push_back(&owner->columns[i]);
  }
  *out = {"+s",
          "",
          nullptr,
          0,
          static_cast<std::int64_t>(owner->children.size()),
          owner->children.data(),
          nullptr,
          release_root<ArrowSchema, Schema>,
          nullptr};
  out->private_data = owner.release();
}

void write_batch(const Records& records, ArrowArray* out) {
  auto owner = std::make_unique<Batch>();
  const auto rows = static_cast<std::int64_t>(records.rows.size());
  for (std::size_t i = 0; i < records.columns.size(); ++i) owner->columns.push_back(column_of(records, i));
  owner->arrays.resize(owner->columns.size());
  for (std::size_t i = 0; i < owner->columns.size(); ++i) {
    Column& column = owner->columns[i];
    owner->arrays[i] = {rows,
                        column.nulls,
                        0,
                        static_cast<std::int64_t>(column.buffers.size()),
                        0,
                        column.buffers.data(),
                        nullptr,
                        nullptr,
                        release_child,
                        nullptr};
    owner->children.push_back(&owner->arrays[i]);
  }
  *out = {rows,
          0,
          0,
          1,
          static_cast<std::int64_t>(owner->children.size()),
          owner->buffers,
          owner->children.data(),
          nullptr,
          release_root<ArrowArray, Batch>,
          nullptr};
  out->private_data = owner.release();
}

template <class Write>
int unless_out_of_memory(Write write) {
  try {
    write();
    return 0;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  return unless_out_of_memory(
      [&] { write_schema(static_cast<RecordStream*>(stream->private_data)->records, out); });
}

int get_next(ArrowArrayStream* stream, ArrowArray* out) {
  auto* const state = static_cast<RecordStream*>(stream->private_data);
  if (state->given) {
    *out = {};  // a released array ends the stream
    return 0;
  }
  return unless_out_of_memory([&] {
    write_batch(state->records, out);
    state->given = true;
  });
}

const char* get_last_error(ArrowArrayStream*) {
  return "out of memory";
}

void release_stream(ArrowArrayStream* stream) {
  delete static_cast<RecordStream*>(stream->private_data);
  stream->release = nullptr;
}

}  // namespace

ColumnType type_of(const Records& records, std::size_t column) {
  bool real = false, count = false;
  for (const std::vector<analysis::Value>& row : records.rows) {
    if (std::holds_alternative<std::string>(row[column])) return ColumnType::text;
    real = real || std::holds_alternative<double>(row[column]);
    count = count || std::holds_alternative<std::uint64_t>(row[column]);
  }
  return real || !count ? ColumnType::real : ColumnType::count;
}

ArrowArrayStream* arrow_stream(const Records& records) {
  auto state = std::make_unique<RecordStream>(RecordStream{records});
  return new ArrowArrayStream{get_schema, get_next, get_last_error, release_stream, state.release()};
}

}  // namespace kvsim::python
