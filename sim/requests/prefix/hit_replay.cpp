#include "sim/requests/prefix/hit_replay.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "sim/base/error.hpp"
#include "sim/requests/prefix/block_cache.hpp"

namespace kvsim::prefix {
namespace {

using policy::RequestView;
using requests::Request;
using requests::RequestTrace;

/// Hands results out in the order of their cells, whichever is done first.
class InOrder {
 public:
  explicit InOrder(const std::function<void(CellHits&&)>& sink) : sink_(sink) {}

  void give(CellHits&& hits) {
    const std::lock_guard lock(mutex_);
    waiting_.emplace(hits.cell, std::move(hits));
    for (auto first = waiting_.begin(); first != waiting_.end() && first->first == next_;
         first = waiting_.erase(first), ++next_)
      sink_(std::move(first->second));
  }

 private:
  const std::function<void(CellHits&&)>& sink_;
  std::mutex mutex_;
  std::map<std::size_t, CellHits> waiting_;
  std::size_t next_ = 0;
};

CellHits hits_of(std::size_t cell, std::size_t requests) {
  CellHits out{.cell = cell};
  out.run.resize(requests);
  out.present.resize(requests);
  return out;
}

class Replay {
 public:
  Replay(const PrefixTree& tree, const RequestTrace& trace, std::span<const Cell> cells,
         const ReplaySettings& settings, InOrder& results)
      : tree_(tree), trace_(trace), cells_(cells), settings_(settings), results_(results) {
    if (settings.independent) alone_.assign(tree.size(), kRoot), shallow_.assign(tree.size(), 0);
  }

  /// The caches check their cells: a mistake is found before the work begins.
  bool needs_future() const {
    bool out = false;
    for (const Cell& cell : cells_) out |= BlockCache(cell.policy, probe(cell)).knows_future();
    return out;
  }
  void set_future(std::vector<std::uint32_t> next) { next_ = std::move(next); }

  void one(std::size_t index) const {
    const Cell& cell = cells_[index];
    BlockCache cache(cell.policy, space(cell), settings_.residency);
    CellHits out = hits_of(index, tree_.requests());
    settings_.independent ? drive_blocks(cache, out) : drive_requests(cache, out);
    out.stored = cache.stored();
    out.evictions = cache.evictions();
    out.residency = cache.residency();
    results_.give(std::move(out));
  }

  void lru(std::span<const std::size_t> which) const {
    LruStack stack(tree_);
    std::vector<CellHits> out;
    for (const std::size_t index : which) out.push_back(hits_of(index, tree_.requests()));
    for (std::size_t r = 0; r < tree_.requests(); ++r) {
      const auto prompt = stack.find(tree_.prompt(r));
      for (std::size_t k = 0; k < which.size(); ++k) {
        const std::size_t run = LruStack::within(prompt, cells_[which[k]].capacity);
        out[k].run[r] = out[k].present[r] = static_cast<std::uint32_t>(run);
        if (settings_.resident)
          for (std::size_t i = 0; i < tree_.prompt(r).size(); ++i) out[k].resident.push_back(i < run);
      }
      const std::span<const Node> path = tree_.final_path(r);
      const auto& left = path.data() == tree_.prompt(r).data() ? prompt : stack.find(path);
      for (std::size_t k = 0; k < which.size(); ++k) {
        const std::uint64_t capacity = cells_[which[k]].capacity;
        const std::uint64_t wanted = std::min<std::uint64_t>(path.size(), capacity);
        out[k].stored += wanted - std::min<std::uint64_t>(wanted, LruStack::within(left, capacity));
      }
      stack.touch(path, static_cast<std::uint32_t>(r));
    }
    for (std::size_t k = 0; k < which.size(); ++k) {
      out[k].evictions = out[k].stored - std::min<std::uint64_t>(stack.size(), cells_[which[k]].capacity);
      results_.give(std::move(out[k]));
    }
  }

