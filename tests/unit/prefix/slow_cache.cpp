#include "slow_cache.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "sim/base/rng.hpp"

namespace kvsim::slow {
namespace {

using policy::kNoBlock;
using List = std::vector<Block>;

void drop(List& list, Block block) {
  list.erase(std::find(list.begin(), list.end(), block));
}

bool has(const List& list, Block block) {
  return std::find(list.begin(), list.end(), block) != list.end();
}

/// Ranks every resident block anew at each eviction: the lowest that is not pinned leaves.
template <class Rank>
class Ranked : public SlowCache {
 public:
  using SlowCache::SlowCache;

 protected:
  virtual Rank rank(Block block) const = 0;
  virtual void used(Block block) = 0;
  virtual void leaves(Block) {}
  void hit(Block block) override { used(block); }
  void miss(Block block) override {
    if (full()) {
      Block lowest = kNoBlock;
      for (const Block other : in)
        if (!pinned(other) && (lowest == kNoBlock || rank(other) < rank(lowest))) lowest = other;
      if (lowest == kNoBlock) return;
      leaves(lowest);
      evict(lowest);
    }
    in.insert(block);
    used(block);
  }
};

class Fifo : public Ranked<int> {
 public:
  using Ranked::Ranked;

 protected:
  int rank(Block block) const override { return at.at(block); }
  void used(Block block) override { at.try_emplace(block, clock++); }
  void leaves(Block block) override { at.erase(block); }
  std::map<Block, int> at;
  int clock = 0;
};

class Lru : public Ranked<int> {
 public:
  using Ranked::Ranked;

 protected:
  int rank(Block block) const override { return at.at(block); }
  void used(Block block) override { at[block] = clock++; }
  std::map<Block, int> at;
  int clock = 0;
};

class Ttl : public Lru {
 public:
  Ttl(const BlockSpace& of, double seconds) : Lru(of), life(seconds) {}

 protected:
  void used(Block block) override {
    Lru::used(block);
    time[block] = now->time_s;
  }
  void passes(double time_s) override {
    std::map<int, Block> over;
    for (const Block block : in)
      if (!pinned(block) && time_s - time.at(block) > life) over[at.at(block)] = block;
    for (const auto& entry : over) evict(entry.second);
  }
  std::map<Block, double> time;
  double life;
};

class QueueLru : public Lru {
 public:
  QueueLru(const BlockSpace& of, std::size_t most) : Lru(of), window(most) {}

 protected:
  void start(const RequestView& view) override {
    for (std::size_t i = std::min(window, view.waiting.size()); i-- > 0;)
      for (std::size_t k = view.waiting[i].size(); k-- > 0;)
        if (in.contains(view.waiting[i][k])) used(view.waiting[i][k]);
  }
  std::size_t window;
};

class Priority : public Ranked<std::pair<double, int>> {
 public:
  Priority(const BlockSpace& of, bool depth, std::uint32_t first) : Ranked(of), by_depth(depth), pin(first) {}

 protected:
  std::pair<double, int> rank(Block block) const override {
    // What is pinned for good ranks above everything; miss() below never takes it.
    return at.at(block);
  }
  void used(Block block) override {
    at[block] = {by_depth ? -double(space.depths[block]) : now->priority, clock++};
  }
  void miss(Block block) override {
    // The first blocks of prompts are pinned for as long as they are here.
    for (const Block other : in)
      if (space.depths[other] < pin) own.insert(other);
    Ranked::miss(block);
  }
  std::map<Block, std::pair<double, int>> at;
  bool by_depth;
  std::uint32_t pin;
  int clock = 0;
};

class Greedy : public Ranked<std::pair<double, int>> {
 public:
  Greedy(const BlockSpace& of, bool seconds, bool ages) : Ranked(of), by_seconds(seconds), ageing(ages) {}

