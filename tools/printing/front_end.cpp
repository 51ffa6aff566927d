#include "tools/printing/front_end.hpp"

#include <utility>

#include "policies/builtin.hpp"
#include "tools/printing/terminal_front_end.hpp"

namespace kvsim::tools {
namespace {

thread_local FrontEnd* of_thread = nullptr;

}  // namespace

const policy::Registry& FrontEnd::policies() const {
  return policy::builtin();
}

FrontEnd& front_end() {
  static TerminalFrontEnd terminal;
  return of_thread != nullptr ? *of_thread : terminal;
}

UseFrontEnd::UseFrontEnd(FrontEnd& front_end) : before_(std::exchange(of_thread, &front_end)) {}

UseFrontEnd::~UseFrontEnd() {
  of_thread = before_;
}

}  // namespace kvsim::tools
