#include "sim/replay/table_files.hpp"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "sim/replay/decisions.hpp"
#include "traces/format/hdf5_input.hpp"

namespace kvsim::sim {
namespace {

constexpr std::string_view kTrace = "{trace}";
constexpr const char* kHint = "Make it for this trace, or leave the policy out for it.";

/// `one_of_many`: that the path is not there is said of this trace, not of the file.
hdf5::InputDataset open(const hdf5::InputGroup& group, const std::string& path, std::size_t rank,
                        bool one_of_many) {
  const std::size_t slash = path.find('/');
  if (slash == 0) return open(group, path.substr(1), rank, one_of_many);
  const std::string name = path.substr(0, slash);
  if (!group.has(name)) {
    if (one_of_many) usage_error("is not there for this trace", group.where(name), kHint);
    input_error("is missing", group.where(name), kHint);
  }
  if (slash != std::string::npos) return open(group.group(name), path.substr(slash + 1), rank, one_of_many);
  return group.dataset(path, {hdf5::Type::f32, hdf5::Type::f64, hdf5::Type::u8}, rank);
}

template <class Stored>
std::vector<float> values(const hdf5::InputDataset& dataset, std::size_t n) {
  std::vector<Stored> stored(n);
  dataset.read_all(stored.data());
  return {stored.begin(), stored.end()};
}

/// "0003" of "cells/0003/last_step"; empty: the dataset is another.
std::string cell_of(const std::string& dataset) {
  const std::string_view before = "cells/", after = "/last_step";
  if (!dataset.starts_with(before) || !dataset.ends_with(after)) return {};
  return dataset.substr(before.size(), dataset.size() - before.size() - after.size());
}

/// Whole numbers up to here are exact in f32.
constexpr std::uint64_t kMostTableSteps = 1U << 24;

}  // namespace

TableFiles::TableFiles(const trace::Sequence& sequence, std::string name)
    : name_(name.empty() ? std::filesystem::path(sequence.source().name()).stem().string() : std::move(name)),
      content_sha256_(sequence.source().content_sha256()),
      prompt_sha256_(prompt_digest(sequence)),
      n_layers_(sequence.model().n_layers),
      n_kv_heads_(sequence.model().n_kv_heads),
      head_dim_(sequence.model().head_dim),
      value_dim_(sequence.model().v_head_dim),
      length_(sequence.length()),
      prompt_(sequence.prompt_length()) {}

void TableFiles::give(const std::string& dataset, std::vector<std::size_t> dims, std::vector<float> table) {
  loaded_[{std::string(kOfRun), dataset, std::move(dims)}] = std::move(table);
  second_pass_ = true;
}

std::string TableFiles::expanded(std::string_view text) const {
  std::string out(text);
  for (std::size_t at = out.find(kTrace); at != std::string::npos; at = out.find(kTrace, at + name_.size()))
    out.replace(at, kTrace.size(), name_);
  return out;
}

std::string TableFiles::expanded_file(std::string_view file) const {
  std::string out = expanded(file);
  if (out != file && !std::filesystem::exists(out))
    usage_error("there is no such file for this trace", out, kHint);
  return out;
}

std::vector<float> TableFiles::load_last_steps(const std::string& file, const std::string& cell) const {
  const Decisions decisions = read_decisions(file);
  const std::string where = file + ":/cells/" + cell;
  std::size_t index = 0;
  std::from_chars(cell.data(), cell.data() + cell.size(), index);
  if (index >= decisions.cells.size())
    input_error("is not there; the file has " + std::to_string(decisions.cells.size()) + " cells", where,
                "Cells are numbered from 0, as the rows of the run that made them.");
  if (!decisions.cells[index].skipped.empty())
    input_error("did not run: " + decisions.cells[index].skipped, where);
  if (decisions.n_layers != n_layers_ || decisions.n_kv_heads != n_kv_heads_)
    input_error("is of a model of " + std::to_string(decisions.n_layers) + " layers of " +
                    std::to_string(decisions.n_kv_heads) + " KV heads; this one has " +
                    std::to_string(n_layers_) + " of " + std::to_string(n_kv_heads_),
                file, "It was made for another run.");
  if (decisions.prompt != prompt_)
    input_error("is of a prompt of " + std::to_string(decisions.prompt) +
                    " tokens before the cut; here are " + std::to_string(prompt_),
                file, "Make it for the same prompt at the same cut.");
  const std::uint64_t n = prompt_ + decisions.decode;
  if (n >= kMostTableSteps) input_error("has more steps than can be followed", file);
  std::vector<float> out(n_layers_ * n_kv_heads_ * n, 0.0F);
  for (std::size_t lane = 0; lane < n_layers_ * n_kv_heads_; ++lane) {
    for (const ResidentInterval& stay : decisions.cells[index].resident_intervals[lane]) {
      const auto position = static_cast<std::uint64_t>(stay.position);
      const std::uint64_t arrival = position < prompt_ ? 0 : position + 1 - prompt_;
      if (position >= n || stay.first != arrival || out[lane * n + position] > 0)
        input_error("position " + std::to_string(position) + " of lane " + std::to_string(lane) +
                        " is not held from its own step to one end",
                    where + "/first_step");
      out[lane * n + position] = static_cast<float>(stay.last);
    }
  }
  return out;
}

std::vector<float> TableFiles::load(const std::string& file, const std::string& dataset,
                                    std::span<const std::size_t> dims) const {
  const hdf5::InputFile input(file);
  const hdf5::InputDataset table =
      open(input.root(), expanded(dataset), 2 + dims.size(), dataset.find(kTrace) != std::string::npos);
  std::vector<std::uint64_t> expected{n_layers_, n_kv_heads_};
  bool by_position = false;
  for (const std::size_t dim : dims) {
    if (dim == kPositions) {
      by_position = true;
      const std::uint64_t n = table.dims()[expected.size()];
      if (n == 0 || n > length_)
        input_error(
            "has numbers for " + std::to_string(n) + " positions, the run has " + std::to_string(length_),
            table.where(), "It was made for another run.");
      expected.push_back(n);
    } else {
      expected.push_back(dim);
    }
  }
  table.expect(expected, dims.size() == 1 && by_position ? "the run's model (layers, KV heads, positions)"
                                                         : "the run's model and the policy's parameters");
  const std::size_t lanes = n_layers_ * n_kv_heads_;
  std::size_t total = 1;
  for (const std::uint64_t dim : expected) total *= dim;
  const std::size_t n = total / lanes;
  std::vector<float> out = table.type() == hdf5::Type::f32   ? values<float>(table, total)
                           : table.type() == hdf5::Type::f64 ? values<double>(table, total)
                                                             : values<std::uint8_t>(table, total);
  for (std::size_t i = 0; i < total; ++i)
    if (!std::isfinite(out[i]))
      input_error("layer " + std::to_string(i / n / n_kv_heads_) + ", KV head " +
                      std::to_string(i / n % n_kv_heads_) + ", " +
                      (dims.size() == 1 && by_position ? "position " : "number ") + std::to_string(i % n) +
                      " is not a finite f32",
                  table.where());
  return out;
}

std::vector<float> TableFiles::lane_of(const std::vector<float>& table, int layer, int kv_head) const {
  const std::size_t n = table.size() / (n_layers_ * n_kv_heads_);
  const std::size_t lane = static_cast<std::size_t>(layer) * n_kv_heads_ + static_cast<std::size_t>(kv_head);
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(lane * n);
  return {begin, begin + static_cast<std::ptrdiff_t>(n)};
}

std::vector<float> TableFiles::row(std::string_view file, std::string_view dataset, int layer,
                                   int kv_head) const {
  const std::string name(dataset);
  if (const std::string cell = cell_of(name); !cell.empty()) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& table = loaded_[{std::string(file), name, {}}];
    if (table.empty()) table = load_last_steps(expanded_file(file), cell);
    return lane_of(table, layer, kv_head);
  }
  return of_head(file, dataset, layer, kv_head, std::array{kPositions});
}