 protected:
  std::pair<double, int> rank(Block block) const override { return value.at(block); }
  void used(Block block) override {
    uses[block] += 1;
    const double cost = by_seconds && !space.seconds.empty() ? space.seconds[space.depths[block]] : 1;
    value[block] = {age + uses[block] * cost, clock++};
  }
  void leaves(Block block) override {
    if (ageing) age = value.at(block).first;
    uses.erase(block);
  }
  std::map<Block, int> uses;
  std::map<Block, std::pair<double, int>> value;
  double age = 0;
  bool by_seconds, ageing;
  int clock = 0;
};

class Category : public Ranked<std::tuple<double, double>> {
 public:
  Category(const BlockSpace& of, double seconds) : Ranked(of), life(seconds) {}

 protected:
  struct Use {
    std::uint32_t category;
    double time;
    int clock;
  };
  std::tuple<double, double> rank(Block block) const override {
    const Use& use = last.at(block);
    const double n = uses.count(use.category) ? uses.at(use.category) : 0;
    const auto gap = gaps.find(use.category);
    const double reuses = gap == gaps.end() ? 0 : double(gap->second.size());
    double sum = 0;
    if (gap != gaps.end())
      for (const double one : gap->second) sum += one;
    const double share = (reuses + 1) / (n + 1), rate = sum > 0 ? reuses / sum : 0;
    const double chance =
        rate == 0 ? share : share * std::exp(-rate * (now->time_s - use.time)) * -std::expm1(-rate * life);
    return {chance, -double(space.depths[block])};
  }
  void hit(Block block) override {
    const Use& use = last.at(block);
    gaps[use.category].push_back(now->time_s - use.time);
    used(block);
  }
  void used(Block block) override {
    last[block] = {now->category, now->time_s, clock++};
    uses[now->category] += 1;
  }
  void miss(Block block) override {
    if (full()) {
      // The least recently used block of every category, then the least likely of these.
      std::map<std::uint32_t, Block> oldest;
      for (const Block other : in) {
        if (pinned(other)) continue;
        const auto [at, fresh] = oldest.try_emplace(last.at(other).category, other);
        if (!fresh && last.at(other).clock < last.at(at->second).clock) at->second = other;
      }
      Block lowest = kNoBlock;
      for (const auto& entry : oldest)
        if (lowest == kNoBlock || rank(entry.second) < rank(lowest)) lowest = entry.second;
      evict(lowest);
    }
    in.insert(block);
    used(block);
  }
  std::map<Block, Use> last;
  std::map<std::uint32_t, int> uses;
  std::map<std::uint32_t, std::vector<double>> gaps;
  double life;
  int clock = 0;
};

class Slru : public SlowCache {
 public:
  Slru(const BlockSpace& of, double share)
      : SlowCache(of), most(std::max<std::size_t>(std::size_t(share * double(of.capacity)), 1)) {}

 protected:
  void hit(Block block) override {
    drop(has(safe, block) ? safe : once, block);
    safe.push_back(block);
    if (safe.size() > most) {
      once.push_back(safe.front());
      safe.erase(safe.begin());
    }
  }
  void miss(Block block) override {
    if (full()) {
      List& from = first_free(once) != kNoBlock ? once : safe;
      const Block victim = first_free(from);
      drop(from, victim);
      evict(victim);
    }
    in.insert(block);
    once.push_back(block);
  }
  List once, safe;
  std::size_t most;
};

class Sieve : public SlowCache {
 public:
  using SlowCache::SlowCache;

 protected:
  void hit(Block block) override { marked.insert(block); }
  void miss(Block block) override {
    if (full()) {
      while (pinned(order[hand]) || marked.contains(order[hand])) {
        if (!pinned(order[hand])) marked.erase(order[hand]);
        hand = (hand + 1) % order.size();
      }
      const Block victim = order[hand];
      order.erase(order.begin() + std::ptrdiff_t(hand));
      evict(victim);
      // Behind the newest block the hand begins anew at the oldest.
      if (hand == order.size()) hand = 0;
    }
    marked.erase(block);
    in.insert(block);
    order.push_back(block);
  }
  List order;
  std::set<Block> marked;
  std::size_t hand = 0;
};

class S3Fifo : public SlowCache {
 public:
  S3Fifo(const BlockSpace& of, double share, double ghosts, int uses, bool filling)
      : SlowCache(of),
        most(std::max<std::size_t>(std::size_t(double(of.capacity) * share), 1)),
        most_names(std::size_t(double(of.capacity) * ghosts)),
        promote(uses),
        fill(filling) {}

