#include "analysis/study/rank_worker.hpp"

#include <chrono>
#include <new>
#include <utility>

#include "sim/base/shortage.hpp"

namespace kvsim::analysis {

RankWorker::RankWorker(const StudyPlan& plan, StudyFolder& folder, unsigned threads,
                       std::uint64_t memory_limit)
    : plan_(plan), runner_(plan, folder, threads, memory_limit, note_) {}

RankWorker::~RankWorker() {
  stop();
  if (job_.valid()) job_.wait();
}

void RankWorker::start(const RankOrder& order) {
  progress_.begin_part(0, 1);
  job_ = std::async(std::launch::async, [this, order] {
    RankReport out;
    try {
      out.kind = RankReport::Kind::done;
      work(order, out);
    } catch (const Error& error) {
      out = failed_report(error);
    } catch (const std::bad_alloc&) {
      out = failed_report(Error(kShortage, "out of memory"));
    } catch (const std::exception& error) {
      out = failed_report(Error(ErrorKind::bug, std::string("unexpected error: ") + error.what()));
    }
    out.notes = std::exchange(notes_, {});
    return out;
  });
}

void RankWorker::work(const RankOrder& order, RankReport& report) {
  progress_.check();
  const StudyTrace& trace = plan_.traces.at(order.trace);
  switch (order.kind) {
    case RankOrder::Kind::open:
      report.studied = opened_[order.trace] = runner_.open(trace, progress_);
      return;
    case RankOrder::Kind::task:
      report.text = runner_.run(trace, tasks_of(plan_, trace).at(order.task), progress_);
      return;
    case RankOrder::Kind::close:
      runner_.close(trace, opened_.at(order.trace));
      return;
    default:
      bug("an order that is no job");
  }
}

std::optional<RankReport> RankWorker::report() {
  if (!job_.valid() || job_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return std::nullopt;
  return job_.get();
}

}  // namespace kvsim::analysis
