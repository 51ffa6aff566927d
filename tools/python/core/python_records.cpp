#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <sstream>
#include <tuple>

#include "analysis/results/records.hpp"
#include "tools/python/core/arrow_export.hpp"
#include "tools/python/core/owned_array.hpp"
#include "tools/python/core/python_parts.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using analysis::Records;
using analysis::Value;

nb::object object_of(const Value& field) {
  if (const auto* text = std::get_if<std::string>(&field)) return nb::str(text->data(), text->size());
  if (const auto* count = std::get_if<std::uint64_t>(&field)) return nb::int_(*count);
  if (const auto* real = std::get_if<double>(&field)) return nb::float_(*real);
  return nb::none();
}

Value value_of(nb::handle object) {
  if (object.is_none()) return {};
  if (nb::isinstance<nb::str>(object)) return nb::cast<std::string>(object);
  if (nb::isinstance<nb::int_>(object)) return nb::cast<std::uint64_t>(object);
  return nb::cast<double>(object);
}

/// Text as a list of str or None, real numbers as float64 with NaN where undefined, counts as uint64, or as
/// float64 where one is undefined.
nb::object column(const Records& records, const std::string& key) {
  std::size_t index = 0;
  while (index < records.columns.size() && records.columns[index].key != key) ++index;
  if (index == records.columns.size()) throw nb::key_error(key.c_str());
  const ColumnType type = type_of(records, index);
  if (type == ColumnType::text) {
    nb::list out;
    for (const std::vector<Value>& row : records.rows) out.append(object_of(row[index]));
    return out;
  }
  bool defined = true;
  for (const std::vector<Value>& row : records.rows)
    defined = defined && !std::holds_alternative<std::monostate>(row[index]);
  if (type == ColumnType::count && defined) {
    std::vector<std::uint64_t> counts;
    for (const std::vector<Value>& row : records.rows) counts.push_back(std::get<std::uint64_t>(row[index]));
    const std::size_t n = counts.size();
    return owned_array(std::move(counts), {n});
  }
  std::vector<double> numbers;
  for (const std::vector<Value>& row : records.rows)
    numbers.push_back(analysis::number(row[index]).value_or(std::numeric_limits<double>::quiet_NaN()));
  const std::size_t n = numbers.size();
  return owned_array(std::move(numbers), {n});
}

nb::list columns(const Records& records) {
  nb::list out;
  for (const analysis::ColumnInfo& info : records.columns)
    out.append(nb::make_tuple(info.key, info.unit, info.description));
  return out;
}

nb::object arrow(const Records& records) {
  const auto release = [](PyObject* capsule) {
    auto* const stream = static_cast<ArrowArrayStream*>(PyCapsule_GetPointer(capsule, "arrow_array_stream"));
    if (stream->release != nullptr) stream->release(stream);
    delete stream;
  };
  return nb::steal(PyCapsule_New(arrow_stream(records), "arrow_array_stream", release));
}

using PickledState = std::tuple<nb::list, nb::list>;

PickledState state_of(const Records& records) {
  nb::list rows;
  for (const std::vector<Value>& row : records.rows) {
    nb::list fields;
    for (const Value& field : row) fields.append(object_of(field));
    rows.append(fields);
  }
  return {columns(records), rows};
}

void set_state(Records& records, const PickledState& state) {
  new (&records) Records();
  for (const nb::handle info : std::get<0>(state)) {
    const auto [key, unit, description] = nb::cast<std::tuple<std::string, std::string, std::string>>(info);
    records.columns.push_back({key, unit, description});
  }
  for (const nb::handle row : std::get<1>(state)) {
    std::vector<Value> fields;
    for (const nb::handle field : row) fields.push_back(value_of(field));
    if (fields.size() != records.columns.size())
      throw nb::value_error("a row with another number of fields than columns");
    records.rows.push_back(std::move(fields));
  }
}

template <void (*write)(std::ostream&, const Records&)>
std::string printed(const Records& records) {
  std::ostringstream text;
  write(text, records);
  return text.str();
}

}  // namespace

void bind_records(nb::module_& module) {
  nb::class_<Records>(module, "Records", "Rows of named fields; kvsim.Table is what users see of it.")
      .def("__len__", [](const Records& records) { return records.rows.size(); })
      .def("columns", columns, "(key, unit, description) of every column")
      .def("column", column, nb::arg("key"))
      .def("arrow_stream", arrow, "An arrow_array_stream capsule")
      .def("text", printed<analysis::write_md>, "A table in Markdown")
      .def("jsonl", printed<analysis::write_jsonl>, "An object per line")
      .def("__getstate__", state_of)
      .def("__setstate__", set_state);
}

}  // namespace kvsim::python
