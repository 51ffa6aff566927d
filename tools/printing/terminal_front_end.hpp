#pragma once
/// People at a terminal: results on standard output, everything else on standard error, with control
/// characters made visible (visible_text.hpp).
#include <optional>
#include <utility>

#include "tools/launcher.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {

class TerminalFrontEnd final : public FrontEnd {
 public:
  explicit TerminalFrontEnd(std::optional<Mpi> mpi = {}) : mpi_(std::move(mpi)) {}

  std::ostream& results() override;
  std::ostream& data() override;
  std::ostream* painted() override;
  /// COLUMNS where it is set, else of the terminal; any number for pipes and files.
  std::size_t width() const override;
  void note(const std::string& text) override;
  void announce(const std::string& lines) override;
  std::shared_ptr<void> follow(Progress& progress, const std::string& label, bool quiet) override;
  analysis::Ranks* ranks() override;
  std::string mpi() const override;

 private:
  std::optional<Mpi> mpi_;
};

}  // namespace kvsim::tools
