#pragma once
/// The rules of traces/requests/README.md once more, with lists and dictionaries: every token of every
/// sequence is looked at in every step, and memory is counted anew each time it is asked for.
#include <algorithm>
#include <cmath>
#include <functional>
#include <list>
#include <map>
#include <vector>

#include "sim/requests/serving/engine.hpp"

namespace kvsim::serving {

class SlowEngine {
 public:
  struct Outcome {
    double arrival = 0, started = 0;
    std::vector<double> tokens{};  ///< when each was there
    std::uint64_t hits = 0, computed = 0;
    std::uint32_t preemptions = 0;
    double swapped = 0;
  };
  /// A block is known by all ids from the first to its own.
  using Path = std::vector<requests::BlockId>;

  SlowEngine(const EngineSettings& settings, const requests::RequestTrace& trace,
             std::function<double(const cost::StepWork&)> price)
      : settings_(settings), trace_(trace), price_(std::move(price)) {
    block_ = settings.prefix_cache ? trace.block_tokens : settings.memory.block;
    blocks_ = settings.memory.capacity / block_;
  }

  std::uint64_t evicted = 0;  ///< blocks, because others needed room
  /// Where memory is bytes: the window of each layer (0: none), bytes of a token in a layer and of the states
  /// of a sequence.
  std::vector<std::uint64_t> windows{};
  std::uint64_t layer_token = 0, states = 0;
  /// Where a layer's bytes are not its tokens': of tokens that were stored as a prompt, and of those behind
  /// them.
  std::function<std::uint64_t(std::uint64_t kept, std::uint64_t appended)> layer_bytes{};

  std::map<std::uint32_t, Outcome> run() {
    std::map<std::pair<double, std::uint32_t>, bool> arrivals;
    for (std::uint32_t i = 0; i < trace_.requests.size(); ++i)
      if (!trace_.requests[i].after_parent) arrivals[{trace_.requests[i].time_s, i}] = true;
    double now = 0;
    for (;;) {
      while (!arrivals.empty() && arrivals.begin()->first.first <= now) {
        const auto [time, request] = arrivals.begin()->first;
        out_[request].arrival = time;
        waiting_.push_back({request});
        arrivals.erase(arrivals.begin());
      }
      if (waiting_.empty() && running_.empty()) {
        if (arrivals.empty()) return out_;
        now = arrivals.begin()->first.first;
        continue;
      }
      now = step(now);
      for (const std::uint32_t ended : ended_)
        for (std::uint32_t i = 0; i < trace_.requests.size(); ++i)
          if (trace_.requests[i].after_parent && trace_.requests[i].parent == ended)
            arrivals[{now + trace_.requests[i].time_s, i}] = true;
    }
  }

 private:
  struct Running {
    std::uint32_t request = 0;
    std::uint64_t computed = 0;
    std::uint64_t room = 0;      ///< tokens of its own and shared blocks
    std::uint64_t kept = 0;      ///< that were known when it was admitted
    std::vector<Path> shared{};  ///< leading blocks
    bool swapped = false;
    std::uint64_t part = 0;
  };

  std::uint64_t prompt(const Running& r) const { return trace_.requests[r.request].prompt_tokens; }
  std::uint64_t generated(const Running& r) { return out_[r.request].tokens.size(); }
  std::uint64_t known(const Running& r) { return prompt(r) + generated(r); }
  static std::uint64_t up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

  Path path(const std::vector<requests::BlockId>& ids, std::size_t blocks) const {
    return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(blocks)};
  }
  std::vector<requests::BlockId> prompt_ids(const Running& r) const {
    const auto ids = trace_.prompt_blocks(trace_.requests[r.request]);
    return {ids.begin(), ids.end()};
  }

  /// A shared block, and what a policy knows of it since a sequence that had it has left.
  struct Shared {
    Path path{};
    bool told = false;
    std::uint64_t stored = 0, used = 0, uses = 0;  ///< counts of everything that the policy was told
    double used_s = 0, age = 0;
  };
  std::list<Shared>::iterator find(const Path& path) {
    return std::find_if(cached_.begin(), cached_.end(), [&](const Shared& of) { return of.path == path; });
  }
  bool there(const Path& path) { return find(path) != cached_.end(); }
  std::string policy() const { return settings_.prefix_cache ? settings_.prefix_cache->spec->name : ""; }
  /// What leaves first has the lowest.
  std::pair<double, std::uint64_t> order(const Shared& of) const {
    if (policy() == "fifo") return {0, of.stored};
    if (policy() == "lfu") return {of.age + static_cast<double>(of.uses), of.used};
    return {0, of.used};
  }
  void tell(const Path& path) {
    Shared& of = *find(path);
    of.uses = of.told ? of.uses + 1 : 1;
    if (!of.told) of.stored = clock_;
    of.told = true;
    of.used = clock_++;
    of.used_s = now_;
    of.age = age_;
  }