 private:
  /// Enough of a space to make a policy that is asked about itself.
  policy::BlockSpace probe(const Cell& cell) const {
    return {.capacity = cell.capacity,
            .seconds = settings_.seconds,
            .categories = trace_.categories.size(),
            .nodes = cell.nodes};
  }

  policy::BlockSpace space(const Cell& cell) const {
    policy::BlockSpace out = block_space(tree_, cell.capacity, settings_.seconds, trace_.categories.size());
    out.nodes = cell.nodes;
    if (settings_.independent) out.parents = alone_, out.depths = shallow_;
    return out;
  }

  RequestView view(std::size_t r) const {
    const Request& request = trace_.requests[r];
    return {.number = r,
            .time_s = request.time_s,
            .category = request.category,
            .priority = request.priority,
            .path = tree_.final_path(r)};
  }

  void drive_requests(BlockCache& cache, CellHits& out) const {
    std::vector<std::span<const Node>> waiting;
    std::vector<std::uint32_t> next;
    std::uint64_t at = 0;
    for (std::size_t r = 0; r < tree_.requests(); ++r) {
      const std::span<const Node> prompt = tree_.prompt(r);
      cache.advance(trace_.requests[r].time_s);
      out.run[r] = static_cast<std::uint32_t>(cache.leading_run(prompt));
      out.present[r] = static_cast<std::uint32_t>(cache.present(prompt));
      if (settings_.resident)
        for (const Node node : prompt) out.resident.push_back(cache.resident(node));
      RequestView seen = view(r);
      if (const std::size_t ahead = cache.lookahead()) {
        waiting.clear();
        for (std::size_t i = r + 1; i < tree_.requests() && i - r <= ahead; ++i)
          waiting.push_back(tree_.prompt(i));
        seen.waiting = waiting;
      }
      if (cache.knows_future()) seen.next_use = std::span(next_).subspan(at, seen.path.size());
      at += seen.path.size();
      cache.request(seen);
    }
  }

  void drive_blocks(BlockCache& cache, CellHits& out) const {
    std::vector<std::span<const Node>> waiting;
    std::uint64_t number = 0;
    for (std::size_t r = 0; r < tree_.requests(); ++r) {
      RequestView seen = view(r);
      cache.advance(seen.time_s);
      const std::span<const Node> path = tree_.prompt(r);
      for (std::size_t i = 0; i < path.size(); ++i, ++number) {
        seen.number = number;
        seen.path = path.subspan(i, 1);
        if (cache.knows_future()) seen.next_use = std::span(next_).subspan(number, 1);
        out.run[r] += cache.resident(path[i]) ? 1 : 0;
        cache.request(seen);
      }
      out.present[r] = out.run[r];
    }
  }

