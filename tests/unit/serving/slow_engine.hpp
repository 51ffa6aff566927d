#pragma once
/// The rules of sim/serving/README.md once more, with lists and dictionaries: every token of every sequence
/// is looked at in every step, and memory is counted anew each time it is asked for.
#include <algorithm>
#include <cmath>
#include <functional>
#include <list>
#include <map>
#include <vector>

#include "sim/serving/engine.hpp"

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
    for (const Path& path : cached_)
      if (!pinned(path) && std::find(keep.begin(), keep.end(), path) == keep.end()) ++evictable;
    if (blocks > free_blocks() + evictable) return false;
    while (free_blocks() < blocks) {
      // Oldest first.
      const auto victim = std::find_if(cached_.begin(), cached_.end(), [&](const Path& path) {
        return !pinned(path) && std::find(keep.begin(), keep.end(), path) == keep.end();
      });
      cached_.erase(victim);
    }
    return true;
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
  /// Its shared blocks become the newest, the first one last; only what nobody else has moves.
  void retire(Running& r) {
    for (std::size_t i = r.shared.size(); i-- > 0;) {
      if (pinned(r.shared[i])) continue;
      cached_.remove(r.shared[i]);
      cached_.push_back(r.shared[i]);
    }
    r.shared.clear();
    r.room = 0;
  }

  bool admit(Running r, double now) {
    std::vector<Path> found;
    if (settings_.prefix_cache && !r.swapped) {
      const auto ids = prompt_ids(r);
      const std::uint64_t most = std::min(prompt(r), known(r) - 1) / block_;
      for (std::size_t i = 1; i <= std::min<std::size_t>(ids.size(), most); ++i) {
        if (std::find(cached_.begin(), cached_.end(), path(ids, i)) == cached_.end()) break;
        found.push_back(path(ids, i));
      }
    }
    const std::uint64_t needed = up(known(r), block_);
    if (!make_free(needed - found.size(), found)) return false;
    if (r.swapped) {
      copy(r);
      r.swapped = false;
    } else {
      r.computed = found.size() * block_;
    }
    r.shared = found;
    r.room = needed * block_;
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
      if (std::find(cached_.begin(), cached_.end(), next) == cached_.end()) {
        cached_.push_back(next);
      }
      r.shared.push_back(next);
    }
    r.room = std::max(r.room, r.shared.size() * block_);
  }

  double step(double now) {
    std::uint64_t left = settings_.step_tokens;
    bool preempted = false;
    swap_ = 0;
    for (Running& r : running_) r.part = 0;
    for (std::size_t i = 0; i < running_.size() && left > 0; ++i) {
      while (i < running_.size()) {
        const std::uint64_t needed = up(known(running_[i]), block_), has = running_[i].room / block_;
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
      } else {
        chunks.push_back({r.part, r.computed});
      }
    }
    work.chunks = chunks;
    const double end = now + (price_(work) + swap_);
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
  std::list<Path> cached_{};  ///< shared blocks, of those that nobody has the oldest first
  std::map<std::uint32_t, Outcome> out_{};
  std::vector<std::uint32_t> ended_{};
  double swap_ = 0;
};

}  // namespace kvsim::serving