  bool pinned(const Path& path) const {
    for (const Running& r : running_)
      if (std::find(r.shared.begin(), r.shared.end(), path) != r.shared.end()) return true;
    return false;
  }
  std::uint64_t free_blocks() const {
    std::uint64_t taken = cached_.size();
    for (const Running& r : running_) taken += r.room / block_ - r.shared.size();
    return blocks_ - taken;
  }
  /// Evicts until so many blocks are free; `keep` stays.
  bool make_free(std::uint64_t blocks, const std::vector<Path>& keep) {
    std::uint64_t evictable = 0;
    for (const Shared& of : cached_)
      if (!pinned(of.path) && std::find(keep.begin(), keep.end(), of.path) == keep.end()) ++evictable;
    if (blocks > free_blocks() + evictable) return false;
    while (free_blocks() < blocks) {
      auto victim = cached_.end();
      for (auto of = cached_.begin(); of != cached_.end(); ++of)
        if (!pinned(of->path) && std::find(keep.begin(), keep.end(), of->path) == keep.end() &&
            (victim == cached_.end() || order(*of) < order(*victim)))
          victim = of;
      if (policy() == "lfu" && settings_.prefix_cache->params.flag("age")) age_ = order(*victim).first;
      cached_.erase(victim);
      ++evicted;
    }
    return true;
  }

  /// Bytes of the blocks of a sequence, token by token and layer by layer.
  std::uint64_t bytes(std::uint64_t tokens, std::uint64_t kept) const {
    if (tokens == 0) return 0;
    std::uint64_t sum = states;
    for (const std::uint64_t window : windows) {
      if (layer_bytes) {
        // The rest of a block has room for its tokens, which take less where they fill a group.
        std::uint64_t slots = tokens;
        while (slots % block_ != 0) ++slots;
        sum += std::max(layer_bytes(kept, tokens - kept), layer_bytes(kept, slots - kept));
        continue;
      }
      std::uint64_t held = 0;
      for (std::uint64_t token = 0; token < tokens; ++token)
        if (window == 0 || token + window >= tokens) ++held;
      while (held % block_ != 0) ++held;
      sum += held * layer_token;
    }
    return sum;
  }
  /// Whether there is room for `tokens` tokens of a sequence that has `room` of them, `kept` as a prompt.
  bool fits(std::uint64_t tokens, std::uint64_t room, std::uint64_t kept) const {
    std::uint64_t all = bytes(tokens, kept);
    for (const Running& r : running_) all += bytes(r.room, r.kept);
    return all - bytes(room, kept) <= settings_.memory.capacity;
  }

  void preempt() {
    Running victim = running_.back();
    ++out_[victim.request].preemptions;
    if (settings_.preemption == Preemption::swap && victim.computed > 0) {
      copy(victim);
      victim.swapped = true;
    } else {
      victim.computed = 0;
    }
    running_.pop_back();
    retire(victim);
    waiting_.push_front(victim);
  }
  void copy(const Running& r) {
    double seconds = 0;
    for (std::uint64_t block = 0; block < up(r.computed, block_); ++block) {
      const std::uint64_t tokens = std::min(block_, r.computed - block * block_);
      seconds += static_cast<double>(settings_.swap.run_copies) * settings_.swap.link.latency +
                 static_cast<double>(tokens) * settings_.swap.token_bytes / settings_.swap.link.bandwidth;
    }
    out_[r.request].swapped += seconds;
    swap_ += seconds;
  }
  /// The policy is told its shared blocks, the first one last.
  void retire(Running& r) {
    if (policy() == "queue_lru" && !r.shared.empty()) {
      const std::size_t window = settings_.prefix_cache->params.count("window");
      std::vector<Running> next(waiting_.begin(), waiting_.end());
      next.resize(std::min(next.size(), window));
      for (std::size_t i = next.size(); i-- > 0;)
        for (std::size_t block = prompt_ids(next[i]).size(); block > 0; --block)
          if (const auto of = find(path(prompt_ids(next[i]), block)); of != cached_.end() && of->told)
            of->used = clock_++;
    }
    for (std::size_t i = r.shared.size(); i-- > 0;) tell(r.shared[i]);
    r.shared.clear();
    r.room = 0;
  }

