#pragma once
/// Who has called a command and takes what it says: people at a terminal, or a program that uses commands as
/// functions.
#include <cstddef>
#include <iosfwd>
#include <memory>
#include <string>

#include "analysis/results/document.hpp"
#include "analysis/study/ranks.hpp"
#include "policies/api/registry.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::tools {

class FrontEnd {
 public:
  virtual ~FrontEnd() = default;
  /// The policies that texts may name.
  virtual const policy::Registry& policies() const;
  /// Where results go that are no table, and tables that take() has left.
  virtual std::ostream& results() = 0;
  /// Where results go that programs read: as they are, but at a terminal.
  virtual std::ostream& data() { return results(); }
  /// Where results go with colours of ours in them, which results() would spell out; null: the reader sees no
  /// colours. What comes from files must be visible() already.
  virtual std::ostream* painted() { return nullptr; }
  /// Characters that a line of results() has room for; 0: any number.
  virtual std::size_t width() const { return 0; }
  /// Takes a result that would go to results(), in no format yet. False: it goes there as a text.
  virtual bool take(const analysis::Document& /*document*/) { return false; }
  /// What a person should know although nothing failed.
  virtual void note(const std::string& text) = 0;
  /// Lines that say what is about to run.
  virtual void announce(const std::string& lines) = 0;
  /// Follows `progress` until the returned object is gone, and sets its stop when the caller wants that.
  virtual std::shared_ptr<void> follow(Progress& progress, const std::string& label, bool quiet) = 0;
  /// The processes that a launcher has started together with this one, to share a study with; null: it is
  /// alone. They outlive the command. Throws Error(usage) when it cannot join them.
  virtual analysis::Ranks* ranks() { return nullptr; }
  /// What such processes would be joined by, with its version.
  virtual std::string mpi() const { return "none"; }
};

/// The one of this thread: the terminal, or what a UseFrontEnd has set.
FrontEnd& front_end();

/// Tells the front end what a person should know although nothing failed.
inline void note(const std::string& text) {
  front_end().note(text);
}

/// What `work` makes of a Progress that the front end follows meanwhile.
template <class Work>
auto followed(const std::string& label, bool quiet, const Work& work) {
  Progress progress;
  const std::shared_ptr<void> shown = front_end().follow(progress, label, quiet);
  return work(progress);
}

/// Commands that run in this thread speak to another front end while it exists.
class UseFrontEnd {
 public:
  explicit UseFrontEnd(FrontEnd& front_end);
  ~UseFrontEnd();
  UseFrontEnd(const UseFrontEnd&) = delete;
  UseFrontEnd& operator=(const UseFrontEnd&) = delete;

 private:
  FrontEnd* before_;
};

}  // namespace kvsim::tools
