#pragma once
/// Threads of a run. Work is cut into tasks by its shape alone, never by the number of threads, and each task
/// writes only its own results, so they are the same bytes for any number of threads.
#include <cstddef>
#include <functional>
#include <memory>

namespace kvsim {

/// Returns the number of tasks for n items, at most `per_task` items each.
constexpr std::size_t tasks_of(std::size_t n, std::size_t per_task) {
  return (n + per_task - 1) / per_task;
}

class Workers {
 public:
  /// 0: as many threads as the machine has.
  explicit Workers(unsigned threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  unsigned threads() const;
  /// Calls body(0) ... body(tasks - 1), in any order, and returns when all are done. If some throw, one of
  /// their exceptions is rethrown after the others have ended.
  void run(std::size_t tasks, const std::function<void(std::size_t)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim
