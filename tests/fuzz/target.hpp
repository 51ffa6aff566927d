#pragma once
/// What every fuzz target shares. A target is one reader of untrusted input and the laws that hold for what
/// it accepts. The same targets run under libFuzzer, which mutates, and in the normal tests, which only read
/// the corpus.
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"

namespace kvsim::fuzz {

/// An input was accepted that does not satisfy a law, or was refused in a wrong way.
struct BrokenLaw : std::logic_error {
  using std::logic_error::logic_error;
};
inline void require(bool holds, const std::string& law) {
  if (!holds) throw BrokenLaw(law);
}

struct Target {
  const char* name;                      ///< of its folder in corpus/ and of its dictionary
  std::vector<ErrorKind> refusals;       ///< the kinds of Error with which an input may be refused
  void (*read)(std::string_view input);  ///< throws Error for what it refuses, BrokenLaw for what is wrong
};

inline std::vector<Target>& targets() {
  static std::vector<Target> all;
  return all;
}
struct Registered {
  explicit Registered(const Target& target) { targets().push_back(target); }
};

/// Whether `read` accepts; any exception but an Error of one of these kinds escapes.
template <class Read>
bool accepts(const Read& read, const std::vector<ErrorKind>& refusals = {ErrorKind::input}) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const ErrorKind kind : refusals) {
      if (error.kind() != kind) continue;
      require(!message.empty(), "a refusal says why");
      return false;
    }
    throw BrokenLaw("refused with exit code " + std::to_string(static_cast<int>(error.kind())) + ": " +
                    message);
  }
}

inline bool accepts(const Target& target, std::string_view input) {
  return accepts([&] { target.read(input); }, target.refusals);
}

/// A file for readers that want one, in the working directory: the same inputs of a run then have the same
/// paths. It is written anew for every input.
class InputOnDisk {
 public:
  explicit InputOnDisk(const std::string& ending) : path_("./kvsim-fuzz" + ending) {}
  ~InputOnDisk() { ::unlink(path_.c_str()); }
  InputOnDisk(const InputOnDisk&) = delete;
  InputOnDisk& operator=(const InputOnDisk&) = delete;

  const std::string& path() const { return path_; }

  const std::string& write(std::string_view input) const {
    const FileDescriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file.is_open()) throw std::runtime_error("cannot write " + path_);
    write_all(file, std::string(input), path_);
    return path_;
  }

 private:
  std::string path_;
};

}  // namespace kvsim::fuzz