 protected:
  void hit(Block block) override { ++count[block]; }
  void miss(Block block) override {
    bool ghost = has(names, block);
    if (ghost) drop(names, block);
    if (full()) fill = false;
    if (fill && small.size() >= most) ghost = true;
    while (full()) {
      const bool first = small.size() >= most;
      if (!(first ? small_leaves() : main_leaves())) first ? main_leaves() : small_leaves();
    }
    count[block] = 0;
    (ghost ? main : small).push_back(block);
    in.insert(block);
  }
  bool small_leaves() {
    while (first_free(small) != kNoBlock) {
      const Block block = first_free(small);
      drop(small, block);
      if (count[block] >= promote) {
        count[block] = 0;
        main.push_back(block);
        continue;
      }
      evict(block);
      if (most_names == 0) return true;
      if (names.size() == most_names) names.erase(names.begin());
      names.push_back(block);
      return true;
    }
    return false;
  }
  bool main_leaves() {
    while (first_free(main) != kNoBlock) {
      const Block block = first_free(main);
      drop(main, block);
      count[block] = std::min(count[block], 3);
      if (count[block]-- > 0) {
        main.push_back(block);
        continue;
      }
      evict(block);
      return true;
    }
    return false;
  }
  List small, main, names;
  std::map<Block, int> count;
  std::size_t most, most_names;
  int promote;
  bool fill;
};

class Arc : public SlowCache {
 public:
  using SlowCache::SlowCache;

 protected:
  void hit(Block block) override {
    drop(has(t1, block) ? t1 : t2, block);
    t2.push_back(block);
  }
  void miss(Block block) override {
    const double c = double(space.capacity);
    if (has(b1, block) || has(b2, block)) {
      const bool second = has(b2, block);
      const double one = double(b1.size()), two = double(b2.size());
      p = second ? std::max(p - std::max(one / two, 1.0), 0.0) : std::min(p + std::max(two / one, 1.0), c);
      drop(second ? b2 : b1, block);
      if (full()) replace(second);
      t2.push_back(block);
    } else {
      if (full()) {
        if (t1.size() + b1.size() >= space.capacity) {
          if (!b1.empty()) {
            b1.erase(b1.begin());
            replace(false);
          } else if (const Block victim = first_free(t1); victim != kNoBlock) {
            drop(t1, victim);
            evict(victim);
          } else {
            replace(false);
          }
        } else {
          if (t1.size() + t2.size() + b1.size() + b2.size() >= 2 * space.capacity && !b2.empty())
            b2.erase(b2.begin());
          replace(false);
        }
      }
      t1.push_back(block);
    }
    in.insert(block);
  }
  void replace(bool second) {
    const double n = double(t1.size());
    bool first = (n >= 1 && ((second && n == p) || n > p)) || t2.empty();
    if (first_free(first ? t1 : t2) == kNoBlock) first = !first;
    const Block victim = first_free(first ? t1 : t2);
    drop(first ? t1 : t2, victim);
    (first ? b1 : b2).push_back(victim);
    evict(victim);
  }
  List t1, t2, b1, b2;
  double p = 0;
};

class WTinyLfu : public SlowCache {
 public:
  WTinyLfu(const BlockSpace& of, double share, double safe, std::uint64_t capacities)
      : SlowCache(of),
        most(std::max<std::size_t>(std::size_t(share * double(of.capacity)), 1)),
        most_safe(std::size_t(safe * double(of.capacity - most))),
        sample(capacities * of.capacity) {}

