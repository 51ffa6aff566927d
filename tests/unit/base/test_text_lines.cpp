#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/partial_file.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/text_lines.hpp"

namespace kvsim::test_text_lines {
namespace {

struct File {
  explicit File(const std::string& text)
      : path((std::filesystem::temp_directory_path() / ("kvsim-lines-" + std::to_string(::getpid())))
                 .string()) {
    write_atomic(path, text);
  }
  ~File() { std::filesystem::remove(path); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path;
};

std::vector<std::string> lines_of(const std::string& text, std::size_t max_line = 1U << 20) {
  const File file(text);
  TextLines lines(file.path, max_line);
  std::vector<std::string> out;
  std::string_view line;
  while (lines.next(line)) {
    out.emplace_back(line);
    CHECK(lines.number() == out.size());
  }
  CHECK(lines.bytes_read() == lines.file_bytes());
  CHECK_FALSE(lines.next(line));
  return out;
}

}  // namespace

TEST_CASE("lines end at line ends, and the last one at the end") {
  using Lines = std::vector<std::string>;
  CHECK(lines_of("").empty());
  CHECK(lines_of("a") == Lines{"a"});
  CHECK(lines_of("a\n") == Lines{"a"});
  CHECK(lines_of("\n\n") == Lines{"", ""});
  CHECK(lines_of("a\r\nb\rc\r\n\r\n") == Lines{"a", "b\rc", ""});
  CHECK(lines_of(std::string("a\0b\nc", 5)) == Lines{std::string("a\0b", 3), "c"});
}

TEST_CASE("lines of any length across the pieces in which a file is read, gzip or not") {
  // Lengths around the 256 KiB that are read at a time, and many short ones.
  std::vector<std::string> expected;
  std::string text;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const std::uint64_t length = i % 5 == 0 ? (1U << 18) - 3 + i / 5 : mix(i) % 40000;
    expected.emplace_back(length, static_cast<char>('a' + i % 26));
    text += expected.back() + "\n";
  }
  CHECK(lines_of(text) == expected);
  CHECK(lines_of(gzipped(text)) == expected);
  CHECK(lines_of(gzipped(text.substr(0, 300000)) + gzipped(text.substr(300000))) == expected);
}

TEST_CASE("a line beyond the limit, a damaged and a missing file are refused") {
  CHECK(lines_of("12345\n123", 5).size() == 2);
  CHECK_THROWS_WITH(lines_of("1\n123456\n", 5), Catch::Contains("line 2") && Catch::Contains("longer"));
  CHECK_THROWS_WITH(lines_of(std::string(3000000, 'x'), 1000), Catch::Contains("line 1"));
  std::string bad = gzipped(std::string(100000, 'x') + "\n");
  bad[bad.size() / 2] = static_cast<char>(~bad[bad.size() / 2]);
  CHECK_THROWS_AS(lines_of(bad), Error);
  CHECK_THROWS_WITH(lines_of(gzipped("abc\n").substr(0, 15)), Catch::Contains("cut off"));
  CHECK_THROWS_WITH(TextLines("/nowhere/at/all", 5), Catch::Contains("cannot be opened"));
}

}  // namespace kvsim::test_text_lines
