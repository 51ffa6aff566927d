// Tests that a file appears under its name only when it is complete: refusals, leftovers, full disks, killed
// writers.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "sim/base/error.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/check.hpp"
#include "traces/format/marked_copy.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/writer.hpp"
#include "traces/workloads/synthetic.hpp"

using namespace kvsim;
using namespace kvsim::test;

namespace {

trace::MemoryTrace tiny() {
  return numbered_trace(trace::plain_header(small_model(), 4, 1));
}

trace::MemoryTrace megabytes() {
  trace::SyntheticOptions options;
  options.prompt = 1500;
  return trace::synthetic_trace(options);
}

/// Runs `work` in a child with its own limits, mounts and exit handlers; returns its wait status.
int in_child(const std::function<int()>& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 99;
    try {
      code = work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    std::exit(code);  // runs exit handlers: libhdf5's handler crashes on a half-closed file
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

bool exited_with(int status, int code) {
  return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

/// Returns 0 if writing fails as expected and leaves nothing behind, and a later file of the same process is
/// valid.
int expect_full_disk(const std::string& directory, const std::string& elsewhere) {
  const std::string path = directory + "/a.h5";
  try {
    trace::write_trace(path, megabytes());
    return 1;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::input) return 2;
    if (std::string(error.what()).find("Free some space") == std::string::npos) return 3;
  }
  if (std::filesystem::exists(path) || std::filesystem::exists(path + ".partial")) return 4;
  trace::write_trace(elsewhere, tiny());
  return trace::open_trace(elsewhere)->header().n_tokens() == 5 ? 0 : 5;
}

}  // namespace

TEST_CASE("the name appears when the trace is complete") {
  const Scratch scratch;
  const trace::MemoryTrace made = tiny();
  {
    trace::Writer writer(scratch.file("a.h5"), made.header());
    CHECK(scratch.has("a.h5.partial"));
    CHECK_FALSE(scratch.has("a.h5"));
  }
  CHECK_FALSE(scratch.has("a.h5.partial"));  // removed, because it was abandoned
  trace::write_trace(scratch.file("a.h5"), made);
  CHECK(scratch.has("a.h5"));
  CHECK_FALSE(scratch.has("a.h5.partial"));
}

TEST_CASE("an existing file is refused before any work, or replaced when asked") {
  const Scratch scratch;
  std::ofstream(scratch.file("a.h5")) << "mine";
  CHECK_THROWS_WITH(trace::write_trace(scratch.file("a.h5"), tiny()),
                    Catch::Contains("exists already") && Catch::Contains("--overwrite"));
  CHECK(bytes_of(scratch.file("a.h5")) == "mine");
  trace::WriteOptions options;
  options.overwrite = true;
  trace::write_trace(scratch.file("a.h5"), tiny(), options);
  CHECK(trace::open_trace(scratch.file("a.h5"))->header().n_tokens() == 5);
}

TEST_CASE("a leftover partial is named, and replaced when asked") {
  const Scratch scratch;
  std::ofstream(scratch.file("a.h5.partial")) << std::string(100000, 'x');
  CHECK_THROWS_WITH(trace::write_trace(scratch.file("a.h5"), tiny()),
                    Catch::Contains("a.h5.partial: is left over") && Catch::Contains("remove it"));
  CHECK(scratch.has("a.h5.partial"));
  trace::WriteOptions options;
  options.overwrite = true;
  trace::write_trace(scratch.file("a.h5"), tiny(), options);
  trace::write_trace(scratch.file("b.h5"), tiny());
  CHECK(bytes_of(scratch.file("a.h5")) == bytes_of(scratch.file("b.h5")));
}

TEST_CASE("a partial that is being written is never taken over") {
  const Scratch scratch;
  const trace::MemoryTrace made = tiny();
  const trace::Writer first(scratch.file("a.h5"), made.header());
  trace::WriteOptions options;
  options.overwrite = true;
  CHECK_THROWS_WITH(trace::Writer(scratch.file("a.h5"), made.header(), options),
                    Catch::Contains("is being written by another process"));
  CHECK(scratch.has("a.h5.partial"));
}

TEST_CASE("a directory that is not there is an input error") {
  const Scratch scratch;
  try {
    trace::write_trace(scratch.file("no/such/a.h5"), tiny());
    FAIL("written nowhere");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(), Catch::Contains("No such file or directory"));
  }
}

TEST_CASE("a file size limit stops the writer at any point, cleanly") {
  // The limits range from the first byte of the superblock to the last lists of a trace of several megabytes.
  const rlim_t limit = GENERATE(1, 700, 5000, 70000, 1000000, 3000000);
  const Scratch scratch;
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const rlimit now{limit, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
    try {
      trace::write_trace(scratch.file("a.h5"), megabytes());
      return 1;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) return 2;
      if (std::string(error.what()).find("Free some space") == std::string::npos) return 3;
    }
    ::setrlimit(RLIMIT_FSIZE, &old);
    if (scratch.has("a.h5") || scratch.has("a.h5.partial")) return 4;
    trace::write_trace(scratch.file("b.h5"), tiny());
    return trace::open_trace(scratch.file("b.h5"))->header().n_tokens() == 5 ? 0 : 5;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a full disk stops the writer, cleanly") {
  const char* size = GENERATE("size=4096", "size=65536", "size=1000000", "size=3000000");
  const Scratch scratch;
  std::filesystem::create_directory(scratch.file("disk"));
  constexpr int kNoMount = 77;
  const int status = in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0) return kNoMount;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNoMount;
    if (::mount("tmpfs", scratch.file("disk").c_str(), "tmpfs", 0, size) != 0) return kNoMount;
    return expect_full_disk(scratch.file("disk"), scratch.file("b.h5"));
  });
  if (exited_with(status, kNoMount)) {
    WARN("no right to mount a small disk: only the size limit was tried");
    SUCCEED();
    return;
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the leftover of a killed writer is never read as a trace") {
  const Scratch scratch;
  const int kill_after = GENERATE(0, 1, 5, 11);
  const int status = in_child([&] {
    const trace::MemoryTrace made = megabytes();
    trace::Writer writer(scratch.file("a.h5"), made.header());
    int appended = 0;
    for (std::uint32_t layer = 0; layer < made.header().model.n_layers; ++layer) {
      for (const trace::Tensor tensor : kTensors) {
        if (appended++ == kill_after) ::kill(::getpid(), SIGKILL);
        std::vector<float> block;
        for (std::uint32_t head = 0; head < heads_of(made.header().model, tensor); ++head) {
          const std::vector<float> rows = all_rows(made, tensor, layer, head);
          block.insert(block.end(), rows.begin(), rows.end());
        }
        writer.append(tensor, layer, made.header().n_tokens(), block);
      }
    }
    return 0;
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK_FALSE(scratch.has("a.h5"));
  REQUIRE(scratch.has("a.h5.partial"));
  CHECK_THROWS_AS(trace::open_trace(scratch.file("a.h5.partial")), Error);
  trace::ReadOptions lenient;
  lenient.allow_partial = true;
  CHECK_THROWS_AS(trace::open_trace(scratch.file("a.h5.partial"), lenient), Error);
  // The next run says what to do, and it works.
  CHECK_THROWS_WITH(trace::write_trace(scratch.file("a.h5"), tiny()), Catch::Contains("is left over"));
  trace::WriteOptions options;
  options.overwrite = true;
  trace::write_trace(scratch.file("a.h5"), tiny(), options);
  CHECK_FALSE(scratch.has("a.h5.partial"));
}

TEST_CASE("a marked copy differs only in its flags") {
  const Scratch scratch;
  const trace::MemoryTrace made = tiny();
  trace::write_trace(scratch.file("a.h5"), made);
  const std::string before = bytes_of(scratch.file("a.h5"));
  const std::vector<std::uint32_t> flags{1U << 4, 1U << 4 | 1U << 5, 0, 1U << 3, 1U << 2};
  trace::write_marked_copy(scratch.file("a.h5"), scratch.file("b.h5"), flags, 0x3C);
  CHECK(bytes_of(scratch.file("a.h5")) == before);
  CHECK_FALSE(scratch.has("b.h5.partial"));
  const auto original = trace::open_trace(scratch.file("a.h5")),
             copy = trace::open_trace(scratch.file("b.h5"));
  CHECK(copy->header().token_flags == flags);
  CHECK(copy->header().flags_known == 0x3C);
  CHECK(copy->content_sha256() == original->content_sha256());
  Progress progress;
  CHECK(trace::check_trace(scratch.file("b.h5"), progress).problems.empty());
  for (const trace::Tensor tensor : kTensors)
    for (std::uint32_t layer = 0; layer < made.header().model.n_layers; ++layer)
      for (std::uint32_t head = 0; head < heads_of(made.header().model, tensor); ++head)
        CHECK(all_rows(*copy, tensor, layer, head) == all_rows(made, tensor, layer, head));
  // The same request gives the same bytes, and marks can be removed.
  trace::write_marked_copy(scratch.file("a.h5"), scratch.file("c.h5"), flags, 0x3C);
  CHECK(bytes_of(scratch.file("b.h5")) == bytes_of(scratch.file("c.h5")));
  trace::write_marked_copy(scratch.file("c.h5"), scratch.file("b.h5"), made.header().token_flags,
                           made.header().flags_known, true);
  CHECK(trace::open_trace(scratch.file("b.h5"))->header().token_flags == made.header().token_flags);
  CHECK_THROWS_WITH(trace::write_marked_copy(scratch.file("a.h5"), scratch.file("b.h5"), flags, 0),
                    Catch::Contains("exists already"));
}

TEST_CASE("a file size limit stops a marked copy at any point, cleanly") {
  const rlim_t limit = GENERATE(1, 700, 70000, 1000000);
  const Scratch scratch;
  const trace::MemoryTrace made = megabytes();
  trace::write_trace(scratch.file("a.h5"), made);
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const rlimit now{limit, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
    try {
      trace::write_marked_copy(scratch.file("a.h5"), scratch.file("b.h5"), made.header().token_flags, 4);
      return 1;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) return 2;
      if (std::string(error.what()).find("Free some space") == std::string::npos) return 3;
    }
    ::setrlimit(RLIMIT_FSIZE, &old);
    return scratch.has("b.h5") || scratch.has("b.h5.partial") ? 4 : 0;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a copy that a full disk stops while it is changed is not a trace") {
  // The disk has room for exactly the bytes of the copy; replacing datasets in it needs more.
  const Scratch scratch;
  const trace::MemoryTrace made = tiny();
  trace::write_trace(scratch.file("a.h5"), made);
  const rlim_t limit = std::filesystem::file_size(scratch.file("a.h5"));
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit now{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &now);
    try {
      trace::write_marked_copy(scratch.file("a.h5"), scratch.file("b.h5"), made.header().token_flags, 4);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::input) return 2;
      return scratch.has("b.h5") || scratch.has("b.h5.partial") ? 4 : 0;
    }
    // If it fits after all, the copy must be complete.
    Progress progress;
    return trace::check_trace(scratch.file("b.h5"), progress).problems.empty() ? 0 : 5;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
