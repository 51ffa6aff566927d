#include "analysis/loop/seam_rows.hpp"

namespace kvsim::analysis {

const std::vector<ColumnInfo>& seam_columns() {
  static const std::vector<ColumnInfo> all = {
      {"item", "", "the prompt"},
      {"workload", "", "its kind"},
      {"model", "", "of the run"},
      {"prefill", "", "how the prompt was put together"},
      {"layer", "index", "layer of the model, from 0"},
      {"distance", "tokens", "from where a token's document begins, at least"},
      {"distance_end", "tokens", "below which it is"},
      {"tokens", "tokens", "that stand so, over which the others are means"},
      {"key_l2", "share", "|k' - k| / |k| of keys, all heads together; k of the prompt that is read whole"},
      {"value_l2", "share", "|v' - v| / |v| of values"},
      {"attention_moved", "share",
       "of what the whole prompt's query attends, that which falls on other keys; mean over heads"},
      {"output_l2", "share", "|o' - o| / |o| of what that query reads, all heads together"},
  };
  return all;
}

std::vector<std::vector<Value>> seam_rows(const capture::WorkloadItem& item, const std::string& model,
                                          const std::string& prefill,
                                          std::span<const sim::SeamError> errors) {
  std::vector<std::vector<Value>> rows;
  for (const sim::SeamError& error : errors)
    rows.push_back({item.id, item.kind, model, prefill, std::uint64_t{error.layer}, error.from, error.to,
                    error.tokens, error.key, error.value, error.attention, error.output});
  return rows;
}

}  // namespace kvsim::analysis
