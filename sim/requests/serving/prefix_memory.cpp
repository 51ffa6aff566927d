#include "sim/requests/serving/prefix_memory.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::serving {

PrefixMemory::PrefixMemory(const policy::Part& policy, const requests::RequestTrace& trace,
                           const prefix::PrefixTree& tree, std::span<const double> seconds,
                           std::uint64_t capacity, std::uint32_t places)
    : Allocator(capacity, places),
      trace_(trace),
      tree_(tree),
      block_(trace.block_tokens),
      cache_(engine_cache(policy, capacity, trace, tree, seconds, "prefix cache")),
      tables_(places) {
  if (cache_.keeps_for_good())
    usage_error("keeps blocks for good, and running requests need their room", policy.text(),
                "A cache on the host takes it.");
}

void PrefixMemory::advance(double now) {
  cache_.advance(now);
  operations_.unmaps = cache_.evictions();
}

std::uint64_t PrefixMemory::found(std::uint32_t request, std::uint64_t most) const {
  const std::span<const Node> prompt = tree_.prompt(request);
  return cache_.leading_run(prompt.first(std::min<std::uint64_t>(prompt.size(), most / block_))) * block_;
}

std::optional<std::uint64_t> PrefixMemory::enter_behind(Place place, std::uint32_t request,
                                                        std::uint64_t most, std::uint64_t tokens) {
  const std::uint64_t hits = found(request, most);
  const std::span<const Node> run = tree_.prompt(request).first(hits / block_);
  // What is found cannot be evicted to make room for the rest.
  cache_.pin(run);
  Table& table = tables_[place];
  table.request = request;
  table.shared.assign(run.begin(), run.end());
  shared_blocks_ += run.size();
  if (enter(place, tokens)) return hits;
  cache_.unpin(run);
  shared_blocks_ -= run.size();
  table.shared.clear();
  return std::nullopt;
}

void PrefixMemory::computed(Place place, std::uint32_t request, std::uint64_t tokens) {
  share(place, request, tree_.prompt(request), tokens / block_);
}

void PrefixMemory::ended(Place place, std::uint32_t request, std::uint64_t tokens) {
  share(place, request, tree_.final_path(request), tokens / block_);
}

/// The first `blocks` blocks of the sequence are the path's.
void PrefixMemory::share(Place place, std::uint32_t request, std::span<const Node> path,
                         std::uint64_t blocks) {
  Table& table = tables_[place];
  table.request = request;
  const std::uint64_t end = std::min<std::uint64_t>(blocks, path.size());
  while (table.shared.size() < end) {
    const Node node = path[table.shared.size()];
    cache_.computed(node);
    table.shared.push_back(node);
    --table.own;
    ++shared_blocks_;
  }
}

bool PrefixMemory::extend(Place place, std::uint64_t tokens) {
  Table& table = tables_[place];
  const std::uint64_t held = table.shared.size() + table.own, needed = blocks_of(tokens);
  const std::uint64_t more = needed > held ? needed - held : 0;
  if (!cache_.take(more)) return false;
  table.own += more;
  operations_.maps += more;
  operations_.unmaps = cache_.evictions();
  set_room(place, std::max(needed, held) * block_);
  return true;
}

void PrefixMemory::release(Place place) {
  Table& table = tables_[place];
  if (!table.shared.empty()) {
    const requests::Request& request = trace_.requests[table.request];
    cache_.request({.number = told_++,
                    .time_s = now_,
                    .category = request.category,
                    .priority = request.priority,
                    .waiting = waiting_,
                    .path = table.shared});
    cache_.unpin(table.shared);
  }
  cache_.give_back(table.own);
  shared_blocks_ -= table.shared.size();
  table.shared.clear();
  table.own = 0;
  set_room(place, 0);
}

std::vector<Run> PrefixMemory::runs(Place, std::uint64_t tokens) const {
  std::vector<Run> out;
  for (std::uint64_t begin = 0; begin < tokens; begin += block_)
    out.push_back({2 * begin, std::min(block_, tokens - begin)});
  return out;
}

MemoryUse PrefixMemory::use() const {
  const std::uint64_t counted_twice = (shared_blocks_ - cache_.pinned()) * block_;
  return {Allocator::use().used - counted_twice, (cache_.taken() + cache_.pinned()) * block_,
          (cache_.size() - cache_.pinned()) * block_};
}

}  // namespace kvsim::serving
