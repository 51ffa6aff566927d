#pragma once
/// What two results say differently.
#include <cstdint>
#include <vector>

#include "analysis/results/records.hpp"

namespace kvsim::analysis {

struct Comparison {
  Records findings{};  ///< described; one row per difference found, none when there is none
  std::uint64_t tables = 0, rows = 0, values = 0;  ///< compared: found on both sides
};

/// Tables are paired by name, columns by key, rows by the fields that say what they are about: text, and
/// layer, head, step, seed, bits. Rows that agree in all of those are paired in order. Two numbers are the
/// same when |a - b| <= tolerance * max(1, |a|, |b|): absolute for shares, relative for what is larger.
/// Undefined is the same as undefined only.
Comparison compare(const std::vector<NamedTable>& a, const std::vector<NamedTable>& b, double tolerance);

}  // namespace kvsim::analysis
