#include "analysis/results/diff.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "analysis/results/reading/column_types.hpp"

namespace kvsim::analysis {
namespace {

bool holds_text(const Records& records, std::size_t column) {
  return std::ranges::any_of(records.rows, [&](const std::vector<Value>& row) {
    return std::holds_alternative<std::string>(row[column]);
  });
}

/// Counts that say what a row is about.
bool is_index_key(const std::string& key) {
  return key == "layer" || key == "head" || key == "step" || key == "seed" || key == "bits";
}

/// Text that a run came to, which does not say what a row is about.
bool is_outcome(const std::string& key) {
  return key == "generated";
}

/// A column that both tables have.
struct Shared {
  std::string key{};
  std::size_t a = 0, b = 0;
};

/// What changed in one column.
struct Changes {
  std::uint64_t count = 0;
  std::optional<double> largest{}, largest_relative{};
  Value a{}, b{};       ///< where the difference is largest, or one side undefined
  std::size_t row = 0;  ///< of A, there

  void add(const Value& of_a, const Value& of_b, std::size_t row_of_a) {
    const std::optional<double> x = number(of_a), y = number(of_b);
    bool show = count++ == 0;
    if (x && y) {
      const double difference = std::abs(*x - *y);
      const double relative = difference / std::max(std::abs(*x), std::abs(*y));
      show = show || difference > largest.value_or(0);
      largest = std::max(largest.value_or(0), difference);
      largest_relative = std::max(largest_relative.value_or(0), relative);
    }
    if (!show) return;
    a = of_a;
    b = of_b;
    row = row_of_a;
  }
};

bool same(const Value& a, const Value& b, double tolerance) {
  const std::optional<double> x = number(a), y = number(b);
  if (!x || !y) return a == b;
  return std::abs(*x - *y) <= tolerance * std::max({1.0, std::abs(*x), std::abs(*y)});
}

/// Compares one table of each side.
class TablePair {
 public:
  TablePair(const NamedTable& a, const NamedTable& b, double tolerance, Comparison& out)
      : name_(a.name), a_(a.records), b_(b.records), tolerance_(tolerance), out_(out) {
    for (std::size_t i = 0; i < a_.columns.size(); ++i) {
      const std::string& key = a_.columns[i].key;
      if (!has_column(b_, key)) continue;
      const std::size_t j = b_.column(key);
      const bool tells = !is_outcome(key) &&
                         (is_text_key(key) || is_index_key(key) || holds_text(a_, i) || holds_text(b_, j));
      (tells ? keys_ : values_).push_back({key, i, j});
    }
  }

  void compare() {
    ++out_.tables;
    lone_columns(a_, b_, "column only in A");
    lone_columns(b_, a_, "column only in B");
    pair_rows();
    compare_values();
  }

 private:
  void lone_columns(const Records& mine, const Records& theirs, const char* finding) {
    for (const ColumnInfo& column : mine.columns)
      if (!has_column(theirs, column.key))
        add({name_, finding, column.key, Value(), Value(), Value(), Value(), Value(), Value()});
  }

  /// Rows with equal keys, in order; what is left over is on one side only.
  void pair_rows() {
    struct Rows {
      std::vector<std::size_t> all{};
      std::size_t paired = 0;
    };
    std::map<std::string, Rows> of_b;
    for (std::size_t i = 0; i < b_.rows.size(); ++i) of_b[identity(b_, i, &Shared::b)].all.push_back(i);
    std::vector<std::size_t> only_a, only_b;
    for (std::size_t i = 0; i < a_.rows.size(); ++i) {
      const auto found = of_b.find(identity(a_, i, &Shared::a));
      if (found == of_b.end() || found->second.paired == found->second.all.size())
        only_a.push_back(i);
      else
        pairs_.emplace_back(i, found->second.all[found->second.paired++]);
    }
    for (const auto& [key, rows] : of_b)
      only_b.insert(only_b.end(), rows.all.begin() + static_cast<std::ptrdiff_t>(rows.paired),
                    rows.all.end());
    std::ranges::sort(only_b);
    lone_rows(only_a, a_, &Shared::a, "rows only in A");
    lone_rows(only_b, b_, &Shared::b, "rows only in B");
    out_.rows += pairs_.size();
  }