std::vector<float> TableFiles::of_head(std::string_view file, std::string_view dataset, int layer,
                                       int kv_head, std::span<const std::size_t> dims) const {
  const std::lock_guard lock(mutex_);
  std::vector<float>& table = loaded_[{std::string(file), std::string(dataset), {dims.begin(), dims.end()}}];
  if (table.empty()) table = load(expanded_file(file), std::string(dataset), dims);
  return lane_of(table, layer, kv_head);
}

const Calibration& TableFiles::calibration(const policy::CalibrationRequest& request) const {
  const std::string file = expanded_file(request.file);
  auto known = calibrations_.find(file);
  if (known == calibrations_.end()) known = calibrations_.emplace(file, read_calibration(file)).first;
  const Calibration& out = known->second;
  if (out.maker != request.maker)
    usage_error("was made for " + out.maker + ", not for " + request.maker, file,
                "Say what it was made for, or make another: kvsim calibrate.");
  if (out.n_layers != n_layers_ || out.n_kv_heads != n_kv_heads_ || out.head_dim != head_dim_ ||
      out.value_dim != value_dim_)
    input_error("is of another model: " + std::to_string(out.n_layers) + " layers of " +
                    std::to_string(out.n_kv_heads) + " KV heads of size " + std::to_string(out.head_dim) +
                    "; this one has " + std::to_string(n_layers_) + " of " + std::to_string(n_kv_heads_) +
                    " of size " + std::to_string(head_dim_),
                file, "A calibration serves the model that it was measured on.");
  const CalibrationTrace* own = measured_on(out, content_sha256_, prompt_sha256_);
  if (own != nullptr && !request.own_traces)
    usage_error("was measured on this run, as " + own->name + ": a test on it says nothing of other runs",
                file, "Calibrate on other traces, or say own_traces=allowed, which results will show.");
  return out;
}

