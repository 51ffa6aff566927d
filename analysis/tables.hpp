#pragma once
/// Writes rows as text: aligned table for people, csv, json, jsonl and md from the same columns. Numbers are printed
/// shortest-exact in the machine formats, so equal results are equal bytes.
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/rows.hpp"

namespace kvsim::analysis {

enum class Format { table, csv, json, jsonl, md };
/// Throws Error(usage) with the nearest names.
Format parse_format(std::string_view name);

/// What the results are a pure function of; the `inputs` of the json document.
struct Inputs {
  struct TraceId {
    std::string name, content_sha256;
    std::uint64_t prompt = 0, decode = 0;
  };
  std::vector<TraceId> traces;
  std::vector<std::string> policies, budgets;
  std::string scope;
  std::uint64_t seed = 0;
};

void write_rows(std::ostream& out, Format format, const std::vector<Row>& rows, const Inputs& inputs);

}  // namespace kvsim::analysis
