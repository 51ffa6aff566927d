#pragma once
/// The tasks of a choice, shared out among the processes that make it together. Every rank draws, prices and
/// drops the same settings; of the prompts to be answered each does its own, and reads what the others have
/// written into the folder that they share.
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "analysis/study/ranks.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::analysis {

class SharedTasks {
 public:
  /// `ranks`: null: this process is alone.
  SharedTasks(std::string folder, Ranks* ranks) : folder_(std::move(folder)), ranks_(ranks) {}

  bool leads() const { return ranks_ == nullptr || ranks_->rank() == 0; }
  bool is_own(std::size_t task) const { return ranks_ == nullptr || task % ranks_->size() == ranks_->rank(); }

  /// Rank 0: the folder is there, with a file that says what was asked.
  void begin(const std::string& asked) const;
  /// Another rank: until it is. Throws Error(input) if rank 0 was asked for something else, or does not share
  /// its folder.
  void await_begin(const std::string& file, const std::string& asked) const;
  /// Until a task is finished, whoever does it. Throws what a rank fails at.
  void await(const std::string& task, const Progress& progress) const;

 private:
  void hear() const;

  std::string folder_;
  Ranks* ranks_;
};

/// What a rank other than 0 does: `work`, of which rank 0 is told what it throws. Returns the exit code of
/// all ranks once rank 0 has ended.
int help_choosing(Ranks& ranks, const std::function<void()>& work);

}  // namespace kvsim::analysis
