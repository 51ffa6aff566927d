#pragma once
/// What people write for `kvsim cost estimate` and `fit`, as numbers.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/cost/cost_fit.hpp"

namespace kvsim::tools {

/// How many of something: digits only, at least 1; `hint` is what messages end with.
std::uint64_t parse_count(std::string_view text, const std::string& where, const std::string& hint = "");

/// A time above zero: 2s, 50ms, 800us.
double parse_seconds(std::string_view text, const std::string& where);
/// A share from 0% to 100%.
double parse_share(std::string_view text, const std::string& where);

/// Values of one quantity: of a comma list, `low..high:xF` multiplies by F, `low..high:+S` adds S.
struct SweepAxis {
  std::string name{};                 ///< prompt-tokens, generate, batch or budget
  std::vector<std::string> values{};  ///< ranges spelled out
};
/// "prompt-tokens=1K..128K:x2,200K". Throws Error(usage), with the nearest names of axes.
SweepAxis parse_axis(std::string_view text);

/// Limits as typed; empty: not given.
struct LimitOptions {
  std::string memory{}, first_token{}, per_token{};  ///< "80GiB", "2s", "50ms"
};
/// Memory that is not given is the machine's. Throws Error(usage).
analysis::CostLimits parse_limits(const LimitOptions& options, std::uint64_t machine_memory);

/// Options of how it is served, as typed; empty: not given.
struct ServingOptions {
  std::string stored_kv_heads{}, kv = "fp16", page{}, chunk{}, tensor_parallel = "1", attention = "flash",
                                 rows = "written";
  bool head_pages = false, padded = false, holes = false, preallocated = false;
  std::vector<std::string> offload{};  ///< "weights=50%", "cache=80%", "cache-ssd=20%"
  std::string buffer{}, hit_rate{}, prefetch{};
  double cache_traffic = 1, host_floor_ms = 0, row_share = 0.1;
  std::optional<double> weight_bits{};  ///< absent: the model's
};
/// All but prompt, generate and batch. Throws Error(usage) with the nearest names.
cost::Serving parse_serving(const ServingOptions& options, const cost::Model& model);

}  // namespace kvsim::tools