 protected:
  void hit(Block block) override {
    seen(block);
    if (has(window, block)) {
      drop(window, block);
      window.push_back(block);
      return;
    }
    drop(has(guarded, block) ? guarded : trial, block);
    guarded.push_back(block);
    if (guarded.size() > most_safe) {
      trial.push_back(guarded.front());
      guarded.erase(guarded.begin());
    }
  }
  void miss(Block block) override {
    seen(block);
    if (full()) {
      const Block leaving = window.size() >= most ? first_not_held(window) : kNoBlock;
      List& part = first_free(trial) != kNoBlock ? trial : guarded;
      const Block rival = first_free(part);
      if (rival == kNoBlock || (leaving != kNoBlock && count[leaving] <= count[rival])) {
        const Block victim = rival == kNoBlock ? first_not_held(window) : leaving;
        drop(window, victim);
        evict(victim);
      } else {
        drop(part, rival);
        evict(rival);
        if (leaving != kNoBlock) {
          drop(window, leaving);
          trial.push_back(leaving);
        }
      }
    }
    in.insert(block);
    window.push_back(block);
    while (window.size() > most) {
      trial.push_back(window.front());
      window.erase(window.begin());
    }
  }
  Block first_not_held(const List& list) const {
    for (const Block block : list)
      if (!held.contains(block)) return block;
    return kNoBlock;
  }
  void seen(Block block) {
    count[block] = std::min(count[block] + 1, 15);
    if (++counted < sample) return;
    for (auto& entry : count) entry.second /= 2;
    counted /= 2;
  }
  List window, trial, guarded;
  std::map<Block, int> count;
  std::size_t most, most_safe;
  std::uint64_t sample, counted = 0;
};

/// The rule of LHD by its definition: each hit density is a sum over all later ages. With a decay of a power
/// of two all sums are exact, in whatever order.
class Lhd : public SlowCache {
 public:
  Lhd(const BlockSpace& of, int draws, int fresh, int length, double fade, double share, std::uint64_t seed)
      : SlowCache(of),
        sample(draws),
        most_recent(fresh),
        period(length),
        decay(fade),
        room(int(share * double(of.capacity))) {
    next_draw = combine({key_of("lhd"), seed});
    while (double(step) < double(of.capacity) / 200) step *= 2;
  }

 protected:
  struct Use {
    int at = 0, category = 0;
    std::vector<int> gaps{};  ///< ages at its hits, the last first
    bool explores = false;
  };
  struct Events {
    double hits = 0, evictions = 0;
  };
  using Class = std::pair<int, int>;