std::vector<float> TableFiles::calibrated(const policy::CalibrationRequest& request, std::string_view table,
                                          int layer, int kv_head) const {
  const std::lock_guard lock(mutex_);
  const Calibration& from = calibration(request);
  const auto found = std::ranges::find(from.tables, table, &Calibration::Table::name);
  if (found == from.tables.end())
    input_error("is not there", request.file + ":/tables/" + std::string(table),
                "Make it anew: kvsim calibrate.");
  return lane_of(found->values, layer, kv_head);
}

std::vector<std::vector<double>> TableFiles::matrix(std::string_view file) const {
  return read_matrix(expanded_file(file));
}

namespace {

using Matrix = std::vector<std::vector<double>>;
namespace json = boost::json;

constexpr std::uint64_t kMostBytes = 64 << 20;
constexpr std::size_t kMostNumbers = 1 << 20;

Matrix parse_lines(std::string_view text, char separator, const std::string& file) {
  Matrix out;
  const std::vector<std::string_view> lines = split(text, '\n');
  for (std::size_t line = 0; line < lines.size(); ++line) {
    if (trimmed(lines[line]).empty()) continue;
    std::vector<double>& row = out.emplace_back();
    for (const std::string_view untrimmed : split(lines[line], separator)) {
      const std::string_view field = trimmed(untrimmed);
      const std::optional<double> number = number_of<double>(field);
      if (!number || !std::isfinite(*number))
        input_error("'" + std::string(field.substr(0, 40)) + "' is not a number",
                    file + ", line " + std::to_string(line + 1));
      row.push_back(*number);
    }
  }
  return out;
}

double real(const json::value& value, const std::string& where) {
  if (!value.is_number()) input_error("is not a number", where);
  const auto number = value.to_number<double>();
  if (!std::isfinite(number)) input_error("is not finite", where);
  return number;
}

std::vector<double> reals(const json::array& list, const std::string& where) {
  std::vector<double> out;
  for (std::size_t i = 0; i < list.size(); ++i)
    out.push_back(real(list[i], where + ", entry " + std::to_string(i)));
  return out;
}

Matrix rows(const json::array& list, const std::string& file) {
  Matrix out;
  for (std::size_t layer = 0; layer < list.size(); ++layer) {
    const std::string where = file + ", layer " + std::to_string(layer);
    if (const json::array* row = list[layer].if_array())
      out.push_back(reals(*row, where));
    else
      out.push_back({real(list[layer], where)});
  }
  return out;
}

struct Head {
  std::size_t layer, head;
};

Head head_of(std::string_view key, const std::string& where) {
  const std::size_t dash = std::min(key.find('-'), key.size());
  const auto layer = number_of<std::uint32_t>(key.substr(0, dash)),
             head = number_of<std::uint32_t>(key.substr(std::min(dash + 1, key.size())));
  if (!layer || !head) input_error("is not \"layer-head\"", where, "E.g. {\"0-0\": 0.2, \"0-1\": 0.7}");
  return {*layer, *head};
}

/// Reads "layer-head" keys, which must name every head of every layer exactly once.
Matrix heads(const json::object& object, const std::string& file) {
  std::vector<Head> named;
  std::size_t n_layers = 0, n_heads = 0;
  for (const auto& [key, value] : object) {
    named.push_back(head_of(key, file + ", '" + std::string(key) + "'"));
    n_layers = std::max(n_layers, named.back().layer + 1);
    n_heads = std::max(n_heads, named.back().head + 1);
  }
  if (n_layers * n_heads != named.size())
    input_error("names " + std::to_string(named.size()) + " heads, which are not all of " +
                    std::to_string(n_layers) + " layers of " + std::to_string(n_heads),
                file);
  Matrix out(n_layers, std::vector<double>(n_heads, std::nan("")));
  auto at = named.begin();
  for (const auto& [key, value] : object) {
    const std::string where = file + ", '" + std::string(key) + "'";
    const json::array* list = value.if_array();
    const std::vector<double> numbers = list ? reals(*list, where) : std::vector{real(value, where)};
    if (numbers.empty()) input_error("is an empty list", where);
    double& mean = out[at->layer][at->head];
    if (!std::isnan(mean)) input_error("names a head that has been named before", where);
    mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
    ++at;
  }
  return out;
}

Matrix parse_json(const std::string& text, const std::string& file) {
  json::error_code failed;
  const json::value value = json::parse(text, failed);
  if (failed) input_error("is not JSON: " + failed.message(), file);
  if (const json::array* list = value.if_array()) return rows(*list, file);
  const json::object* object = value.if_object();
  if (!object) input_error("holds neither rows nor heads", file);
  for (const char* name : {"shares", "tokens"}) {
    const json::value* numbers = object->if_contains(name);
    if (!numbers) continue;
    if (!numbers->is_array()) input_error("is not a list", file + ", '" + name + "'");
    return rows(numbers->get_array(), file);
  }
  return heads(*object, file);
}

}  // namespace

std::vector<std::vector<double>> read_matrix(const std::string& file) {
  Matrix out;
  if (file.ends_with(".json"))
    out = parse_json(read_regular_file(file, kMostBytes), file);
  else if (file.ends_with(".tsv"))
    out = parse_lines(read_regular_file(file, kMostBytes), '\t', file);
  else if (file.ends_with(".csv"))
    out = parse_lines(read_regular_file(file, kMostBytes), ',', file);
  else
    input_error("is of no known kind", file,
                "Numbers per layer and head are read from .json, .tsv and .csv.");
  std::size_t numbers = 0;
  for (const std::vector<double>& row : out) numbers += row.size();
  if (numbers == 0 || numbers > kMostNumbers)
    input_error("holds " + std::to_string(numbers) + " numbers: not a table of heads", file);
  return out;
}

}  // namespace kvsim::sim
