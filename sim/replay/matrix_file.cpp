#include "sim/replay/matrix_file.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <numeric>
#include <optional>
#include <string_view>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/read_file.hpp"
#include "sim/base/split.hpp"

namespace kvsim::sim {
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
