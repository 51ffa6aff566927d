#include "tools/printing/front_end.hpp"

#include <iostream>
#include <utility>

#include "policies/builtin.hpp"
#include "tools/printing/progress_display.hpp"

namespace kvsim::tools {
namespace {

class Terminal final : public FrontEnd {
 public:
  std::ostream& results() override { return std::cout; }
  void note(const std::string& text) override { std::cerr << "kvsim: note: " << text << '\n'; }
  void announce(const std::string& lines) override { std::cerr << lines; }
  std::shared_ptr<void> follow(Progress& progress, const std::string& label, bool quiet) override {
    return std::make_shared<ProgressDisplay>(progress, label, quiet);
  }
};

thread_local FrontEnd* of_thread = nullptr;

}  // namespace

const policy::Registry& FrontEnd::policies() const {
  return policy::builtin();
}

FrontEnd& front_end() {
  static Terminal terminal;
  return of_thread != nullptr ? *of_thread : terminal;
}

UseFrontEnd::UseFrontEnd(FrontEnd& front_end) : before_(std::exchange(of_thread, &front_end)) {}

UseFrontEnd::~UseFrontEnd() {
  of_thread = before_;
}

}  // namespace kvsim::tools