  void lone_rows(const std::vector<std::size_t>& rows, const Records& records, std::size_t Shared::*side,
                 const char* finding) {
    if (rows.empty()) return;
    add({name_, finding, Value(), std::uint64_t{rows.size()}, Value(), Value(), Value(), Value(),
         label(records, rows.front(), side)});
  }

  void compare_values() {
    for (const Shared& column : values_) {
      Changes changes;
      for (const auto& [i, j] : pairs_) {
        const Value &of_a = a_.rows[i][column.a], &of_b = b_.rows[j][column.b];
        if (!same(of_a, of_b, tolerance_)) changes.add(of_a, of_b, i);
      }
      out_.values += pairs_.size();
      if (changes.count > 0)
        add({name_, "changed", column.key, changes.count, value_of(changes.largest),
             value_of(changes.largest_relative), changes.a, changes.b, label(a_, changes.row, &Shared::a)});
    }
  }

  std::string identity(const Records& records, std::size_t row, std::size_t Shared::*side) const {
    std::string text;
    for (const Shared& key : keys_) text += exact_field(records.rows[row][key.*side], "") + '\x1f';
    return text;
  }

  /// What tells a row from the others.
  std::string label(const Records& records, std::size_t row, std::size_t Shared::*side) {
    if (!telling_) find_telling_keys();
    std::string text;
    for (const Shared& key : *telling_) {
      const Value& value = records.rows[row][key.*side];
      if (std::holds_alternative<std::monostate>(value)) continue;
      text += (text.empty() ? "" : " ") + key.key + '=' + exact_field(value, "");
    }
    return text;
  }

  /// Keys without which fewer rows could be told apart.
  void find_telling_keys() {
    telling_.emplace();
    std::size_t told_apart = 1;
    for (const Shared& key : keys_) {
      telling_->push_back(key);
      std::set<std::string> labels;
      for (std::size_t i = 0; i < a_.rows.size(); ++i) labels.insert(label(a_, i, &Shared::a));
      for (std::size_t i = 0; i < b_.rows.size(); ++i) labels.insert(label(b_, i, &Shared::b));
      if (labels.size() > told_apart)
        told_apart = labels.size();
      else
        telling_->pop_back();
    }
  }

  void add(std::vector<Value> finding) { out_.findings.rows.push_back(std::move(finding)); }

  const std::string& name_;
  const Records &a_, &b_;
  const double tolerance_;
  Comparison& out_;
  std::vector<Shared> keys_, values_;
  std::optional<std::vector<Shared>> telling_;
  std::vector<std::pair<std::size_t, std::size_t>> pairs_;
};

const NamedTable* find_table(const std::vector<NamedTable>& tables, const std::string& name) {
  const auto found =
      std::ranges::find_if(tables, [&](const NamedTable& table) { return table.name == name; });
  return found == tables.end() ? nullptr : &*found;
}

}  // namespace

Comparison compare(const std::vector<NamedTable>& a, const std::vector<NamedTable>& b, double tolerance) {
  Comparison out;
  out.findings.columns = {
      {"table", "", "of a study; results: of a file"},
      {"finding", "", "changed; rows, column or table only in A or B"},
      {"column", "", "in which values changed, or that is missing"},
      {"count", "", "values that changed, or rows"},
      {"largest_difference", "as the column", "largest |a - b|"},
      {"largest_relative", "ratio", "largest |a - b| / max(|a|, |b|)"},
      {"a", "as the column", "A's value where they differ most"},
      {"b", "as the column", "B's value there"},
      {"row", "", "which row that is, or the first of those rows: fields that tell it from the others"},
  };
  const auto lone = [&](const NamedTable& table, const char* finding) {
    out.findings.rows.push_back({table.name, finding, Value(), std::uint64_t{table.records.rows.size()},
                                 Value(), Value(), Value(), Value(), Value()});
  };
  for (const NamedTable& table : a) {
    if (const NamedTable* other = find_table(b, table.name))
      TablePair(table, *other, tolerance, out).compare();
    else
      lone(table, "table only in A");
  }
  for (const NamedTable& table : b)
    if (find_table(a, table.name) == nullptr) lone(table, "table only in B");
  return out;
}

}  // namespace kvsim::analysis
