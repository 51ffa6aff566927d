#include "sim/cost/pool.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/cost/checked.hpp"
#include "sim/cost/storage.hpp"

namespace kvsim::cost {
namespace {

/// The gaps of a line of slots; neighbouring gaps are merged. A buddy system finds room for an aligned block
/// exactly when some gap holds one, since free buddies are always merged.
class Gaps {
 public:
  explicit Gaps(std::uint64_t slots) {
    if (slots > 0) gaps_[0] = slots;
  }

  std::optional<std::uint64_t> take(std::uint64_t length, std::uint64_t alignment) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      const auto [begin, free] = *gap;
      const std::uint64_t skipped = (alignment - begin % alignment) % alignment;
      if (skipped > free || free - skipped < length) continue;
      gaps_.erase(gap);
      if (skipped > 0) gaps_[begin] = skipped;
      if (free > skipped + length) gaps_[begin + skipped + length] = free - skipped - length;
      return begin + skipped;
    }
    return std::nullopt;
  }

  void give_back(std::uint64_t begin, std::uint64_t length) {
    auto next = gaps_.lower_bound(begin);
    if (next != gaps_.end() && next->first == begin + length) {
      length += next->second;
      next = gaps_.erase(next);
    }
    if (next != gaps_.begin() && std::prev(next)->first + std::prev(next)->second == begin) {
      std::prev(next)->second += length;
    } else {
      gaps_[begin] = length;
    }
  }

 private:
  std::map<std::uint64_t, std::uint64_t> gaps_{};  ///< begin -> length
};

struct Resident {
  std::uint64_t held = 0, final_tokens = 0;
  std::uint64_t begin = 0, block = 0;  ///< paged: block alone, pages times their size
};

class Pool {
 public:
  Pool(Allocator allocator, std::span<const Request> requests, std::uint64_t slots, std::uint64_t max_tokens,
       std::uint64_t page)
      : allocator_(allocator), slots_(slots), max_tokens_(max_tokens), page_(page), gaps_(slots) {
    for (const Request& request : requests) {
      if (request.generated > 0)
        queue_.push_back({request.prompt, checked_sum("a request", request.prompt, request.generated), 0, 0});
    }
  }

  PoolUse run() {
    while (!queue_.empty() || !residents_.empty()) {
      admit();
      grow();
      if (!queue_.empty()) count();
      retire();
    }
    if (use_.steps == 0)
      usage_error("no request waits: " + std::to_string(slots_) + " tokens hold all requests at once", "pool",
                  "Memory that is never short wastes nothing: ask with more requests or less memory.");
    const double all = static_cast<double>(use_.steps) * static_cast<double>(slots_);
    use_.shares = {use_.shares.used / all, use_.shares.reserved / all, use_.shares.internal / all};
    use_.external /= all;
    use_.running /= static_cast<double>(use_.steps);
    return use_;
  }

 private:
  bool paged() const { return allocator_ == Allocator::paged; }

  std::uint64_t block_of(const Resident& request) const {
    if (allocator_ == Allocator::longest) return max_tokens_;
    if (allocator_ == Allocator::buddy) return power_of_two(request.final_tokens);
    if (allocator_ == Allocator::exact) return request.final_tokens;
    return checked_product("pages", pages_of(request.held + 1, page_), page_);
  }

  /// Reserves the request's memory; returns false if there is no room.
  bool enter(Resident& request) {
    const std::uint64_t block = block_of(request);
    if (paged()) {
      if (block > slots_ - taken_) return false;
    } else {
      const auto begin = gaps_.take(block, allocator_ == Allocator::buddy ? block : 1);
      if (!begin) return false;
      request.begin = *begin;
    }
    request.block = block;
    taken_ += block;
    return true;
  }

  void leave(const Resident& request) {
    if (!paged()) gaps_.give_back(request.begin, request.block);
    taken_ -= request.block;
  }

  void admit() {
    while (!queue_.empty() && enter(queue_.front())) {
      residents_.push_back(queue_.front());
      queue_.pop_front();
    }
    if (residents_.empty() && !queue_.empty()) refuse(queue_.front());
  }

  [[noreturn]] void refuse(const Resident& request) const {
    usage_error("a request of " + std::to_string(request.final_tokens) + " tokens does not fit a pool of " +
                    std::to_string(slots_),
                "pool");
  }

  /// Gives every resident a token; preempts those that came last when there is no room.
  void grow() {
    for (std::size_t i = 0; i < residents_.size(); ++i) {
      while (paged() && residents_[i].held == residents_[i].block && page_ > slots_ - taken_) {
        if (residents_.size() == 1) refuse(residents_.front());
        preempt_last();
        if (i == residents_.size()) return;
      }
      if (residents_[i].held == residents_[i].block) {
        residents_[i].block += page_;
        taken_ += page_;
      }
      ++residents_[i].held;
    }
  }

  void preempt_last() {
    leave(residents_.back());
    queue_.push_front(residents_.back());
    residents_.pop_back();
    ++use_.preemptions;
  }

  void count() {
    ++use_.steps;
    use_.running += static_cast<double>(residents_.size());
    for (const Resident& resident : residents_) {
      const std::uint64_t known = std::min(resident.block, resident.final_tokens);
      use_.shares.used += static_cast<double>(resident.held);
      use_.shares.reserved += static_cast<double>(known - resident.held);
      use_.shares.internal += static_cast<double>(resident.block - known);
    }
    use_.external += static_cast<double>(slots_ - taken_);
  }

  void retire() {
    std::erase_if(residents_, [this](const Resident& resident) {
      if (resident.held < resident.final_tokens) return false;
      leave(resident);
      return true;
    });
  }

  const Allocator allocator_;
  const std::uint64_t slots_, max_tokens_, page_;
  Gaps gaps_;
  std::uint64_t taken_ = 0;
  std::deque<Resident> queue_{};
  std::vector<Resident> residents_{};  ///< in order of arrival
  PoolUse use_{};
};

}  // namespace

PoolUse pool_use(Allocator allocator, std::span<const Request> requests, std::uint64_t slots,
                 std::uint64_t max_tokens, std::uint64_t page) {
  if (allocator == Allocator::paged) pages_of(0, page);  // throws for one of no tokens
  bool generates = false;
  for (const Request& request : requests) {
    if (allocator == Allocator::longest &&
        (request.prompt > max_tokens || request.generated > max_tokens - request.prompt))
      usage_error("a request of " + std::to_string(request.prompt) + " + " +
                      std::to_string(request.generated) + " tokens is longer than " +
                      std::to_string(max_tokens),
                  "max_tokens");
    const std::uint64_t tokens = checked_sum("a request", request.prompt, request.generated);
    if (allocator == Allocator::buddy) power_of_two(tokens);
    generates |= request.generated > 0;
  }
  if (!generates) usage_error("no request generates anything", "requests");
  return Pool(allocator, requests, slots, max_tokens, page).run();
}

}  // namespace kvsim::cost
