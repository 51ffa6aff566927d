#pragma once
/// Tables of a page: sorted by a click or a key, scrolled on a narrow screen, plain tables without script.
#include <string>
#include <vector>

#include "analysis/report/html.hpp"
#include "analysis/results/records.hpp"

namespace kvsim::analysis {

struct SortableTable {
  struct Column {
    std::string title{};
    std::string explained{};  ///< shown on hovering; may be empty
    bool numeric = false;
  };
  struct Cell {
    std::string shown{};
    std::string order{};  ///< exact number to sort by; empty: by what is shown
    std::string small{};  ///< second line: an interval
    bool marked = false;  ///< the best of its column
  };
  std::string caption{};  ///< names in `backquotes`
  std::vector<Column> columns{};
  std::vector<std::vector<Cell>> rows{};  ///< one cell per column; the first names the row
};

void write_table(Html& html, const SortableTable& table);

/// Any records, numbers rounded for people: at most `most_rows` of them. The caption says when that is less.
SortableTable table_of(const Records& records, const std::string& caption, std::size_t most_rows);

}  // namespace kvsim::analysis
