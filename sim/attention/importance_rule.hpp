#pragma once
/// How the importance w behind R, R_avg and ISR is measured. The default is the paper's; other rules show how
/// sensitive R is to it.
#include <cstddef>
#include <string>
#include <string_view>

#include "policies/api/call_syntax.hpp"
#include "policies/parts/rows/pooling.hpp"

namespace kvsim::sim {

/// The parameters of XKV's w (policies/parts/rows/window_rows.hpp; arXiv 2412.05896).
struct ImportanceRule {
  std::size_t rows = 8;  ///< last prompt rows that are averaged, at least 1
  policy::Pooling pooling{policy::Pooling::Kind::average, 7};
  std::string text = "rows=8,pool=avg:7";  ///< canonical
};

/// Parses "rows=8,pool=avg:7"; a parameter that is left out has its default. Throws Error(usage).
inline ImportanceRule parse_importance(std::string_view text) {
  static const std::vector<ParamSpec> specs = {
      {.name = "rows", .type = ParamType::count, .fallback = "8", .min = 1, .max = 1 << 20},
      {.name = "pool", .type = ParamType::pool, .fallback = "avg:7"}};
  const policy::Params params = policy::option_list(text, specs, "importance");
  return {params.count("rows"), policy::Pooling::parse(params.word("pool")), params.text()};
}

}  // namespace kvsim::sim
