#pragma once
/// Runs of documents alone, which several prompts share.
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "traces/format/memory_trace.hpp"

namespace kvsim::analysis {

class DocumentRuns {
 public:
  using Run = std::shared_ptr<const trace::MemoryTrace>;
  /// What a run depends on: its tokens, and the model's rotation, which may depend on how long a text
  /// becomes.
  struct Key {
    std::vector<std::int32_t> ids;
    std::vector<float> frequencies;
    Elem elem = Elem::f32;
    std::uint64_t prefill_chunk = 0;
    bool operator==(const Key&) const = default;
  };

  /// The kept run, or else what `run` makes.
  Run find(Key key, const std::function<trace::MemoryTrace()>& run);
  /// Forgets all but the runs that were used last, of at most so many tokens together.
  void keep(std::uint64_t tokens);

 private:
  std::list<std::pair<Key, Run>> runs_;  // the one used last first
};

}  // namespace kvsim::analysis
