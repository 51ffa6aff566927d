#include "analysis/loop/document_runs.hpp"

#include <algorithm>

namespace kvsim::analysis {

DocumentRuns::Run DocumentRuns::find(Key key, const std::function<trace::MemoryTrace()>& run) {
  const auto known = std::ranges::find(runs_, key, &std::pair<Key, Run>::first);
  if (known == runs_.end())
    runs_.emplace_front(std::move(key), std::make_shared<const trace::MemoryTrace>(run()));
  else
    runs_.splice(runs_.begin(), runs_, known);
  return runs_.front().second;
}

void DocumentRuns::keep(std::uint64_t tokens) {
  std::uint64_t sum = 0;
  std::erase_if(runs_, [&](const auto& kept) { return (sum += kept.first.ids.size()) > tokens; });
}

}  // namespace kvsim::analysis
