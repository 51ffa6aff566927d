#pragma once
/// kvsim cost allocators: what ways to give out cache memory leave unused, for requests of given lengths.
#include <cstdint>
#include <iosfwd>
#include <string>

#include "analysis/results/records.hpp"

namespace kvsim::tools {

struct AllocatorQuestion {
  std::string requests{};  ///< csv with columns prompt and generated, in tokens, in order of arrival
  std::string model{}, machine{};
  std::string page = "16", max_tokens{};  ///< empty: the model's context
};

/// One row per allocator, over the memory that weights and runtime leave. Throws Error(usage) where a request
/// does not fit, or when all of them fit at once and no memory is ever short; Error(input) for files.
analysis::Records allocator_records(const AllocatorQuestion& question);
void write_allocator_table(std::ostream& out, const AllocatorQuestion& question,
                           const analysis::Records& records);

}  // namespace kvsim::tools
