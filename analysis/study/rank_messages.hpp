#pragma once
/// What the ranks of a study tell each other: rank 0 gives orders, the others report. As texts they are JSON.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "analysis/study/ranks.hpp"
#include "analysis/study/study_folder.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis {

/// Between two looks at what has arrived: next to nothing beside a job, and no processor is kept busy by
/// waiting.
inline constexpr std::chrono::milliseconds kRankPause{2};

/// From rank 0.
struct RankOrder {
  enum class Kind {
    begin,  ///< the study is begun: its study.json has the digest `text`
    open,   ///< open a trace
    task,   ///< run a task of it
    close,  ///< close it
    stop,   ///< leave the job at once
    end     ///< end with exit code `code`
  };
  Kind kind = Kind::begin;
  std::uint64_t trace = 0, task = 0;
  int code = 0;
  std::string text{};
};

/// An Error on its way; `kind` is its ErrorKind.
struct RankFailure {
  int kind = 0;
  std::string problem, where, hint;
};

/// To rank 0.
struct RankReport {
  enum class Kind {
    planned,  ///< has planned the study whose digest is `text`
    share,    ///< `share` of its job is done
    done,     ///< is free: has done its job, or what there was to do before the first
    failed    ///< is free: `error` ends the study
  };
  Kind kind = Kind::planned;
  std::string text{};                     ///< of done: why the trace could not be read; empty: it could
  double share = 0;                       ///< from 0 to 1
  std::string host{};                     ///< the rank's machine
  std::optional<StudiedTrace> studied{};  ///< of done: the trace that was opened
  std::vector<std::string> notes{};       ///< what a person should know
  std::optional<RankFailure> error{};
};

std::string message_text(const RankOrder& order);
std::string message_text(const RankReport& report);
/// The reverse. Throw Error(bug): only ranks write messages.
RankOrder parse_order(const std::string& text);
RankReport parse_report(const std::string& text);

/// An error as a report.
RankReport failed_report(const Error& error);
/// Sends rank 0 what this rank reports, with its machine.
void tell_leader(Ranks& ranks, RankReport report);
/// Does `work`, and tells rank 0 the Error that it throws or that memory ran out.
void attempt(Ranks& ranks, const std::function<void()>& work);
/// What a rank failed at, for rank 0 to tell.
Error error_of(std::size_t rank, const RankReport& report);

}  // namespace kvsim::analysis
