#include "analysis/view/view_answers.hpp"

#include <algorithm>

#include "sim/base/error.hpp"
#include "sim/base/joined.hpp"

namespace kvsim::analysis {
namespace {

std::optional<bool> yes_or_no(const Value& field) {
  const auto value = number(field);
  return value ? std::optional(*value != 0) : std::nullopt;
}

}  // namespace

void add_answers(const Records& rows, const std::vector<std::string>& items,
                 const std::vector<sim::Cell>& cells, const std::string& where, CacheView& view) {
  for (const char* key :
       {"item", "params", "budget", "cut", "mode", "right", "right_full", "generated", "skipped"})
    if (!has_column(rows, key))
      input_error("has no column '" + std::string(key) + "'", where,
                  "Give rows of kvsim evaluate: --format csv, in --mode greedy or both.");
  const std::size_t item = rows.column("item"), params = rows.column("params"),
                    budget = rows.column("budget"), cut = rows.column("cut"), mode = rows.column("mode"),
                    right = rows.column("right"), full = rows.column("right_full"),
                    generated = rows.column("generated"), skipped = rows.column("skipped");
  bool any = false;
  for (const std::vector<Value>& row : rows.rows) {
    if (exact_field(row[mode]) != "greedy" || !exact_field(row[skipped]).empty() ||
        std::ranges::find(items, exact_field(row[item])) == items.end())
      continue;
    for (ViewedCut& viewed : view.cuts) {
      if (viewed.text != exact_field(row[cut])) continue;
      if (!viewed.full_right) viewed.full_right = yes_or_no(row[full]);
      for (std::size_t i = 0; i < cells.size(); ++i)
        if (!viewed.cells[i].answer && cells[i].composition.params == exact_field(row[params]) &&
            cells[i].budget.text == exact_field(row[budget])) {
          viewed.cells[i].answer = {exact_field(row[generated]), yes_or_no(row[right])};
          any = true;
        }
    }
  }
  if (!any)
    input_error("has no answer to " + joined(items, " or ") +
                    " through these policies' caches at these budgets and cuts",
                where, "Evaluate the same policies, budgets and cuts on the item that was recorded.");
}

}  // namespace kvsim::analysis
