// Tests work in a process of its own: what it returns, how its death is told, and what it may not do.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>

#include "sim/base/error.hpp"
#include "sim/base/interruption.hpp"
#include "sim/base/isolated_run.hpp"

namespace kvsim::test_isolated_run {

namespace {

IsolatedEnd run(const std::function<std::string()>& work) {
  return run_isolated(work, "here");
}

}  // namespace

TEST_CASE("isolated work returns its text and changes nothing here") {
  int here = 1;
  const IsolatedEnd end = run([&] { return std::to_string(++here); });
  CHECK(end.returned);
  CHECK(end.text == "2");
  CHECK(here == 1);
  CHECK(run([] { return std::string(); }).returned);
  CHECK(run([] { return std::string(100'000, 'x'); }).text.size() == 4095);
}

TEST_CASE("isolated work that dies or throws is told") {
  CHECK(run([]() -> std::string { ::raise(SIGSEGV), std::abort(); }).text ==
        "died of signal 11 (Segmentation fault)");
  CHECK(run([]() -> std::string { ::_exit(7); }).text == "ended with code 7");
  const IsolatedEnd thrown = run([]() -> std::string { throw std::runtime_error("no"); });
  CHECK_FALSE(thrown.returned);
  CHECK(thrown.text == "ended with no");
  CHECK(run([]() -> std::string { ::raise(SIGKILL), std::abort(); }).text ==
        "was killed, after 60 s of computing or for want of memory");
}

TEST_CASE("isolated work survives Ctrl-C, because its parent decides") {
  CHECK(run([]() -> std::string {
          ::raise(SIGINT), ::raise(SIGTERM);
          return "still here";
        }).text == "still here");
}

TEST_CASE("isolated work opens, writes and starts nothing") {
  const int held = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  REQUIRE(held >= 0);
  const IsolatedEnd end = run([&] {
    const auto refused = [](long result) { return result < 0 && errno == EPERM ? "1" : "0"; };
    std::string text = refused(::open("/dev/null", O_RDONLY));
    text += refused(::write(held, "x", 1));
    text += refused(::unlink("/nothing/is/there"));
    text += refused(::kill(::getppid(), 0));
    text += refused(::fork());
    return text;
  });
  ::close(held);
  CHECK(end.text == "11111");
}

TEST_CASE("isolated work gets a gibibyte and no more") {
  const auto allocates = [](std::size_t bytes) {
    return run([bytes] {
      void* const memory = std::malloc(bytes);
      const bool got = memory != nullptr;
      std::free(memory);
      return std::string(got ? "got" : "refused");
    });
  };
  CHECK(allocates(std::size_t{1} << 29).text == "got");
  CHECK(allocates(std::size_t{1} << 31).text != "got");
}

TEST_CASE("a signal ends the wait for isolated work") {
  std::thread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    interruption::seen = true;
  });
  CHECK_THROWS_AS(run([]() -> std::string {
                    while (true) ::sched_yield();
                  }),
                  Error);
  later.join();
  interruption::seen = false;
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);  // no child is left
  CHECK(errno == ECHILD);
}

}  // namespace kvsim::test_isolated_run
