#include "sim/base/shortage.hpp"

#include <cerrno>
#include <new>
#include <string>
#include <system_error>

namespace kvsim {
namespace {

constexpr const char* kLess =
    "Close other programs, or ask for fewer cells, less --per detail or fewer --threads.";

bool is_shortage(int code) {
  return code == ENOMEM || code == EAGAIN || code == EMFILE || code == ENFILE;
}

}  // namespace

void refuse_shortage(int code, std::string_view what, std::string_view where) {
  if (is_shortage(code))
    throw Error(kShortage, std::string(what) + ": " + std::generic_category().message(code), where, kLess);
}

std::optional<Error> shortage_of(const std::exception& error) {
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && is_shortage(system->code().value()))
    return Error(kShortage, "no thread can be started: " + system->code().message(), "", kLess);
  // oneTBB throws a runtime_error of these words.
  if (std::string_view(error.what()).starts_with("pthread_create has failed"))
    return Error(kShortage, "no thread can be started", "", kLess);
  if (dynamic_cast<const std::bad_alloc*>(&error) == nullptr &&
      dynamic_cast<const std::length_error*>(&error) == nullptr)
    return {};
  return Error(kShortage, "out of memory", "", kLess);
}

}  // namespace kvsim
