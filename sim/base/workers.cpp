#include "sim/base/workers.hpp"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>

namespace kvsim {

struct Workers::State {
  explicit State(int threads)
      : allowed(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads)),
        arena(threads) {}
  tbb::global_control allowed;  // TBB creates more threads than cores only when this asks for them
  tbb::task_arena arena;
  /// Orders memory accesses before run(), in the tasks, and after it. TBB does that too, but inside a library
  /// that ThreadSanitizer cannot see into.
  std::atomic<unsigned> turn{0};
};

Workers::Workers(unsigned threads)
    : state_(std::make_unique<State>(threads == 0 ? tbb::info::default_concurrency()
                                                  : static_cast<int>(threads))) {}
Workers::~Workers() = default;

unsigned Workers::threads() const {
  return static_cast<unsigned>(state_->arena.max_concurrency());
}

void Workers::run(std::size_t tasks, const std::function<void(std::size_t)>& body) {
  if (tasks == 1) return body(0);
  std::atomic<unsigned>& turn = state_->turn;
  turn.fetch_add(1, std::memory_order_acq_rel);
  state_->arena.execute([&] {
    tbb::parallel_for(tbb::blocked_range<std::size_t>(0, tasks, 1),
                      [&](const tbb::blocked_range<std::size_t>& range) {
                        turn.fetch_add(1, std::memory_order_acq_rel);
                        for (std::size_t task = range.begin(); task < range.end(); ++task) body(task);
                        turn.fetch_add(1, std::memory_order_acq_rel);
                      });
  });
  turn.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace kvsim
