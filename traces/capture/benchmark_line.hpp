#pragma once
/// Lines of other projects' benchmarks as prompts: RULER (github.com/NVIDIA/RULER, scripts/data) and
/// LongBench (huggingface.co/datasets/THUDM/LongBench). traces/workloads/README.md says what becomes of their
/// fields.
#include <string>

#include "sim/base/strict_json.hpp"
#include "traces/capture/workload_item.hpp"

namespace kvsim::capture {

/// Recognised by its fields; what they hold is not looked at.
enum class LineFormat {
  kvsim,      ///< spans, or prompt and id
  ruler,      ///< input, outputs
  longbench,  ///< context, input, answers
  unknown
};
LineFormat line_format(const JsonObject& line);

/// Throws Error(input) with the fields that a line of no known format has, and those that the formats have.
[[noreturn]] void refuse_line(const JsonObject& line);

/// The id of the item that a line becomes: `index` of RULER, `_id` of LongBench.
std::string benchmark_id(const JsonObject& line);
/// Throws Error(input) naming the field.
WorkloadItem ruler_item(const JsonObject& line);
WorkloadItem longbench_item(const JsonObject& line);

}  // namespace kvsim::capture
