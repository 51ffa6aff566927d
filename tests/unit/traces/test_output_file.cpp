// Tests that a file appears under its name only when it is complete: refusals, leftovers, full disks, killed
// writers.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "sim/base/error.hpp"
#include "sim/base/interruption.hpp"
#include "sim/base/partial_file.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/check.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/token_selection.hpp"
#include "traces/format/writer.hpp"
#include "traces/workloads/synthetic.hpp"

namespace kvsim::test::test_output_file {
namespace {

using Names = std::vector<std::string>;

/// Of a folder, in order; the random digits of partial files are replaced by #.
Names names_in(const std::string& folder) {
  Names out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    const auto whole = name_when_whole(name);
    out.push_back(whole ? *whole + ".#.partial" : name);
  }
  std::sort(out.begin(), out.end());
  return out;
}

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
  if (!names_in(directory).empty()) return 4;
  trace::write_trace(elsewhere, tiny());
  return trace::open_trace(elsewhere)->header().n_tokens() == 5 ? 0 : 5;
}

}  // namespace

TEST_CASE("the name appears when the trace is complete") {
  const Scratch scratch;
  const trace::MemoryTrace made = tiny();
  {
    trace::Writer writer(scratch.file("a.h5"), made.header());
    CHECK(names_in(scratch.file("")) == Names{"a.h5.#.partial"});
  }
  CHECK(names_in(scratch.file("")).empty());  // removed, because it was abandoned
  trace::write_trace(scratch.file("a.h5"), made);
  CHECK(names_in(scratch.file("")) == Names{"a.h5"});
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

TEST_CASE("a leftover is removed, and other files are not taken for one") {
  const Scratch scratch;
  std::ofstream(scratch.file("a.h5.0123abcd.partial")) << std::string(100000, 'x');
  const Names others{"a.h5.0123ABCD.partial", "a.h5.0123abc.partial", "a.h5.partial",
                     "b.h5.0123abcd.partial"};
  for (const std::string& name : others) std::ofstream(scratch.file(name)) << "x";
  trace::write_trace(scratch.file("a.h5"), tiny());
  CHECK_FALSE(scratch.has("a.h5.0123abcd.partial"));
  for (const std::string& name : others) CHECK(scratch.has(name));
}

TEST_CASE("a file that is being written is not written a second time, nor removed") {
  const Scratch scratch;
  const trace::MemoryTrace made = tiny();
  const trace::Writer first(scratch.file("a.h5"), made.header());
  trace::WriteOptions options;
  for (options.overwrite = false;; options.overwrite = true) {
    CHECK_THROWS_WITH(trace::Writer(scratch.file("a.h5"), made.header(), options),
                      Catch::Contains("is being written by another process"));
    if (options.overwrite) break;
  }
  CHECK(names_in(scratch.file("")) == Names{"a.h5.#.partial"});
}

TEST_CASE("a name that another program took meanwhile stays its file, unless told to overwrite") {
  const Scratch scratch;
  for (const bool overwrite : {false, true}) {
    PartialFile file(scratch.file("a"), overwrite);
    write_all(file.file(), "mine", "a");
    std::ofstream(scratch.file("a")) << "theirs";
    if (overwrite)
      file.commit();
    else
      CHECK_THROWS_WITH(file.commit(), Catch::Contains("by another process meanwhile"));
    CHECK(bytes_of(scratch.file("a")) == (overwrite ? "mine" : "theirs"));
    if (!overwrite) std::filesystem::remove(scratch.file("a"));
  }
  CHECK(names_in(scratch.file("")) == Names{"a"});
}

TEST_CASE("what cannot be an output is refused at once") {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.file("folder"));
  std::filesystem::create_symlink("nowhere", scratch.file("link"));
  REQUIRE(::mkfifo(scratch.file("pipe").c_str(), 0600) == 0);
  const auto refused = [&](const std::string& path, bool overwrite, const char* words) {
    CHECK_THROWS_WITH(PartialFile(path, overwrite), Catch::Contains(words));
    try {
      PartialFile file(path, overwrite);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
    }
  };
  for (const bool overwrite : {false, true}) {
    refused("", overwrite, "is empty");
    refused(scratch.file("folder"), overwrite, "is a directory");
    refused(scratch.file("new/"), overwrite, "is a directory");
    refused(scratch.file("pipe"), overwrite, "is a pipe");
    refused("/dev/null", overwrite, "is a device");
  }
  refused(scratch.file("link"), false, "exists already");
  CHECK(names_in(scratch.file("")) == Names{"folder", "link", "pipe"});
  // A link stays a link: the file behind it is made.
  PartialFile(scratch.file("link"), true).commit();
  CHECK(std::filesystem::is_symlink(scratch.file("link")));
  CHECK(names_in(scratch.file("")) == Names{"folder", "link", "nowhere", "pipe"});
}

TEST_CASE("unfinished files are removed when a process ends at once, finished ones stay") {
  const Scratch scratch;
  PartialFile done(scratch.file("done"), false), half(scratch.file("half"), false);
  done.commit();
  interruption::remove_unfinished_files();
  CHECK(names_in(scratch.file("")) == Names{"done"});
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
    if (!names_in(scratch.file("")).empty()) return 4;
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
  REQUIRE(names_in(scratch.file("")) == Names{"a.h5.#.partial"});
  const std::string left = std::filesystem::directory_iterator(scratch.file(""))->path();
  CHECK_THROWS_AS(trace::open_trace(left), Error);
  trace::ReadOptions lenient;
  lenient.allow_partial = true;
  CHECK_THROWS_AS(trace::open_trace(left, lenient), Error);
  // The next run removes it.
  trace::write_trace(scratch.file("a.h5"), tiny());
  CHECK(names_in(scratch.file("")) == Names{"a.h5"});
}

TEST_CASE("a marked copy differs only in its flags") {
  const Scratch scratch;
  const trace::MemoryTrace made = tiny();
  trace::write_trace(scratch.file("a.h5"), made);
  const std::string before = bytes_of(scratch.file("a.h5"));
  const std::vector<std::uint32_t> flags{1U << 4, 1U << 4 | 1U << 5, 0, 1U << 3, 1U << 2};
  trace::write_marked_copy(scratch.file("a.h5"), scratch.file("b.h5"), flags, 0x3C);
  CHECK(bytes_of(scratch.file("a.h5")) == before);
  CHECK(names_in(scratch.file("")) == Names{"a.h5", "b.h5"});
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
    return names_in(scratch.file("")) == Names{"a.h5"} ? 0 : 4;
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
      return names_in(scratch.file("")) == Names{"a.h5"} ? 0 : 4;
    }
    // If it fits after all, the copy must be complete.
    Progress progress;
    return trace::check_trace(scratch.file("b.h5"), progress).problems.empty() ? 0 : 5;
  });
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace kvsim::test::test_output_file
