#pragma once
/// Prefix caches as textbooks write them: sets, dictionaries and vectors that are searched from end to end.
/// They share nothing with the policies but what a request is.
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "policies/api/replacement.hpp"

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

/// The slow twin of a replacement policy with its defaults, or with what the text gives behind its name:
/// "slru 0.5".
std::unique_ptr<SlowCache> slow_cache(const std::string& text, const BlockSpace& space);

}  // namespace kvsim::slow
