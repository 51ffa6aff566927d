#include <algorithm>
#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <exception>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "host_cuda.hpp"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace host_cuda {
namespace {

constexpr unsigned kLanes = 32;
constexpr std::size_t kStack = std::size_t{128} << 10;

/// A stack and the sanitizers' record of it: sanitizers must be told when control moves from one stack to
/// another.
struct Stack {
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* kept = nullptr;
};
Stack scheduler_stack;

#if defined(__SANITIZE_ADDRESS__)
void name(Stack&) {}
void leave(Stack& from, const Stack& to) {
  __sanitizer_start_switch_fiber(&from.kept, to.bottom, to.size);
}
void arrive(const Stack& at, Stack& from) {
  __sanitizer_finish_switch_fiber(at.kept, &from.bottom, &from.size);
}
#elif defined(__SANITIZE_THREAD__)
void name(Stack& stack) {
  stack.kept = __tsan_create_fiber(0);
}
void leave(Stack& from, const Stack& to) {
  if (&from == &scheduler_stack) from.kept = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.kept, 0);
}
void arrive(const Stack&, Stack&) {}
#else
void name(Stack&) {}
void leave(Stack&, const Stack&) {}
void arrive(const Stack&, Stack&) {}
#endif

/// A thread of a block: a fiber that runs kernel after kernel.
struct Thread {
  enum class State { ready, at_block_barrier, at_warp_barrier, ended };

  State state = State::ended;
  std::array<std::uint32_t, 2> brought{};  // for this exchange, and for the next one
  unsigned exchanges = 0;
  const std::function<void()>* kernel = nullptr;
  std::exception_ptr failure;
  boost::context::fiber self, scheduler;
  Stack stack;

  void resume() {
    leave(scheduler_stack, stack);
    self = std::move(self).resume();
    Stack ended_on;  // this thread's, known
    arrive(scheduler_stack, ended_on);
  }
  void yield(State why) {
    state = why;
    leave(stack, scheduler_stack);
    scheduler = std::move(scheduler).resume();
    arrive(stack, scheduler_stack);
  }
  boost::context::fiber work(boost::context::fiber&& from) {
    scheduler = std::move(from);
    arrive(stack, scheduler_stack);
    for (;;) {
      try {
        (*kernel)();
      } catch (...) {
        failure = std::current_exception();
      }
      yield(State::ended);
    }
  }
};

Thread* current = nullptr;

/// Never destroyed: unwinding the fibers would have no use.
std::vector<std::unique_ptr<Thread>>& pool() {
  static auto* const kPool = new std::vector<std::unique_ptr<Thread>>;
  return *kPool;
}
/// Abandons the pool, whose fibers are stuck inside a kernel; the next kernel gets new ones.
void abandon_pool() {
  static auto* const kAbandoned = new std::vector<std::unique_ptr<Thread>>;
  std::move(pool().begin(), pool().end(), std::back_inserter(*kAbandoned));
  pool().clear();
}

void grow_pool(std::size_t threads) {
  while (pool().size() < threads) {
    auto thread = std::make_unique<Thread>();
    Thread* const raw = thread.get();
    boost::context::fixedsize_stack allocator(kStack);
    const boost::context::stack_context memory = allocator.allocate();
    raw->stack = {static_cast<std::byte*>(memory.sp) - memory.size, memory.size, nullptr};
    name(raw->stack);
    raw->self = boost::context::fiber(
        std::allocator_arg, boost::context::preallocated(memory.sp, memory.size, memory), allocator,
        [raw](boost::context::fiber&& from) { return raw->work(std::move(from)); });
    pool().push_back(std::move(thread));
  }
}

/// Sets `order` to 0 ... count - 1 in the machine's order; `turn` varies the shuffle.
void set_order(std::vector<unsigned>& order, unsigned count, std::uint64_t turn) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0U);
  if (machine().order == Order::backward) std::reverse(order.begin(), order.end());
  if (machine().order != Order::shuffled) return;
  std::uint64_t draw = turn * 0x9e3779b97f4a7c15U + 1;
  for (unsigned i = count; i > 1; --i) {
    draw = draw * 6364136223846793005U + 1442695040888963407U;
    std::swap(order[i - 1], order[(draw >> 33) % i]);
  }
}

class Block {
 public:
  explicit Block(unsigned threads) : threads_(threads) { grow_pool(threads); }

  void run(const std::function<void()>& kernel) {
    for (unsigned i = 0; i < threads_; ++i) {
      Thread& thread = *pool()[i];
      thread.state = Thread::State::ready;
      thread.kernel = &kernel;
      thread.exchanges = 0;
    }
    for (std::uint64_t turn = 0; count(0, threads_, Thread::State::ended) < threads_; ++turn) {
      set_order(order_, threads_, turn);
      for (const unsigned index : order_) resume(index);
      release();
    }
  }

 private:
  void resume(unsigned index) {
    Thread& thread = *pool()[index];
    if (thread.state != Thread::State::ready) return;
    threadIdx = {index, 0, 0};
    current = &thread;
    thread.resume();
    if (thread.failure) std::rethrow_exception(std::exchange(thread.failure, nullptr));
  }

  unsigned count(unsigned from, unsigned to, Thread::State state) const {
    return static_cast<unsigned>(std::count_if(pool().begin() + from, pool().begin() + to,
                                               [&](const auto& thread) { return thread->state == state; }));
  }
  static void make_ready(unsigned from, unsigned to) {
    for (unsigned i = from; i < to; ++i) pool()[i]->state = Thread::State::ready;
  }

  /// No thread can go on: opens the barriers that all threads have reached.
  void release() {
    bool moved = false;
    for (unsigned from = 0; from < threads_; from += kLanes) {
      const unsigned to = std::min(from + kLanes, threads_);
      if (count(from, to, Thread::State::at_warp_barrier) < to - from) continue;
      make_ready(from, to);
      moved = true;
    }
    if (moved || count(0, threads_, Thread::State::ended) == threads_) return;
    if (count(0, threads_, Thread::State::at_block_barrier) < threads_)
      throw std::logic_error("CUDA on the host: not every thread reaches the barrier");
    make_ready(0, threads_);
  }

  unsigned threads_;
  std::vector<unsigned> order_;
};

}  // namespace

std::uint32_t exchange(std::uint32_t bits, unsigned distance) {
  Thread& self = *current;
  const unsigned parity = self.exchanges++ % 2, partner = threadIdx.x ^ distance;
  self.brought[parity] = bits;
  self.yield(Thread::State::at_warp_barrier);
  return pool()[partner]->brought[parity];
}

void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  if (threads.x == 0 || threads.x > 1024 || threads.x % kLanes != 0 || threads.y * threads.z != 1 ||
      blocks.y > 65535)
    throw std::logic_error("CUDA on the host: not a shape of threads that kernels here have");
  gridDim = blocks;
  blockDim = threads;
  Block block(threads.x);
  std::vector<unsigned> order;
  try {
    for (unsigned y = 0; y < blocks.y; ++y) {
      set_order(order, blocks.x, y);
      for (const unsigned x : order) {
        blockIdx = {x, y, 0};
        block.run(thread);
      }
    }
  } catch (...) {
    abandon_pool();
    throw;
  }
}

}  // namespace host_cuda

void __syncthreads() {
  host_cuda::current->yield(host_cuda::Thread::State::at_block_barrier);
}