  int age(Block block) const { return std::min((time - last.at(block).at) / step, 19999); }
  int tier(Block block) const {
    const Use& use = last.at(block);
    if (use.gaps.empty()) return 0;
    const int sum = use.gaps[0] + (use.gaps.size() > 1 ? use.gaps[1] : 0);
    if (sum == 0) return 15;
    return std::clamp(int(std::ceil(std::log2(20000.0 / sum))), 0, 15);
  }
  Class type(Block block) const { return {last.at(block).category, tier(block)}; }
  double density(Block block) {
    if (age(block) == 19999) return -1;
    const double extra = last.at(block).explores ? 1 : 0;
    if (periods == 0) return (tier(block) + 1.0) / (age(block) + 1.0) + extra;
    const auto [found, fresh] = learnt.try_emplace({type(block), age(block)}, 0);
    if (fresh) found->second = learn(type(block), age(block));
    return found->second + extra;
  }
  double learn(const Class& of, int from) const {
    double hits = 0, events = 0, stay = 0;
    if (known.contains(of))
      for (const auto& [at, seen] : known.at(of))
        if (at >= from) {
          hits += seen.hits;
          events += seen.hits + seen.evictions;
          stay += (at - from + 1) * (seen.hits + seen.evictions);
        }
    return events > 1e-5 ? hits / stay : 0;
  }
  void hit(Block block) override {
    counts[type(block)][age(block)].hits += 1;
    if (last[block].explores) ++room;
    last[block].gaps.insert(last[block].gaps.begin(), age(block));
    used(block);
    passes_time();
  }
  void miss(Block block) override {
    if (full()) {
      const Block victim = choose();
      counts[type(victim)][age(victim)].evictions += 1;
      if (last[victim].explores) ++room;
      last.erase(victim);
      *std::find(all.begin(), all.end(), victim) = all.back();
      all.pop_back();
      evict(victim);
    }
    in.insert(block);
    all.push_back(block);
    last[block] = {};
    if (!used(block) && density(block) < leaving) {
      // The oldest of them gives its place to the new one.
      if (int(recent.size()) < most_recent)
        recent.push_back(block);
      else if (most_recent > 0)
        recent[std::size_t(noted % most_recent)] = block;
      ++noted;
    }
    passes_time();
  }
  bool used(Block block) {
    const bool drawn = uniform01(next_draw++) * 32 < 1;
    last[block].at = time;
    last[block].category = now->category == policy::kNever || space.categories == 0 ? 0 : int(now->category);
    last[block].explores = drawn && room > 0 && periods < 50;
    if (last[block].explores) --room;
    return drawn;
  }
  Block choose() {
    List drawn;
    std::size_t place = 0;
    for (int i = 0; i < sample; ++i) {
      place = std::size_t(uniform01(next_draw++) * double(all.size()));
      drawn.push_back(all[place]);
    }
    for (const Block block : recent)
      if (in.contains(block)) drawn.push_back(block);
    std::erase_if(drawn, [&](Block block) { return pinned(block); });
    if (drawn.empty()) {
      while (pinned(all[place])) place = (place + 1) % all.size();
      drawn.push_back(all[place]);
    }
    Block best = drawn[0];
    for (const Block block : drawn)
      if (density(block) < density(best)) best = block;
    if (density(best) >= 0) leaving = decay * leaving + (1 - decay) * density(best);
    return best;
  }
  void passes_time() {
    if (++time % period != 0) return;
    ++periods;
    for (auto& [of, ages] : counts)
      for (auto& [at, seen] : ages) seen = {seen.hits * decay, seen.evictions * decay};
    known = counts;
    learnt.clear();
  }
  std::map<Block, Use> last;
  std::map<Class, std::map<int, Events>> counts, known;
  std::map<std::pair<Class, int>, double> learnt;  ///< densities that were asked for in this period
  List all, recent;
  int noted = 0, sample, most_recent, period, time = 0, periods = 0, step = 1;
  double decay, leaving = 0;
  int room;
  std::uint64_t next_draw = 0;
};

/// SGLang's radix tree as objects with children: a request walks down, splits the node in which it ends or
/// turns off, lets leaves go, and hangs what is left of it behind the last node.
class Radix : public SlowCache {
 public:
  Radix(const BlockSpace& of, const std::string& rule, bool ages) : SlowCache(of), by(rule), ageing(ages) {}

 protected:
  struct Node {
    List blocks{};
    Node* parent = nullptr;
    std::map<Block, std::unique_ptr<Node>> children{};  ///< by their first blocks
    double used = 0, stored = 0, uses = 0, priority = 0, age = 0;
  };

