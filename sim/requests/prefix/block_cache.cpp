#include "sim/requests/prefix/block_cache.hpp"

#include <algorithm>

#include "sim/base/error.hpp"

namespace kvsim::prefix {
namespace {

std::unique_ptr<policy::Replacement> made(const policy::Part& policy, const policy::BlockSpace& space) {
  const auto* rule = policy.spec->as<policy::ReplacementRule>();
  if (rule == nullptr)
    usage_error(policy.spec->name + " does not replace blocks of a prefix cache", policy.text());
  if (space.nodes && !rule->make_nodes)
    usage_error(policy.spec->name + " has a rule for single blocks and none for nodes of a radix tree",
                policy.text(), "Policies with one are fifo, hpt, lfu, lru, priority and slru.");
  if (space.capacity == 0)
    usage_error("a cache of 0 blocks stores nothing", policy.text(), "Ask for 1 or more.");
  if (space.capacity >= kRoot) usage_error("a cache has at most 4,294,967,294 blocks", policy.text());
  if (!space.seconds.empty() && !space.depths.empty() &&
      space.seconds.size() <= *std::max_element(space.depths.begin(), space.depths.end()))
    bug("seconds of fewer depths than the tree has", policy.text());
  return (space.nodes ? rule->make_nodes : rule->make)(policy.params, space);
}

}  // namespace

policy::BlockSpace block_space(const PrefixTree& tree, std::size_t capacity, std::span<const double> seconds,
                               std::size_t categories) {
  return {.blocks = tree.size(),
          .capacity = capacity,
          .parents = tree.parents(),
          .depths = tree.depths(),
          .seconds = seconds,
          .categories = categories};
}

BlockCache::BlockCache(const policy::Part& policy, const policy::BlockSpace& space, bool residency)
    : store_(space.blocks, space.capacity),
      policy_(made(policy, space)),
      notes_(residency),
      stored_s_(residency ? space.blocks : 0),
      used_s_(residency ? space.blocks : 0) {}

std::size_t BlockCache::leading_run(std::span<const Node> path) const {
  std::size_t run = 0;
  while (run < path.size() && store_.resident(path[run])) ++run;
  return run;
}

std::size_t BlockCache::present(std::span<const Node> path) const {
  return static_cast<std::size_t>(
      std::count_if(path.begin(), path.end(), [&](Node node) { return store_.resident(node); }));
}

void BlockCache::note_use(Node node, double time_s) {
  if (store_.resident(node))
    residency_.reuse_gap.add(time_s - used_s_[node]);
  else
    stored_s_[node] = time_s;
  used_s_[node] = time_s;
}

void BlockCache::advance(double time_s) {
  store_.evicted().clear();
  now_s_ = time_s;
  policy_->advance(time_s, store_);
  note_evictions(time_s);
}

void BlockCache::note_evictions(double time_s) {
  evictions_ += store_.evicted().size();
  if (!notes_) return;
  for (const Node node : store_.evicted()) {
    residency_.lifetime.add(time_s - stored_s_[node]);
    residency_.idle.add(time_s - used_s_[node]);
  }
}

void BlockCache::request(const policy::RequestView& view) {
  const std::span<const Node> path = view.path;
  store_.evicted().clear();
  now_s_ = view.time_s;
  // Blocks that running requests hold, other than its own, leave this much room.
  std::size_t room = store_.capacity() - store_.taken() - pinned_;
  std::size_t keep = 0;
  for (; keep < path.size(); ++keep) {
    const bool held = store_.held(path[keep]);
    if (!held && room == 0) break;
    room -= held ? 0 : 1;
    store_.own(path[keep]);
  }
  policy_->look_again();
  policy_->start(view, store_);
  for (std::size_t i = path.size(); i-- > 0;) {
    const Node node = path[i];
    if (store_.resident(node) && !store_.known(node)) store_.forget(node);  // its room is free for it
    const bool resident = store_.resident(node);
    if (!resident && i >= keep) continue;
    if (notes_) note_use(node, view.time_s);
    if (resident)
      policy_->hit(node, store_);
    else
      policy_->miss(node, store_);
  }
  for (std::size_t i = 0; i < keep; ++i) store_.disown(path[i]);
  pins_changed_ = true;
  note_evictions(view.time_s);
}

std::size_t BlockCache::pin(std::span<const Node> path) {
  std::size_t held = 0;
  for (; held < path.size() && store_.resident(path[held]); ++held)
    pinned_ += store_.hold(path[held]) ? 1 : 0;
  return held;
}

void BlockCache::unpin(std::span<const Node> path) {
  for (const Node node : path) {
    if (!store_.held(node)) bug("a block is unpinned more often than it was pinned");
    pinned_ -= store_.release(node) ? 1 : 0;
  }
  pins_changed_ = true;
}

bool BlockCache::take(std::size_t blocks) {
  if (blocks > store_.capacity() - store_.taken() - pinned_) return false;
  store_.evicted().clear();
  if (pins_changed_) policy_->look_again();
  pins_changed_ = false;
  while (store_.size() + store_.taken() + blocks > store_.capacity()) policy_->evict(store_);
  store_.take(blocks);
  note_evictions(now_s_);
  return true;
}

void BlockCache::computed(Node node) {
  store_.give_back(1);
  if (!store_.resident(node)) store_.store_untold(node);
  pinned_ += store_.hold(node) ? 1 : 0;
}

}  // namespace kvsim::prefix
