// Errors say where, what and what to do; progress stops work.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/base/matrix_view.hpp"
#include "sim/base/progress.hpp"

namespace kvsim::test_error {

TEST_CASE("the message combines what, where and hint") {
  CHECK(std::string(Error(ErrorKind::input, "is cut off", "run.h5", "Capture it again.").what()) ==
        "run.h5: is cut off\n  Capture it again.");
  CHECK(std::string(Error(ErrorKind::input, "is cut off", "run.h5").what()) == "run.h5: is cut off");
  CHECK(std::string(Error(ErrorKind::input, "is cut off").what()) == "is cut off");
}

TEST_CASE("kinds are the exit codes of the command") {
  const auto code_of = [](auto thrower) {
    try {
      thrower("what", "where");
    } catch (const Error& error) {
      return static_cast<int>(error.kind());
    }
    return 0;
  };
  CHECK(code_of([](auto what, auto where) { bug(what, where); }) == 1);
  CHECK(code_of([](auto what, auto where) { usage_error(what, where); }) == 2);
  CHECK(code_of([](auto what, auto where) { input_error(what, where); }) == 3);
  CHECK(static_cast<int>(ErrorKind::interrupted) == 4);
  CHECK_THROWS_WITH(bug("what"), Catch::Contains("report the command"));
}

TEST_CASE("progress counts, and check() throws once it is stopped") {
  Progress progress;
  progress.advance();
  progress.advance(9);
  CHECK(progress.done == 10);
  CHECK_NOTHROW(progress.check());
  progress.stop = true;
  try {
    progress.check();
    FAIL("went on");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::interrupted);
  }
}

TEST_CASE("a matrix view strides over rows") {
  const float data[] = {0, 1, 2, 3, 4, 5, 6, 7};
  const MatrixView view{data, 2, 3, 4};
  CHECK(view(1, 2) == 6);
  CHECK(view.row(1).size() == 3);
  CHECK(view.row(1)[0] == 4);
}

}  // namespace kvsim::test_error
