#pragma once
/// Tables in the Arrow C data interface (https://arrow.apache.org/docs/format/CDataInterface.html), which
/// pandas, polars, pyarrow and DuckDB read without knowing kvsim.
#include <cstdint>

#include "analysis/results/records.hpp"

// The structures are the interface's own, word for word as its documentation asks, under its guards.
extern "C" {
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
#endif
}

namespace kvsim::python {

/// What all fields of a column are: text where one is, else real numbers where one is, else counts. A column
/// without any field is of real numbers.
enum class ColumnType { text, real, count };
ColumnType type_of(const analysis::Records& records, std::size_t column);

/// A stream of one batch: text as large_utf8, real numbers as float64, counts as uint64; undefined fields are
/// null. It owns copies of everything. The caller owns the stream and releases it as the interface says.
ArrowArrayStream* arrow_stream(const analysis::Records& records);

}  // namespace kvsim::python
