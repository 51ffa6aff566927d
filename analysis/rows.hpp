#pragma once
/// Tidy result rows: one per trace x cell x scope. The keys, their order and their descriptions stand here once; every
/// export and the metric documentation follow.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/replay.hpp"

namespace kvsim::analysis {

enum class Scope { all, layer, head };

struct Row {
  std::string trace, policy, params, budget;
  std::optional<std::uint64_t> budget_tokens;
  Scope scope = Scope::all;
  std::optional<std::uint32_t> layer, head;  ///< null above their scope
  std::optional<double> r, r_oracle, isr;
  std::optional<double> attention_loss, attention_loss_oracle, output_error;
  std::optional<double> kept_tokens;
  std::optional<std::uint64_t> kept_bytes;
  std::string skipped;  ///< not a key: why metrics are null; shown as a note
};

/// How a column is called, typed and explained.
struct Column {
  const char* key;
  const char* unit;
  const char* description;
  bool text;  ///< text columns are left-aligned and quoted in JSON
};
const std::vector<Column>& columns();

/// Rows of every cell of one outcome at one scope, in the order of the request.
std::vector<Row> make_rows(const std::string& trace_name, const sim::Request& request, const sim::Outcome& outcome,
                           Scope scope);

}  // namespace kvsim::analysis
