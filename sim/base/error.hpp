#pragma once
/// The only exception type of kvsim. Libraries throw it and never print, exit or abort; tools turn it into a
/// message and an exit code.
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace kvsim {

/// Values are the exit codes of the command.
enum class ErrorKind : int {
  bug = 1,          ///< a mistake in kvsim
  usage = 2,        ///< the request cannot be honoured: option, policy, parameter, budget
  input = 3,        ///< a file cannot be read or written: damaged, hostile, foreign, disk full
  interrupted = 4,  ///< stopped by the user; complete results are kept
  different = 5,    ///< not a failure: the compared things differ
};

class Error : public std::runtime_error {
 public:
  /// `what`: what is wrong. `where`: file, dataset, index, policy, step. `hint`: what to do. The last two may
  /// be empty.
  Error(ErrorKind kind, std::string_view what, std::string_view where = {}, std::string_view hint = {});
  ErrorKind kind() const { return kind_; }
  // As they were given; what() is all three as one text.
  const std::string& problem() const { return problem_; }
  const std::string& where() const { return where_; }
  const std::string& hint() const { return hint_; }

 private:
  ErrorKind kind_;
  std::string problem_, where_, hint_;
};

[[noreturn]] void usage_error(std::string_view what, std::string_view where = {}, std::string_view hint = {});
[[noreturn]] void input_error(std::string_view what, std::string_view where = {}, std::string_view hint = {});
[[noreturn]] void bug(std::string_view what, std::string_view where = {});

// What a person should know although nothing failed. Libraries hand notes to their caller and never print.

/// Takes one note: a text without a line end.
using NoteListener = std::function<void(const std::string& text)>;

}  // namespace kvsim
