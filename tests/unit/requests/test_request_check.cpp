#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "sim/base/partial_file.hpp"
#include "tests/support/source_folder.hpp"
#include "traces/requests/request_check.hpp"

namespace kvsim::requests::test_request_check {
namespace {

RequestCheck check(const std::string& text, const ReadOptions& options = {}, std::size_t most = 10) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("kvsim-check-" + std::to_string(::getpid()) + ".jsonl"))
          .string();
  write_atomic(path, text);
  RequestCheck out;
  try {
    out = check_requests(path, options, most);
  } catch (...) {
    std::filesystem::remove(path);
    throw;
  }
  std::filesystem::remove(path);
  return out;
}

std::string line(int ms, int tokens, const std::string& ids) {
  return R"({"timestamp": )" + std::to_string(ms) + R"(, "input_length": )" + std::to_string(tokens) +
         R"(, "output_length": 1, "hash_ids": [)" + ids + "]}\n";
}

}  // namespace

TEST_CASE("every bad line is listed with its first offence, and good ones between them count") {
  const std::string text = line(0, 1024, "1, 2") + line(5, 1024, "1") + line(6, 1024, "3, 2") + "{}\n" +
                           line(4, 1024, "1, 2") + line(7, 512, "2") + line(8, 1536, "1, 2, 4");
  const RequestCheck found = check(text);
  CHECK(found.requests == 2);
  CHECK(found.blocks == 5);
  CHECK(found.bad_lines == 5);
  REQUIRE(found.first.size() == 5);
  const std::vector<std::uint64_t> lines{2, 3, 4, 5, 6};
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK(found.first[i].line == lines[i]);
  CHECK_THAT(found.first[0].problem, Catch::Contains("1 ids"));
  CHECK_THAT(found.first[1].problem, Catch::Contains("block 2 at place 1"));
  CHECK_THAT(found.first[3].problem, Catch::Contains("arrives before"));
  CHECK_THAT(found.first[4].problem, Catch::Contains("another prefix"));
  CHECK(check(text, {}, 2).first.size() == 2);
  CHECK(check(text, {}, 2).first[1].line == 3);
  CHECK(check(text, {}, 2).bad_lines == 5);
  CHECK(check(text, {.hashing = Hashing::content}).bad_lines == 3);
  CHECK_THROWS_WITH(check("{}\n"), Catch::Contains("no known format"));
}

TEST_CASE("the sample trace is sound") {
  const RequestCheck found = check_requests(
      test::source_folder() + "/traces/sample/requests/mooncake_conversation.jsonl.gz", {}, 10);
  CHECK(found.bad_lines == 0);
  CHECK(found.requests == 12031);
  CHECK(found.blocks == 288500);
}

}  // namespace kvsim::requests::test_request_check
