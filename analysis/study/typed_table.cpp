#include "analysis/study/typed_table.hpp"

#include <algorithm>

#include "analysis/numbers.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::analysis {
namespace {

std::string quoted_field(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

std::string real_text(double value) {
  std::string text = exact_text(value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string field_text(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return quoted_field(*text);
  if (const auto* whole = std::get_if<std::uint64_t>(&value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value)) return real_text(*real);
  return {};
}

std::string head(const std::vector<ColumnInfo>& columns) {
  std::string out;
  for (const ColumnInfo& column : columns) out += (out.empty() ? "" : ",") + column.key;
  return out + '\n';
}

/// Walks through the fields of a text.
class Reader {
 public:
  Reader(std::string_view text, const std::string& where) : rest_(text), where_(where) {}

  bool done() const { return rest_.empty(); }

  void expect(const std::string& line) {
    if (!rest_.starts_with(line)) fail();
    take(line.size());
  }

  Value field() {
    if (rest_.starts_with('"')) return text();
    const std::string_view plain = rest_.substr(0, rest_.find_first_of(",\n"));
    take(plain.size());
    if (plain.empty()) return {};
    if (plain.find_first_of(".e") == std::string_view::npos) {
      if (const auto whole = number_of<std::uint64_t>(plain)) return *whole;
    } else if (const auto real = number_of<double>(plain)) {
      return *real;
    }
    fail();
  }

  void expect_char(char c) {
    if (!rest_.starts_with(c)) fail();
    take(1);
  }

 private:
  std::string text() {
    std::string out;
    for (take(1);;) {
      const std::size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) fail();
      out += rest_.substr(0, quote);
      take(quote + 1);
      if (!rest_.starts_with('"')) return out;
      out += '"';
      take(1);
    }
  }

  void take(std::size_t n) {
    taken_ += n;
    rest_.remove_prefix(n);
  }

  [[noreturn]] void fail() const {
    input_error("is not as kvsim wrote it (byte " + std::to_string(taken_) + ")", where_,
                "Remove the folder it lies in: its task is then run again.");
  }

  std::string_view rest_;
  const std::string& where_;
  std::size_t taken_ = 0;
};

}  // namespace

std::string typed_text(const Records& records) {
  std::string out = head(records.columns);
  for (const std::vector<Value>& row : records.rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) out += ',';
      out += field_text(row[i]);
    }
    out += '\n';
  }
  return out;
}

std::vector<std::vector<Value>> typed_rows(std::string_view text, const std::vector<ColumnInfo>& columns,
                                           const std::string& where) {
  Reader reader(text, where);
  reader.expect(head(columns));
  std::vector<std::vector<Value>> rows;
  while (!reader.done()) {
    std::vector<Value>& row = rows.emplace_back();
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) reader.expect_char(',');
      row.push_back(reader.field());
    }
    reader.expect_char('\n');
  }
  return rows;
}

}  // namespace kvsim::analysis
