#include "analysis/results/reading/read_hdf5.hpp"

#include <cmath>
#include <sstream>

#include "analysis/results/document.hpp"
#include "analysis/results/hdf5_export.hpp"
#include "analysis/results/reading/column_types.hpp"
#include "sim/base/error.hpp"
#include "sim/base/read_file.hpp"
#include "traces/format/hdf5_input.hpp"

namespace kvsim::analysis {
namespace {

bool is_results(const hdf5::InputFile& file) {
  return file.root().has_attribute("format") && file.root().text("format") == kResultsFormat;
}

/// Of a comma list of names.
std::vector<std::string> names(const std::string& list) {
  std::istringstream rest(list);
  std::vector<std::string> out;
  for (std::string name; std::getline(rest, name, ',');) out.push_back(name);
  return out;
}

std::vector<Value> read_texts(const hdf5::InputDataset& dataset) {
  std::vector<Value> out;
  for (std::string& text : dataset.read_texts()) out.push_back(text_field(std::move(text)));
  return out;
}

template <class T>
std::vector<T> read_list(const hdf5::InputDataset& dataset) {
  std::vector<T> out(dataset.dims().front());
  dataset.read_all(out.data());
  return out;
}

std::vector<Value> read_numbers(const hdf5::InputDataset& dataset) {
  std::vector<Value> out;
  if (dataset.type() == hdf5::Type::u64) {
    for (const std::uint64_t count : read_list<std::uint64_t>(dataset)) out.emplace_back(count);
    return out;
  }
  for (const double number : read_list<double>(dataset)) {
    if (std::isinf(number)) input_error("holds a number that is not finite", dataset.where());
    out.push_back(std::isnan(number) ? Value() : Value(number));
  }
  return out;
}

Records read_table(const hdf5::InputGroup& group) {
  Records out;
  for (const std::string& key : names(group.text("columns"))) {
    const bool texts = group.holds_texts(key);
    const hdf5::InputDataset dataset =
        texts ? group.texts(key) : group.dataset(key, {hdf5::Type::u64, hdf5::Type::f64}, 1);
    std::vector<Value> fields = texts ? read_texts(dataset) : read_numbers(dataset);
    if (out.columns.empty()) out.rows.resize(fields.size());
    if (fields.size() != out.rows.size())
      input_error("has " + std::to_string(fields.size()) + " rows, unlike the first column", dataset.where());
    out.columns.push_back({key, dataset.text("unit"), dataset.text("description")});
    for (std::size_t row = 0; row < fields.size(); ++row) out.rows[row].push_back(std::move(fields[row]));
  }
  return out;
}

}  // namespace

bool holds_hdf5_results(const std::string& path) {
  return begins_with(path, "\x89HDF") && is_results(hdf5::InputFile(path));
}

std::vector<NamedTable> read_hdf5_tables(const std::string& path) {
  const hdf5::InputFile file(path);
  if (!is_results(file))
    input_error("is HDF5 that holds no results", path,
                "A trace is read by kvsim replay and kvsim trace, decisions by kvsim plot timeline.");
  const hdf5::InputGroup& root = file.root();
  if (!root.flag("complete")) input_error("is incomplete: its writer did not finish", path);
  if (root.count("schema_major", 0xffff) != kSchemaVersion)
    input_error("is of another schema version than " + std::to_string(kSchemaVersion), path,
                "Write it anew with this version of kvsim.");
  std::vector<NamedTable> out;
  for (const std::string& name : names(root.has_attribute("tables") ? root.text("tables") : "results"))
    if (name != kTracesTable) out.push_back({name, read_table(root.group(name))});
  return out;
}

}  // namespace kvsim::analysis
