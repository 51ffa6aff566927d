#include "analysis/results/hdf5_export.hpp"

#include <algorithm>
#include <limits>

#include "analysis/results/reading/column_types.hpp"
#include "sim/base/message_text.hpp"
#include "traces/format/hdf5_output.hpp"

namespace kvsim::analysis {
namespace {

/// One column of a table.
class ExportedColumn {
 public:
  ExportedColumn(const Records& records, std::size_t index) : records_(records), index_(index) {}

  void write(hid_t group, const std::string& where) const {
    const ColumnInfo& info = records_.columns[index_];
    if (is_text_key(info.key) || any<std::string>()) {
      hdf5::put_texts(group, info.key, texts(), where);
    } else if (all_whole()) {
      hdf5::put_list(group, info.key, wholes(), where);
    } else {
      hdf5::put_list(group, info.key, numbers(), where);
    }
    const hdf5::Object dataset(
        hdf5::check(H5Oopen(group, info.key.c_str(), H5P_DEFAULT), "cannot open " + info.key, where));
    hdf5::put_text(dataset.id(), "unit", info.unit, where);
    hdf5::put_text(dataset.id(), "description", info.description, where);
  }

 private:
  const Value& value(const std::vector<Value>& row) const { return row[index_]; }
  template <class T>
  bool any() const {
    return std::ranges::any_of(records_.rows,
                               [&](const auto& row) { return std::holds_alternative<T>(value(row)); });
  }
  bool all_whole() const { return !records_.rows.empty() && !any<std::monostate>() && !any<double>(); }

  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const auto& row : records_.rows) out.push_back(exact_field(value(row), ""));
    return out;
  }
  std::vector<std::uint64_t> wholes() const {
    std::vector<std::uint64_t> out;
    for (const auto& row : records_.rows) out.push_back(std::get<std::uint64_t>(value(row)));
    return out;
  }
  std::vector<double> numbers() const {
    std::vector<double> out;
    for (const auto& row : records_.rows)
      out.push_back(number(value(row)).value_or(std::numeric_limits<double>::quiet_NaN()));
    return out;
  }

  const Records& records_;
  std::size_t index_;
};

void put_attribute(hid_t object, const std::string& name, const Value& value, const std::string& where) {
  if (const auto* text = std::get_if<std::string>(&value)) hdf5::put_text(object, name, *text, where);
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) hdf5::put(object, name, *whole, where);
  if (const auto* real = std::get_if<double>(&value)) hdf5::put(object, name, *real, where);
}

void write_table(hid_t file, const NamedTable& table, const std::string& path) {
  const std::string where = path + ":/" + table.name;
  const hdf5::Object group = hdf5::create_group(file, table.name, path);
  std::vector<std::string> keys;
  for (const ColumnInfo& column : table.records.columns) keys.push_back(column.key);
  hdf5::put_text(group.id(), "columns", joined(keys, ","), where);
  for (std::size_t i = 0; i < keys.size(); ++i) ExportedColumn(table.records, i).write(group.id(), where);
}

NamedTable table_of(const std::vector<TraceId>& traces) {
  NamedTable out{kTracesTable,
                 {{{"trace", "", "trace file, as given"},
                   {"content_sha256", "", "hash of what it holds; empty: not known"},
                   {"prompt", "tokens", "length of the prompt, up to the cut"},
                   {"decode", "tokens", "behind it"},
                   {"cut", "", "where the prompt ends; empty: nothing was replayed"}},
                  {}}};
  for (const TraceId& trace : traces)
    out.records.rows.push_back({trace.name, trace.content_sha256, trace.prompt, trace.decode, trace.cut});
  return out;
}

}  // namespace

Hdf5Export::Hdf5Export(const std::string& path, bool overwrite)
    : file_(std::make_unique<hdf5::OutputFile>(path, overwrite)) {}

Hdf5Export::~Hdf5Export() = default;

void Hdf5Export::commit(const Document& document) {
  const hdf5::Session session;
  hdf5::put_text(file_->id(), "format", kResultsFormat, file_->path());
  hdf5::put<std::uint16_t>(file_->id(), "schema_major", kSchemaVersion, file_->path());
  hdf5::put_text(file_->id(), "analysis", document.analysis, file_->path());
  if (!document.loop.empty()) hdf5::put_text(file_->id(), "loop", document.loop, file_->path());
  for (const auto& [name, value] : document.settings) put_attribute(file_->id(), name, value, file_->path());
  std::vector<NamedTable> tables = document.tables;
  if (tables.empty()) tables = {{"results", document.records}, table_of(document.traces)};
  std::vector<std::string> names;
  for (const NamedTable& table : tables) names.push_back(table.name);
  hdf5::put_text(file_->id(), "tables", joined(names, ","), file_->path());
  for (const NamedTable& table : tables) write_table(file_->id(), table, file_->path());
  file_->commit();
}

}  // namespace kvsim::analysis
