#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/cost/pool.hpp"

namespace kvsim::cost::test_pool {
namespace {

/// Works slot by slot: every slot has an owner or none, pages are counted, and no state is kept between
/// steps.
class SlowPool {
 public:
  SlowPool(Allocator allocator, const std::vector<Request>& requests, std::uint64_t slots,
           std::uint64_t max_tokens, std::uint64_t page)
      : allocator_(allocator),
        requests_(requests),
        max_tokens_(max_tokens),
        page_(page),
        owner_(slots, kNobody) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      held_.push_back(requests[i].prompt);
      waiting_.push_back(i);
    }
  }

  PoolUse run() {
    while (!waiting_.empty() || !inside_.empty()) {
      while (!waiting_.empty() && reserve(waiting_.front(), held_[waiting_.front()] + 1)) {
        inside_.push_back(waiting_.front());
        waiting_.erase(waiting_.begin());
      }
      for (std::size_t i = 0; i < inside_.size(); ++i) {
        const std::size_t me = inside_[i];
        while (allocator_ == Allocator::paged && !reserve(me, held_[me] + 1)) {
          const std::size_t last = inside_.back();
          release(last);
          inside_.pop_back();
          waiting_.insert(waiting_.begin(), last);
          ++use_.preemptions;
          if (last == me) break;
        }
        if (i < inside_.size()) ++held_[me];
      }
      if (!waiting_.empty()) count();
      for (std::size_t i = inside_.size(); i-- > 0;) {
        if (held_[inside_[i]] < final_tokens(inside_[i])) continue;
        release(inside_[i]);
        inside_.erase(inside_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    const auto all = static_cast<double>(use_.steps * owner_.size());
    use_.shares = {use_.shares.used / all, use_.shares.reserved / all, use_.shares.internal / all};
    use_.external /= all;
    use_.running /= static_cast<double>(use_.steps);
    return use_;
  }

 private:
  static constexpr std::size_t kNobody = ~std::size_t{0};

  std::uint64_t final_tokens(std::size_t i) const { return requests_[i].prompt + requests_[i].generated; }
  std::uint64_t owned(std::size_t i) const {
    return static_cast<std::uint64_t>(std::count(owner_.begin(), owner_.end(), i));
  }
  void release(std::size_t i) { std::replace(owner_.begin(), owner_.end(), i, kNobody); }

  /// Makes room for `tokens` tokens of request i; pages may lie anywhere.
  bool reserve(std::size_t i, std::uint64_t tokens) {
    if (allocator_ == Allocator::paged) {
      std::uint64_t wanted = owned(i);
      while (wanted < tokens) wanted += page_;
      if (wanted - owned(i) > owned(kNobody)) return false;
      for (std::size_t& owner : owner_)
        if (owned(i) < wanted && owner == kNobody) owner = i;
      return true;
    }
    std::uint64_t block = allocator_ == Allocator::longest ? max_tokens_ : final_tokens(i), stride = 1;
    if (allocator_ == Allocator::buddy) {
      while (stride < block) stride *= 2;
      block = stride;
    }
    for (std::uint64_t begin = 0; begin + block <= owner_.size(); begin += stride) {
      const auto first = owner_.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = first + static_cast<std::ptrdiff_t>(block);
      if (std::count(first, last, kNobody) != static_cast<std::ptrdiff_t>(block)) continue;
      std::fill(first, last, i);
      return true;
    }
    return false;
  }

  void count() {
    ++use_.steps;
    use_.running += static_cast<double>(inside_.size());
    for (const std::size_t i : inside_) {
      for (std::uint64_t slot = 0; slot < owned(i); ++slot)
        ++(slot < held_[i]          ? use_.shares.used
           : slot < final_tokens(i) ? use_.shares.reserved
                                    : use_.shares.internal);
    }
    use_.external += static_cast<double>(owned(kNobody));
  }

  const Allocator allocator_;
  const std::vector<Request> requests_;
  const std::uint64_t max_tokens_, page_;
  std::vector<std::size_t> owner_, waiting_{}, inside_{};
  std::vector<std::uint64_t> held_{};
  PoolUse use_{};
};

}  // namespace

TEST_CASE("scattered free slots serve no request", "[cost][pool]") {
  // Ten slots. 3 and 6 tokens enter; the third, of 4, finds one slot, then, once the first has finished, 3
  // and 1. Steps hold 6, 4, 5, 6 tokens with 3, 2, 1, 0 to come; 1, 4, 4, 4 are free.
  const std::vector<Request> requests{{2, 1}, {2, 4}, {3, 1}};
  const PoolUse use = pool_use(Allocator::exact, requests, 10, 0, 0);
  CHECK(use.steps == 4);
  CHECK(use.shares.used == Approx(21.0 / 40));
  CHECK(use.shares.reserved == Approx(6.0 / 40));
  CHECK(use.shares.internal == 0);
  CHECK(use.external == Approx(13.0 / 40));
  CHECK(use.running == Approx(5.0 / 4));
}

TEST_CASE("a block of eight lies at a multiple of eight", "[cost][pool]") {
  // Twelve slots, two in use at the start: ten are free, and eight in a row, but not from 0.
  const std::vector<Request> requests{{1, 1}, {4, 4}};
  const PoolUse use = pool_use(Allocator::buddy, requests, 12, 0, 0);
  CHECK(use.steps == 1);
  CHECK(use.external == Approx(10.0 / 12));
  CHECK_THROWS_WITH(pool_use(Allocator::exact, requests, 12, 0, 0), Catch::Contains("no request waits"));
}

TEST_CASE("the last request to come gives its pages back", "[cost][pool]") {
  // Four pages of one token. Both requests hold two tokens when the first needs a third page.
  const std::vector<Request> requests{{1, 2}, {1, 2}};
  const PoolUse use = pool_use(Allocator::paged, requests, 4, 0, 1);
  CHECK(use.preemptions == 1);
  CHECK(use.steps == 1);
  CHECK(use.shares.used == Approx(0.75));
  CHECK(use.external == Approx(0.25));
}

TEST_CASE("pools agree with checking every slot", "[cost][pool]") {
  int preempted = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    auto below = [&, draw = std::uint64_t{0}](std::uint64_t n) mutable {
      return static_cast<std::uint64_t>(uniform01(combine({seed, draw++})) * static_cast<double>(n));
    };
    std::vector<Request> requests(6 + below(10));
    for (Request& request : requests) request = {below(12), 1 + below(12)};
    const std::uint64_t page = 1 + below(5), slots = 40 + below(20);
    for (const Allocator allocator :
         {Allocator::longest, Allocator::buddy, Allocator::exact, Allocator::paged}) {
      CAPTURE(seed, page, slots, static_cast<int>(allocator));
      const PoolUse slow = SlowPool(allocator, requests, slots, 24, page).run();
      if (slow.steps == 0) {
        CHECK_THROWS_AS(pool_use(allocator, requests, slots, 24, page), Error);
        continue;
      }
      const PoolUse fast = pool_use(allocator, requests, slots, 24, page);
      CHECK(fast.steps == slow.steps);
      CHECK(fast.preemptions == slow.preemptions);
      CHECK(fast.running == Approx(slow.running));
      CHECK(fast.shares.used == Approx(slow.shares.used));
      CHECK(fast.shares.reserved == Approx(slow.shares.reserved).margin(1e-12));
      CHECK(fast.shares.internal == Approx(slow.shares.internal).margin(1e-12));
      CHECK(fast.external == Approx(slow.external).margin(1e-12));
      CHECK(fast.shares.used + fast.shares.reserved + fast.shares.internal + fast.external == Approx(1));
      preempted += fast.preemptions > 0;
    }
  }
  CHECK(preempted > 5);
}

TEST_CASE("requests that no pool can hold are refused", "[cost][pool]") {
  const std::vector<Request> requests{{5, 6}, {1, 1}};
  CHECK_THROWS_WITH(pool_use(Allocator::exact, requests, 10, 0, 0), Catch::Contains("11 tokens"));
  CHECK_THROWS_WITH(pool_use(Allocator::paged, requests, 10, 0, 2), Catch::Contains("11 tokens"));
  CHECK_THROWS_AS(pool_use(Allocator::longest, requests, 100, 10, 0), Error);
  CHECK_THROWS_AS(pool_use(Allocator::exact, {}, 100, 10, 0), Error);
  CHECK_THROWS_AS(pool_use(Allocator::exact, requests, 0, 0, 0), Error);
}

}  // namespace kvsim::cost::test_pool