  double value(const Node& node) const {
    if (by == "fifo") return node.stored;
    if (by == "slru") return node.uses >= 2;
    if (by == "lfu") return (ageing ? node.age : 0) + node.uses;
    if (by == "hpt") return (node.uses + 1) / double(node.blocks.size());
    if (by == "priority") return node.priority;
    return 0;
  }
  void leaves(Node& of, std::vector<Node*>& out) {
    for (auto& [first, child] : of.children) {
      if (!child->children.empty())
        leaves(*child, out);
      else if (std::none_of(child->blocks.begin(), child->blocks.end(), [&](Block b) { return pinned(b); }))
        out.push_back(child.get());
    }
  }
  void touch(Node& node) {
    node.used = now_used + 0.5;
    node.uses += 1;
    node.priority = std::max(node.priority, double(now->priority));
    node.age = age;
  }
  void start(const RequestView& view) override {
    now_used += 1;
    Node* at = &root;
    std::size_t found = 0;
    while (found < view.path.size() && at->children.contains(view.path[found])) {
      Node* child = at->children[view.path[found]].get();
      std::size_t same = 0;
      while (same < child->blocks.size() && found + same < view.path.size() &&
             child->blocks[same] == view.path[found + same])
        ++same;
      found += same;
      if (same == child->blocks.size()) {
        touch(*(at = child));
        continue;
      }
      auto rest = std::move(at->children[child->blocks[0]]);
      auto front = std::make_unique<Node>();
      front->blocks.assign(rest->blocks.begin(), rest->blocks.begin() + std::ptrdiff_t(same));
      rest->blocks.erase(rest->blocks.begin(), rest->blocks.begin() + std::ptrdiff_t(same));
      front->parent = at;
      front->stored = rest->stored;
      front->uses = rest->uses;
      front->priority = rest->priority;
      rest->used = now_used;
      rest->parent = front.get();
      touch(*front);
      front->children[rest->blocks[0]] = std::move(rest);
      Node* next = front.get();
      at->children[front->blocks[0]] = std::move(front);
      at = next;
      break;
    }
    List wanted;
    for (std::size_t i = found; i < view.path.size() && own.contains(view.path[i]); ++i)
      wanted.push_back(view.path[i]);
    while (in.size() + wanted.size() > space.capacity) {
      std::vector<Node*> all;
      // The last node of the request is none: something will hang behind it.
      leaves(root, all);
      std::erase(all, at);
      if (all.empty()) break;
      Node* lowest = all[0];
      for (Node* leaf : all)
        if (std::pair(value(*leaf), leaf->used) < std::pair(value(*lowest), lowest->used)) lowest = leaf;
      age = value(*lowest);
      for (std::size_t i = lowest->blocks.size(); i-- > 0;) evict(lowest->blocks[i]);
      lowest->parent->children.erase(lowest->blocks[0]);
    }
    wanted.resize(std::min(wanted.size(), space.capacity - in.size()));
    if (wanted.empty()) return;
    auto added = std::make_unique<Node>();
    added->blocks = wanted;
    added->parent = at;
    added->stored = now_used;
    added->priority = view.priority;
    added->uses = 0;
    touch(*added);
    at->children[wanted[0]] = std::move(added);
    in.insert(wanted.begin(), wanted.end());
  }
  void hit(Block) override {}
  void miss(Block) override {}

  Node root;
  std::string by;
  bool ageing;
  double now_used = 0, age = 0;
};

/// All that is resident or wanted, sorted by next use, and cut behind the capacity.
class Opt : public SlowCache {
 public:
  using SlowCache::SlowCache;

