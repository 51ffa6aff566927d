#include "analysis/choice/shared_tasks.hpp"

#include <chrono>
#include <optional>
#include <thread>

#include "analysis/study/rank_messages.hpp"
#include "analysis/study/same_study.hpp"
#include "analysis/study/study_folder.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"

namespace kvsim::analysis {
namespace {

using std::chrono::steady_clock;

/// Between two looks at a file system that may be far away.
constexpr std::chrono::milliseconds kLook{20};

/// Rank 0 has ended all ranks.
struct Ended {
  int code;
};

/// An order that has arrived, unless it is the end.
std::optional<RankOrder> received(Ranks& ranks) {
  const auto message = ranks.receive();
  if (!message) return std::nullopt;
  RankOrder order = parse_order(message->text);
  if (order.kind == RankOrder::Kind::end) throw Ended{order.code};
  return order;
}

}  // namespace

void SharedTasks::begin(const std::string& asked) const {
  RankOrder order;
  order.text = asked;
  for (std::size_t rank = 1; ranks_ != nullptr && rank < ranks_->size(); ++rank)
    ranks_->send(rank, message_text(order));
}

void SharedTasks::await_begin(const std::string& file, const std::string& asked) const {
  std::optional<RankOrder> order;
  while (!(order = received(*ranks_))) std::this_thread::sleep_for(kRankPause);
  if (order->text != asked) input_error("rank 0 has other prompts or options", file);
  const auto seen = [&] {
    try {
      return read_file(file, asked.size()) == asked;
    } catch (const Error&) {
      return false;  // not there yet, or another one
    }
  };
  for (const auto end = steady_clock::now() + kLateness; !seen(); std::this_thread::sleep_for(kLook))
    if (steady_clock::now() > end)
      input_error("is not as rank 0 has written it", file, "All ranks must share the folder of the results.");
}

void SharedTasks::await(const std::string& task, const Progress& progress) const {
  for (; !task_finished(folder_, task); std::this_thread::sleep_for(kLook)) {
    progress.check();
    hear();
  }
}

void SharedTasks::hear() const {
  if (!leads()) {
    received(*ranks_);
    return;
  }
  const auto message = ranks_->receive();
  if (!message) return;
  const RankReport report = parse_report(message->text);
  if (report.error) throw error_of(message->from, report);
}

int help_choosing(Ranks& ranks, const std::function<void()>& work) {
  try {
    attempt(ranks, work);
    while (true) {
      received(ranks);
      std::this_thread::sleep_for(kRankPause);
    }
  } catch (const Ended& end) {
    return end.code;
  }
}

}  // namespace kvsim::analysis
