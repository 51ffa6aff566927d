#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/partial_file.hpp"
#include "tests/support/source_folder.hpp"
#include "traces/requests/read_requests.hpp"
#include "traces/requests/write_requests.hpp"

namespace kvsim::requests::test_write_requests {
namespace {

struct File {
  explicit File(const std::string& ending)
      : path((std::filesystem::temp_directory_path() /
              ("kvsim-written-" + std::to_string(::getpid()) + ending))
                 .string()) {}
  ~File() { std::filesystem::remove(path); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path;
};

std::string written(const RequestTrace& trace, WrittenFormat format) {
  const File file(".jsonl");
  write_requests(trace, file.path, {.format = format});
  return read_file(file.path, 1U << 28);
}

RequestTrace parsed(const std::string& text, const ReadOptions& options = {}) {
  const File file(".txt");
  write_atomic(file.path, text);
  return read_requests(file.path, options);
}

}  // namespace

TEST_CASE("Mooncake's own trace is written as it was, to the byte") {
  const std::string sample = test::source_folder() + "/traces/sample/requests/mooncake_conversation.jsonl.gz";
  const std::string original = gunzipped(read_file(sample, 1U << 28), 1U << 28, sample);
  const RequestTrace trace = read_requests(sample);
  CHECK(written(trace, WrittenFormat::mooncake) == original);
  const File zipped(".jsonl.gz");
  write_requests(trace, zipped.path, {});
  CHECK(gunzipped(read_file(zipped.path, 1U << 28), 1U << 28, "") == original);
  CHECK_THROWS_AS(write_requests(trace, zipped.path, {}), Error);
}

TEST_CASE("Bailian's turns, delays and categories come back") {
  const std::string text =
      R"({"chat_id": 0, "parent_chat_id": -1, "timestamp": 61.114, "type": "a\"b\u0007", "turn": 1, "input_length": 40, "output_length": 8, "hash_ids": [0, 1, 2]}
{"chat_id": 1, "parent_chat_id": -1, "timestamp": 62, "type": "search", "turn": 1, "input_length": 32, "output_length": 16, "hash_ids": [3, 4]}
{"chat_id": 2, "parent_chat_id": 0, "delay": 0.000001, "type": "search", "turn": 2, "input_length": 60, "output_length": 3, "hash_ids": [0, 1, 5, 6]}
)";
  const RequestTrace trace = parsed(text);
  CHECK(written(trace, WrittenFormat::bailian) == text);
  CHECK_THROWS_WITH(written(trace, WrittenFormat::mooncake), Catch::Contains("--to bailian"));
  CHECK(left_out(trace, WrittenFormat::bailian).empty());
}

TEST_CASE("other block sizes are said, content ids become chained ones") {
  const RequestTrace trace = parsed(
      R"({"timestamp": 0.5, "input_length": 8, "output_length": 1, "hash_ids": [7, 7]}
{"timestamp": 1, "input_length": 9, "output_length": 0, "hash_ids": [9, 7, 7]}
)",
      {.block_tokens = 4, .hashing = Hashing::content});
  const std::string text = written(trace, WrittenFormat::mooncake);
  CHECK(text ==
        R"({"timestamp": 0.5, "input_length": 8, "output_length": 1, "block_size": 4, "hash_ids": [0, 1]}
{"timestamp": 1, "input_length": 9, "output_length": 0, "block_size": 4, "hash_ids": [2, 3, 4]}
)");
  CHECK(written(parsed(text), WrittenFormat::mooncake) == text);
}

TEST_CASE("what a format cannot say is named") {
  const RequestTrace burst =
      parsed("Timestamp,Session ID,Request tokens,Response tokens,Log Type\n5,a,472,18,x\n6,a,472,18,x\n");
  const std::vector<std::string> notes = left_out(burst, WrittenFormat::mooncake);
  REQUIRE(notes.size() == 3);
  CHECK_THAT(notes[0], Catch::Contains("session"));
  CHECK_THAT(notes[1], Catch::Contains("categories"));
  CHECK_THAT(notes[2], Catch::Contains("hash_ids"));
  CHECK(written(burst, WrittenFormat::mooncake) ==
        "{\"timestamp\": 5000, \"input_length\": 472, \"output_length\": 18}\n"
        "{\"timestamp\": 6000, \"input_length\": 472, \"output_length\": 18}\n");
}

TEST_CASE("sorting keeps what waits for a request behind it") {
  const std::string text =
      R"({"chat_id": 5, "parent_chat_id": -1, "timestamp": 9, "input_length": 1, "output_length": 1, "hash_ids": [1]}
{"chat_id": 6, "parent_chat_id": 5, "delay": 3, "input_length": 2, "output_length": 1, "hash_ids": [2]}
{"chat_id": 7, "parent_chat_id": -1, "timestamp": 4, "input_length": 3, "output_length": 1, "hash_ids": [3]}
)";
  CHECK_THROWS_WITH(parsed(text), Catch::Contains("line 3"));
  const RequestTrace trace = parsed(text, {.sort = true});
  REQUIRE(trace.requests.size() == 3);
  CHECK(trace.requests[0].prompt_tokens == 3);
  CHECK(trace.requests[1].prompt_tokens == 1);
  CHECK(trace.requests[2].prompt_tokens == 2);
  CHECK(trace.requests[2].parent == 1);
  CHECK(parsed(written(trace, WrittenFormat::bailian)).requests[2].parent == 1);
}

}  // namespace kvsim::requests::test_write_requests
