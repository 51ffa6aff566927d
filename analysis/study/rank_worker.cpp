#include "analysis/study/rank_worker.hpp"

#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "analysis/study/rank_messages.hpp"
#include "analysis/study/study_folder.hpp"
#include "sim/base/error.hpp"
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

namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kShareEvery{1};

class Helper {
 public:
  Helper(Ranks& ranks, const RunOptions& options, Progress& progress, std::chrono::milliseconds lateness)
      : ranks_(ranks), options_(options), progress_(progress), lateness_(lateness) {}

  int serve(const std::function<StudyPlan()>& make_plan) {
    attempt(ranks_, [&] {
      plan_ = make_plan();
      RankReport planned;
      planned.text = plan_digest(*plan_);
      tell(planned);
    });
    while (true) {
      while (const auto message = ranks_.receive()) {
        const RankOrder order = parse_order(message->text);
        if (order.kind == RankOrder::Kind::end) return order.code;
        obey(order);
      }
      attempt(ranks_, [&] { join(); });
      report();
      std::this_thread::sleep_for(kRankPause);
    }
  }

 private:
  void tell(RankReport report) { tell_leader(ranks_, std::move(report)); }

  void obey(const RankOrder& order) {
    switch (order.kind) {
      case RankOrder::Kind::begin:
        begun_ = order.text;
        begun_at_ = steady_clock::now();
        return;
      case RankOrder::Kind::stop:
        progress_.stop = true;
        return;
      default:
        worker_->start(order);
        last_share_ = steady_clock::now();
    }
  }

  /// Once rank 0 has begun the study and this rank sees it: is free for jobs.
  void join() {
    if (begun_.empty()) return;
    if (study_digest(plan_->folder) != begun_) {
      if (steady_clock::now() < begun_at_ + lateness_) return;
      begun_.clear();
      input_error("is not as rank 0 has written it", plan_->folder + '/' + kStudyFile,
                  "All ranks must share the folder of the results.");
    }
    begun_.clear();
    folder_.emplace(StudyFolder::join(plan_->folder));
    worker_.emplace(*plan_, *folder_, options_.threads, options_.memory_limit);
    RankReport ready;
    ready.kind = RankReport::Kind::done;
    tell(ready);
  }

  void report() {
    if (progress_.stop) {
      if (worker_) worker_->stop();
      if ((!worker_ || !worker_->busy()) && !stopped_) {
        stopped_ = true;
        tell(failed_report(Error(ErrorKind::interrupted, "interrupted")));
      }
    }
    if (!worker_ || !worker_->busy()) return;
    if (const auto ended = worker_->report()) {
      stopped_ = stopped_ || ended->kind == RankReport::Kind::failed;
      tell(*ended);
    } else if (steady_clock::now() > last_share_ + kShareEvery) {
      last_share_ = steady_clock::now();
      RankReport share;
      share.kind = RankReport::Kind::share;
      share.share = worker_->share();
      tell(share);
    }
  }

  Ranks& ranks_;
  const RunOptions& options_;
  Progress& progress_;
  std::chrono::milliseconds lateness_;
  std::optional<StudyPlan> plan_;
  std::optional<StudyFolder> folder_;
  std::optional<RankWorker> worker_;  ///< once the study is begun here
  std::string begun_;                 ///< digest of a study that is begun, and not joined yet
  steady_clock::time_point begun_at_, last_share_;
  bool stopped_ = false;  ///< whether rank 0 knows that this rank does no more
};

}  // namespace

int help_with_study(Ranks& ranks, const std::function<StudyPlan()>& make_plan, const RunOptions& options,
                    Progress& progress, std::chrono::milliseconds lateness) {
  return Helper(ranks, options, progress, lateness).serve(make_plan);
}

}  // namespace kvsim::analysis
