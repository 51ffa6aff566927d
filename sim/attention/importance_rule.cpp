#include "sim/attention/importance_rule.hpp"

#include "policies/api/option_list.hpp"

namespace kvsim::sim {

ImportanceRule parse_importance(std::string_view text) {
  static const std::vector<ParamSpec> specs = {
      {.name = "rows", .type = ParamType::count, .fallback = "8", .min = 1, .max = 1 << 20},
      {.name = "pool", .type = ParamType::pool, .fallback = "avg:7"}};
  const policy::Params params = policy::option_list(text, specs, "importance");
  return {params.count("rows"), policy::Pooling::parse(params.word("pool")), params.text()};
}

}  // namespace kvsim::sim