  bool admit(Running r, double now) {
    std::vector<Path> found;
    if (settings_.prefix_cache && !r.swapped) {
      const auto ids = prompt_ids(r);
      const std::uint64_t most = std::min(prompt(r), known(r) - 1) / block_;
      for (std::size_t i = 1; i <= std::min<std::size_t>(ids.size(), most); ++i) {
        if (!there(path(ids, i))) break;
        found.push_back(path(ids, i));
      }
    }
    const std::uint64_t needed = up(known(r), block_);
    if (windows.empty() ? !make_free(needed - found.size(), found) : !fits(known(r), 0, known(r)))
      return false;
    if (r.swapped) {
      copy(r);
      r.swapped = false;
    } else {
      r.computed = found.size() * block_;
    }
    r.shared = found;
    r.room = windows.empty() ? needed * block_ : known(r);
    r.kept = known(r);
    if (out_[r.request].computed == 0) {
      out_[r.request].started = now;
      out_[r.request].hits = r.computed;
    }
    running_.push_back(r);
    return true;
  }

  void share(Running& r, const std::vector<requests::BlockId>& ids, std::uint64_t tokens) {
    while (r.shared.size() < std::min<std::uint64_t>(ids.size(), tokens / block_)) {
      const Path next = path(ids, r.shared.size() + 1);
      if (!there(next)) cached_.push_back({next});
      r.shared.push_back(next);
    }
    r.room = std::max(r.room, r.shared.size() * block_);
  }

  double step(double now) {
    std::uint64_t left = settings_.step_tokens;
    bool preempted = false;
    swap_ = 0;
    now_ = now;
    if (policy() == "ttl")
      cached_.remove_if([&](const Shared& of) {
        return of.told && !pinned(of.path) &&
               now - of.used_s > settings_.prefix_cache->params.real("seconds");
      });
    for (Running& r : running_) r.part = 0;
    for (std::size_t i = 0; i < running_.size() && left > 0; ++i) {
      while (i < running_.size()) {
        const std::uint64_t needed = up(known(running_[i]), block_), has = running_[i].room / block_;
        if (!windows.empty()) {
          if (fits(known(running_[i]), running_[i].room, running_[i].kept)) {
            running_[i].room = known(running_[i]);
            break;
          }
          preempt();
          preempted = true;
          continue;
        }
        if (needed <= has) break;
        if (make_free(needed - has, {})) {
          running_[i].room = needed * block_;
          break;
        }
        preempt();
        preempted = true;
      }
      if (i == running_.size()) break;
      running_[i].part = std::min(left, known(running_[i]) - running_[i].computed);
      left -= running_[i].part;
    }
    while (!preempted && left > 0 && !waiting_.empty() && running_.size() < settings_.max_sequences) {
      if (!admit(waiting_.front(), now)) break;
      waiting_.pop_front();
      running_.back().part = std::min(left, known(running_.back()) - running_.back().computed);
      left -= running_.back().part;
    }
    std::vector<cost::Chunk> chunks;
    cost::StepWork work;
    for (Running& r : running_) {
      if (r.part == 0) continue;
      const bool last = r.computed + r.part == known(r);
      if (last) ++work.sampled;
      if (last && r.part == 1 && generated(r) > 0) {
        ++work.decoding;
        work.attended += r.computed + 1;
        work.within_window += std::min(r.computed + 1, settings_.window);
      } else {
        chunks.push_back({r.part, r.computed});
      }
    }
    work.chunks = chunks;
    const double end = now + (price_(work) + swap_);
    now_ = end;
    ended_.clear();
    std::vector<std::uint32_t> order;
    for (const Running& r : running_) order.push_back(r.request);
    for (const std::uint32_t request : order) {
      const auto at = std::find_if(running_.begin(), running_.end(),
                                   [&](const Running& r) { return r.request == request; });
      Running& r = *at;
      const std::uint64_t before = r.computed;
      r.computed += r.part;
      out_[r.request].computed += r.part;
      if (settings_.prefix_cache && before < prompt(r))
        share(r, prompt_ids(r), std::min(r.computed, prompt(r)));
      if (r.part == 0 || r.computed < known(r)) continue;
      out_[r.request].tokens.push_back(end);
      const requests::Request& asked = trace_.requests[r.request];
      if (generated(r) < asked.generated_tokens) continue;
      if (settings_.prefix_cache && asked.n_final_blocks > 0) {
        const auto ids = trace_.final_blocks(asked);
        share(r, {ids.begin(), ids.end()}, r.computed);
      }
      Running gone = r;
      running_.erase(at);
      retire(gone);
      ended_.push_back(request);
    }
    return end;
  }

  const EngineSettings settings_;
  const requests::RequestTrace& trace_;
  const std::function<double(const cost::StepWork&)> price_;
  std::uint64_t block_ = 0, blocks_ = 0;
  std::list<Running> waiting_{};
  std::vector<Running> running_{};
  std::list<Shared> cached_{};
  std::uint64_t clock_ = 0;
  double now_ = 0, age_ = 0;
  std::map<std::uint32_t, Outcome> out_{};
  std::vector<std::uint32_t> ended_{};
  double swap_ = 0;
};

}  // namespace kvsim::serving
