#include "sim/serving/prefix_memory.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::serving {

PrefixMemory::PrefixMemory(const prefix::PrefixTree& tree, std::uint64_t capacity, std::uint32_t block,
                           std::uint32_t places)
    : Allocator(capacity, places),
      tree_(tree),
      block_(block),
      blocks_(capacity / block),
      resident_(tree.size(), 0),
      pins_(tree.size(), 0),
      links_(tree.size() + 1),
      shared_(places),
      private_(places, 0) {
  if (blocks_ == 0)
    usage_error("memory for " + std::to_string(capacity) + " tokens, and a block of the trace has " +
                    std::to_string(block),
                "prefix cache", "give more memory");
  const auto head = static_cast<Node>(tree.size());
  links_[head] = {head, head};
}

std::uint64_t PrefixMemory::found(std::size_t request, std::uint64_t most) const {
  const std::span<const Node> prompt = tree_.prompt(request);
  const std::uint64_t blocks = std::min<std::uint64_t>(prompt.size(), most / block_);
  std::uint64_t run = 0;
  while (run < blocks && resident(prompt[run])) ++run;
  return run * block_;
}

std::optional<std::uint64_t> PrefixMemory::enter_behind(Place place, std::size_t request, std::uint64_t most,
                                                        std::uint64_t tokens) {
  const std::uint64_t hits = found(request, most);
  const std::span<const Node> run = tree_.prompt(request).first(hits / block_);
  // What is found cannot be evicted to make room for the rest.
  const auto unpinned = static_cast<std::uint64_t>(
      std::count_if(run.begin(), run.end(), [this](Node node) { return pins_[node] == 0; }));
  const std::uint64_t evictable = resident_blocks_ - pinned_blocks_ - unpinned;
  if (blocks_of(tokens) - run.size() > free_blocks() + evictable) return std::nullopt;
  for (const Node node : run) {
    pin(node);
    shared_[place].push_back(node);
  }
  enter(place, tokens);
  return hits;
}

void PrefixMemory::computed(Place place, std::size_t request, std::uint64_t tokens) {
  share(place, tree_.prompt(request), tokens / block_);
}

void PrefixMemory::ended(Place place, std::size_t request, std::uint64_t tokens) {
  share(place, tree_.final_path(request), tokens / block_);
}

/// The first `blocks` blocks of the sequence are the path's.
void PrefixMemory::share(Place place, std::span<const Node> path, std::uint64_t blocks) {
  std::vector<Node>& shared = shared_[place];
  const std::uint64_t end = std::min<std::uint64_t>(blocks, path.size());
  while (shared.size() < end) {
    const Node node = path[shared.size()];
    if (!resident(node)) {
      resident_[node] = 1;
      ++resident_blocks_;
      const auto head = static_cast<Node>(tree_.size());
      links_[node] = {head, head};  // pinned below, so in no list
      pins_[node] = 1;
      ++pinned_blocks_;
      ++all_pins_;
    } else {
      pin(node);
    }
    shared.push_back(node);
    --private_[place];
    --private_blocks_;
  }
}

void PrefixMemory::pin(Node node) {
  if (pins_[node]++ == 0) {
    ++pinned_blocks_;
    unlink(node);
  }
  ++all_pins_;
}

void PrefixMemory::unpin(Node node) {
  --all_pins_;
  if (--pins_[node] > 0) return;
  --pinned_blocks_;
  const auto head = static_cast<Node>(tree_.size());
  links_[node] = {links_[head].before, head};
  links_[links_[head].before].after = node;
  links_[head].before = node;
}

void PrefixMemory::unlink(Node node) {
  links_[links_[node].before].after = links_[node].after;
  links_[links_[node].after].before = links_[node].before;
}

void PrefixMemory::evict_oldest() {
  const Node oldest = links_[tree_.size()].after;
  unlink(oldest);
  resident_[oldest] = 0;
  --resident_blocks_;
  ++operations_.unmaps;
}

bool PrefixMemory::extend(Place place, std::uint64_t tokens) {
  const std::uint64_t held = shared_[place].size() + private_[place];
  const std::uint64_t needed = blocks_of(tokens), more = needed > held ? needed - held : 0;
  if (more > free_blocks() + (resident_blocks_ - pinned_blocks_)) return false;
  while (free_blocks() < more) evict_oldest();
  private_[place] += more;
  private_blocks_ += more;
  operations_.maps += more;
  set_room(place, std::max(needed, held) * block_);
  return true;
}

void PrefixMemory::release(Place place) {
  std::vector<Node>& shared = shared_[place];
  std::for_each(shared.rbegin(), shared.rend(), [this](Node node) { unpin(node); });
  shared.clear();
  private_blocks_ -= private_[place];
  private_[place] = 0;
  set_room(place, 0);
}

std::vector<Run> PrefixMemory::runs(Place, std::uint64_t tokens) const {
  std::vector<Run> out;
  for (std::uint64_t begin = 0; begin < tokens; begin += block_)
    out.push_back({2 * begin, std::min(block_, tokens - begin)});
  return out;
}

MemoryUse PrefixMemory::use() const {
  const std::uint64_t counted_twice = (all_pins_ - pinned_blocks_) * block_;
  return {Allocator::use().used - counted_twice, (private_blocks_ + pinned_blocks_) * block_,
          (resident_blocks_ - pinned_blocks_) * block_};
}

}  // namespace kvsim::serving