  const PrefixTree& tree_;
  const RequestTrace& trace_;
  std::span<const Cell> cells_;
  const ReplaySettings& settings_;
  InOrder& results_;
  std::vector<Node> alone_;
  std::vector<std::uint32_t> shallow_, next_;
};

}  // namespace

std::vector<std::uint32_t> next_uses(const PrefixTree& tree, bool independent) {
  std::vector<std::uint32_t> seen(tree.size(), policy::kNever), out;
  std::uint64_t blocks = 0;
  const auto path = [&](std::size_t r) { return independent ? tree.prompt(r) : tree.final_path(r); };
  for (std::size_t r = 0; r < tree.requests(); ++r) blocks += path(r).size();
  if (independent && blocks >= policy::kNever)
    usage_error("blocks that are requests of their own are numbered up to 4,294,967,294", "opt",
                "Replay a part of the trace, or sample it.");
  out.resize(blocks);
  for (std::size_t r = tree.requests(); r-- > 0;) {
    const std::span<const Node> of_request = path(r), prompt = tree.prompt(r);
    for (std::size_t i = of_request.size(); i-- > 0;) {
      out[--blocks] = seen[of_request[i]];
      if (independent) seen[of_request[i]] = static_cast<std::uint32_t>(blocks);
    }
    if (!independent)
      for (const Node node : prompt) seen[node] = static_cast<std::uint32_t>(r);
  }
  return out;
}

void replay(const PrefixTree& tree, const RequestTrace& trace, std::span<const Cell> cells,
            const ReplaySettings& settings, Workers& workers, const std::function<void(CellHits&&)>& sink) {
  if (tree.requests() != trace.requests.size()) bug("the tree is of another trace");
  if (settings.resident && settings.independent) bug("independent blocks have no prompts to be resident of");
  InOrder results(sink);
  Replay run(tree, trace, cells, settings, results);
  if (run.needs_future()) run.set_future(next_uses(tree, settings.independent));
  // Where a request is its whole path the stack has stretches; blocks on their own do not.
  const bool stack = settings.stack_distances && !settings.residency && !settings.independent;
  std::vector<std::size_t> by_stack, by_cell;
  for (std::size_t i = 0; i < cells.size(); ++i)
    (stack && !cells[i].nodes && cells[i].policy.spec->name == "lru" ? by_stack : by_cell).push_back(i);
  // One pass for a few capacities at a time, so that a study of LRU alone has work for several threads.
  constexpr std::size_t kPerPass = 32;
  const std::size_t passes = tasks_of(by_stack.size(), kPerPass);
  workers.run(passes + by_cell.size(), [&](std::size_t task) {
    if (task >= passes) return run.one(by_cell[task - passes]);
    const std::size_t begin = task * kPerPass;
    run.lru(std::span(by_stack).subspan(begin, std::min(kPerPass, by_stack.size() - begin)));
  });
}

namespace {

constexpr std::uint32_t kUnused = std::numeric_limits<std::uint32_t>::max();

}  // namespace

LruStack::LruStack(const PrefixTree& tree)
    : last_(tree.size(), kUnused), begins_(tree.requests(), 0), sums_(tree.requests() + 1, 0) {}

std::uint64_t LruStack::above(std::uint32_t request) const {
  std::int64_t below = 0;
  for (std::size_t i = request + std::size_t{1}; i > 0; i &= i - 1) below += sums_[i];
  return size_ - static_cast<std::uint64_t>(below);
}

void LruStack::add(std::uint32_t request, std::int64_t blocks) {
  for (std::size_t i = request + std::size_t{1}; i < sums_.size(); i += i & (~i + 1)) sums_[i] += blocks;
}

const std::vector<LruStack::Stretch>& LruStack::find(std::span<const Node> path) {
  stretches_.clear();
  std::size_t i = 0;
  while (i < path.size() && last_[path[i]] != kUnused) {
    const std::uint32_t request = last_[path[i]];
    const std::size_t begin = i;
    while (i < path.size() && last_[path[i]] == request) ++i;
    stretches_.push_back({begin, i, above(request) + (begin - begins_[request])});
  }
  return stretches_;
}

void LruStack::touch(std::span<const Node> path, std::uint32_t request) {
  for (std::size_t i = 0; i < path.size();) {
    const std::uint32_t before = last_[path[i]];
    const std::size_t begin = i;
    for (; i < path.size() && last_[path[i]] == before; ++i) last_[path[i]] = request;
    if (before == kUnused) {
      size_ += i - begin;
      continue;
    }
    begins_[before] = static_cast<std::uint32_t>(i);
    add(before, -static_cast<std::int64_t>(i - begin));
  }
  add(request, static_cast<std::int64_t>(path.size()));
}

std::size_t LruStack::within(std::span<const Stretch> stretches, std::uint64_t capacity) {
  std::size_t run = 0;
  for (const Stretch& stretch : stretches) {
    if (stretch.place >= capacity) break;
    run = stretch.begin + std::min<std::uint64_t>(stretch.end - stretch.begin, capacity - stretch.place);
    if (run < stretch.end) break;
  }
  return run;
}

}  // namespace kvsim::prefix
