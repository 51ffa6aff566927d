#include "analysis/results/table_look.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/plain_name.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

thread_local TableLook unlimited;
thread_local TableLook* look_of_thread = &unlimited;

}  // namespace

bool TableLook::asks_for(const std::string& column) const {
  return std::ranges::any_of(columns,
                             [&](const std::string& name) { return plain_name(name) == plain_name(column); });
}

void TableLook::check_columns() const {
  if (columns.empty()) return;
  if (there.empty())
    usage_error("no table was printed", "--columns",
                "It chooses among columns of tables; files have them all.");
  for (const std::string& name : columns)
    if (std::ranges::none_of(
            there, [&](const std::string& column) { return plain_name(name) == plain_name(column); }))
      usage_error("no column of this name", "--columns " + name,
                  suggestion(name, {there.begin(), there.end()}));
}

TableLook& table_look() {
  return *look_of_thread;
}

UseTableLook::UseTableLook(TableLook& look) : before_(std::exchange(look_of_thread, &look)) {}

UseTableLook::~UseTableLook() {
  look_of_thread = before_;
}

}  // namespace kvsim::analysis
