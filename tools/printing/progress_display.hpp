#pragma once
/// Shows a Progress on stderr while work runs, and sets Progress::stop on Ctrl-C.
#include <memory>
#include <string>

#include "sim/base/progress.hpp"

namespace kvsim::tools {

/// A bar with ETA on a terminal, a line every five seconds elsewhere, nothing when quiet. While one exists,
/// the first SIGINT or SIGTERM sets progress.stop (tools/signals.hpp). The destructor ends the line.
class ProgressDisplay {
 public:
  ProgressDisplay(Progress& progress, const std::string& label, bool quiet);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvsim::tools
