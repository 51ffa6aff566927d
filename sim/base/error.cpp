#include "sim/base/error.hpp"

namespace kvsim {
namespace {

std::string compose(std::string_view what, std::string_view where, std::string_view hint) {
  std::string text;
  if (!where.empty()) text.append(where).append(": ");
  text.append(what);
  if (!hint.empty()) text.append("\n  ").append(hint);
  return text;
}

}  // namespace

Error::Error(ErrorKind kind, std::string_view what, std::string_view where, std::string_view hint)
    : std::runtime_error(compose(what, where, hint)),
      kind_(kind),
      problem_(what),
      where_(where),
      hint_(hint) {}

void usage_error(std::string_view what, std::string_view where, std::string_view hint) {
  throw Error(ErrorKind::usage, what, where, hint);
}
void input_error(std::string_view what, std::string_view where, std::string_view hint) {
  throw Error(ErrorKind::input, what, where, hint);
}
void bug(std::string_view what, std::string_view where) {
  throw Error(ErrorKind::bug, what, where,
              "This is a bug in kvsim: please report the command that led here.");
}

}  // namespace kvsim
