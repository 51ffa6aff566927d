#pragma once
/// Prefix caches as textbooks write them: sets, dictionaries and vectors that are searched from end to end.
/// They share nothing with the policies but what a request is.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "policies/api/replacement.hpp"
#include "sim/requests/prefix/prefix_tree.hpp"

namespace kvsim::slow {

using policy::Block;
using policy::BlockSpace;
using policy::RequestView;

class SlowCache {
 public:
  explicit SlowCache(const BlockSpace& of) : space(of) {}
  virtual ~SlowCache() = default;

  void request(const RequestView& view);
  void advance(double time_s);

  BlockSpace space;
  std::set<Block> in;          ///< resident
  std::multiset<Block> held;   ///< by running requests
  std::vector<Block> evicted;  ///< in the last request

 protected:
  bool pinned(Block block) const { return own.contains(block) || held.contains(block); }
  bool full() const { return in.size() >= space.capacity; }
  void evict(Block block);
  /// The first of the list that is not pinned, or kNoBlock.
  Block first_free(const std::vector<Block>& list) const;

  virtual void passes(double) {}
  virtual void start(const RequestView&) {}
  virtual void hit(Block block) = 0;
  /// Inserts into `in` what it stores.
  virtual void miss(Block block) = 0;

  std::set<Block> own;
  const RequestView* now = nullptr;
};

/// Replacement policies beside their slow twins, `opt` at the end.
inline const std::vector<std::pair<std::string, std::string>> kTwins = {
    {"fifo", "fifo"},
    {"lru", "lru"},
    {"slru", "slru"},
    {"slru(protected=0.3)", "slru 0.3"},
    {"lfu", "lfu"},
    {"lfu(age=false)", "lfu 0"},
    {"arc", "arc"},
    {"sieve", "sieve"},
    {"s3_fifo", "s3_fifo"},
    {"s3_fifo(small=0.4,ghost=0.2,promote=1)", "s3_fifo 0.4 0.2 1"},
    {"s3_fifo(fill=main)", "s3_fifo 0.1 0.9 2 1"},
    {"w_tinylfu", "w_tinylfu"},
    {"w_tinylfu(window=0.3,protected=0.5,sample=2)", "w_tinylfu 0.3 0.5 2"},
    {"lhd", "lhd"},
    {"lhd(period=40,decay=0.5)", "lhd 32 8 40 0.5"},
    {"lhd(sample=1,recent=3,period=16,decay=0.5)", "lhd 1 3 16 0.5"},
    {"lhd(sample=2,recent=2,period=64,decay=1,explore=0.3,seed=5)", "lhd 2 2 64 1 0.3 5"},
    {"ttl(seconds=5)", "ttl 5"},
    {"ttl", "ttl"},
    {"ttl(seconds=1000000000)", "ttl 1000000000"},
    {"priority", "priority"},
    {"priority(by=depth)", "priority 1 0"},
    {"priority(pin=1)", "priority 0 1"},
    {"category", "category"},
    {"category(life=2)", "category 2"},
    {"queue_lru", "queue_lru"},
    {"queue_lru(window=2)", "queue_lru 2"},
    {"gdsf", "gdsf"},
    {"hpt", "hpt"},
    {"opt", "opt"},
};

/// Policies that evict nodes of a radix tree, beside their slow twins.
inline const std::vector<std::pair<std::string, std::string>> kNodeTwins = {
    {"lru", "radix lru"},
    {"fifo", "radix fifo"},
    {"slru", "radix slru"},
    {"lfu", "radix lfu 1"},
    {"hpt", "radix hpt"},
    {"priority", "radix priority"},
    {"lfu(age=false)", "radix lfu 0"},
};

/// The slow twin of a replacement policy with its defaults, or with what the text gives behind its name:
/// "slru 0.5".
std::unique_ptr<SlowCache> slow_cache(const std::string& text, const BlockSpace& space);

/// Of every request of a trace, in a replay in which requests take no time: the blocks of its prompt that the
/// slow twin has when it arrives, from the first on. `seconds`: BlockSpace::seconds.
std::vector<std::uint32_t> slow_runs(const std::string& text, const requests::RequestTrace& trace,
                                     const prefix::PrefixTree& tree, std::size_t capacity,
                                     std::span<const double> seconds = {});

}  // namespace kvsim::slow
