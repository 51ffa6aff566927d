#pragma once
/// What libraries and the handler of SIGINT and SIGTERM tell each other. The handler is the command's
/// (tools/signals.hpp); a program without one only ever sees `seen` false. Long work stops through its
/// Progress; everything else ends at once, and the handler removes what is then half-written.
#include <atomic>
#include <string>

namespace kvsim::interruption {

/// Whether a signal has asked this process to stop.
inline std::atomic<bool> seen{false};
/// Waits that only another process can end. While there is one, the first signal ends the process at once:
/// nothing that waits looks at a Progress.
inline std::atomic<int> waits{0};

/// Lasts as long as a wait. Throws Error(interrupted) if a signal came before it.
class Wait {
 public:
  Wait();
  ~Wait() { waits.fetch_sub(1); }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
};

/// Lasts as long as a file that must not outlive the process half-written.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

 private:
  std::atomic<const char*>* slot_ = nullptr;  ///< null: so many files are open that this one is not listed
};

/// Removes every unfinished file. A signal handler may call it.
void remove_unfinished_files() noexcept;

}  // namespace kvsim::interruption