 protected:
  using Rank = std::tuple<std::uint32_t, std::uint32_t, Block>;
  void told(Block block) {
    const std::uint32_t depth = space.depths[block];
    next[block] = {now->next_use[depth], depth, policy::kNever - block};
  }
  void hit(Block block) override { told(block); }
  void miss(Block block) override {
    told(block);
    in.insert(block);
    if (in.size() <= space.capacity) return;
    Block worst = block;
    for (const Block other : in)
      if (!held.contains(other) && next.at(worst) < next.at(other)) worst = other;
    if (worst == block)
      in.erase(block);
    else
      evict(worst);
  }
  std::map<Block, Rank> next;
};

}  // namespace

void SlowCache::evict(Block block) {
  in.erase(block);
  evicted.push_back(block);
}

Block SlowCache::first_free(const std::vector<Block>& list) const {
  for (const Block block : list)
    if (!pinned(block)) return block;
  return kNoBlock;
}

void SlowCache::advance(double time_s) {
  evicted.clear();
  passes(time_s);
}

void SlowCache::request(const RequestView& view) {
  evicted.clear();
  now = &view;
  const std::set<Block> different(held.begin(), held.end());
  std::set<Block> kept;
  for (const Block block : view.path) {
    std::set<Block> wanted = kept;
    wanted.insert(block);
    std::set<Block> all = different;
    all.insert(wanted.begin(), wanted.end());
    if (all.size() > space.capacity) break;
    kept = wanted;
  }
  own = kept;
  start(view);
  for (std::size_t i = view.path.size(); i-- > 0;) {
    if (in.contains(view.path[i]))
      hit(view.path[i]);
    else if (kept.contains(view.path[i]))
      miss(view.path[i]);
  }
  own.clear();
}

std::unique_ptr<SlowCache> slow_cache(const std::string& text, const BlockSpace& space) {
  std::istringstream words(text);
  std::string name;
  words >> name;
  const auto number = [&](double fallback) {
    double value = fallback;
    if (!(words >> value)) return fallback;
    return value;
  };
  if (name == "fifo") return std::make_unique<Fifo>(space);
  if (name == "lru") return std::make_unique<Lru>(space);
  if (name == "ttl") return std::make_unique<Ttl>(space, number(300));
  if (name == "queue_lru") return std::make_unique<QueueLru>(space, std::size_t(number(16)));
  if (name == "category") return std::make_unique<Category>(space, number(600));
  if (name == "slru") return std::make_unique<Slru>(space, number(0.8));
  if (name == "sieve") return std::make_unique<Sieve>(space);
  if (name == "radix") {
    words >> name;
    return std::make_unique<Radix>(space, name, number(1) != 0);
  }
  if (name == "arc") return std::make_unique<Arc>(space);
  if (name == "opt") return std::make_unique<Opt>(space);
  if (name == "lfu") return std::make_unique<Greedy>(space, false, number(1) != 0);
  if (name == "gdsf") return std::make_unique<Greedy>(space, true, true);
  if (name == "hpt") return std::make_unique<Greedy>(space, true, false);
  if (name == "lhd") {
    const double sample = number(32), recent = number(8), period = number(16384), decay = number(0.9),
                 explore = number(0.01), seed = number(0);
    return std::make_unique<Lhd>(space, int(sample), int(recent), int(period), decay, explore,
                                 std::uint64_t(seed));
  }
  const double a = number(-1), b = number(-1), c = number(-1);
  const auto or_default = [](double value, double fallback) { return value < 0 ? fallback : value; };
  if (name == "priority") return std::make_unique<Priority>(space, a == 1, std::uint32_t(or_default(b, 0)));
  if (name == "s3_fifo")
    return std::make_unique<S3Fifo>(space, or_default(a, 0.1), or_default(b, 0.9), int(or_default(c, 2)),
                                    number(0) == 1);
  if (name == "w_tinylfu")
    return std::make_unique<WTinyLfu>(space, or_default(a, 0.01), or_default(b, 0.8),
                                      std::uint64_t(or_default(c, 10)));
  throw std::logic_error("no slow cache of " + name);
}

std::vector<std::uint32_t> slow_runs(const std::string& text, const requests::RequestTrace& trace,
                                     const prefix::PrefixTree& tree, std::size_t capacity,
                                     std::span<const double> seconds) {
  const auto cache = slow_cache(text, {.blocks = tree.size(),
                                       .capacity = capacity,
                                       .parents = tree.parents(),
                                       .depths = tree.depths(),
                                       .seconds = seconds,
                                       .categories = trace.categories.size()});
  // The next request whose prompt has a block, by looking at all requests from the last to the first.
  std::vector<std::vector<std::uint32_t>> next(tree.requests());
  std::map<Block, std::uint32_t> seen;
  for (std::size_t r = tree.requests(); r-- > 0;) {
    for (const Block block : tree.final_path(r))
      next[r].push_back(seen.contains(block) ? seen[block] : policy::kNever);
    for (const Block block : tree.prompt(r)) seen[block] = std::uint32_t(r);
  }
  std::vector<std::uint32_t> runs;
  for (std::size_t r = 0; r < tree.requests(); ++r) {
    const requests::Request& request = trace.requests[r];
    std::vector<std::span<const Block>> waiting;
    for (std::size_t i = r + 1; i < tree.requests() && waiting.size() < 16; ++i)
      waiting.push_back(tree.prompt(i));
    cache->advance(request.time_s);
    runs.push_back(0);
    for (const Block block : tree.prompt(r)) {
      if (!cache->in.contains(block)) break;
      ++runs.back();
    }
    cache->request({.number = r,
                    .time_s = request.time_s,
                    .category = request.category,
                    .priority = request.priority,
                    .waiting = waiting,
                    .next_use = next[r],
                    .path = tree.final_path(r)});
  }
  return runs;
}

}  // namespace kvsim::slow
