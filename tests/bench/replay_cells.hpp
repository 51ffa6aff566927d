#pragma once
/// What benchmarks of replay have in common: a synthetic trace of one layer, and the cells that are replayed
/// on it.
#include <string>
#include <vector>

#include "policies/builtin.hpp"
#include "sim/replay/replay.hpp"
#include "traces/workloads/synthetic.hpp"

namespace kvsim::bench {

inline sim::Request study(const std::vector<std::string>& policies, const std::string& budgets,
                          unsigned threads) {
  sim::Request request;
  request.threads = threads;
  for (const sim::Budget& budget : sim::parse_budgets(budgets))
    for (const std::string& policy : policies)
      request.cells.push_back({policy::parse_composition(policy, policy::builtin()), budget});
  return request;
}

inline void run(const trace::MemoryTrace& trace, const sim::Request& request) {
  Progress progress;
  sim::replay(trace::Sequence(trace), request, progress);
}

/// `heads` KV heads with four query heads each, d = 128, `length` tokens of which `decode` are generated: by
/// default as many as capture generates.
inline trace::MemoryTrace make(std::uint32_t heads, std::uint64_t length, Elem elem = Elem::bf16,
                               std::uint64_t decode = 64) {
  trace::SyntheticOptions options;
  options.elem = elem;
  options.layers = 1;
  options.kv_heads = heads;
  options.group = 4;
  options.head_dim = 128;
  options.decode = decode;
  options.prompt = length - options.decode;
  return trace::synthetic_trace(options);
}

}  // namespace kvsim::bench
