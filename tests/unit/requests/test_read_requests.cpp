#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <set>

#include "sim/base/error.hpp"
#include "sim/base/gzip.hpp"
#include "sim/base/partial_file.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/read_requests.hpp"

namespace kvsim::requests::test_read_requests {
namespace {

/// What a file with this text is read as.
RequestTrace read(const std::string& text, const ReadOptions& options = {}) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("kvsim-requests-" + std::to_string(::getpid()) + ".txt"))
          .string();
  write_atomic(path, text);
  struct Removed {
    const std::string& path;
    ~Removed() { std::filesystem::remove(path); }
  } removed{path};
  return read_requests(path, options);
}

std::vector<BlockId> ids(std::span<const BlockId> blocks) {
  return {blocks.begin(), blocks.end()};
}

const std::string kMooncake =
    R"({"timestamp": 0, "input_length": 1000, "output_length": 52, "hash_ids": [0, 1]}
{"timestamp": 1500, "input_length": 1536, "output_length": 7, "hash_ids": [0, 2, 3]}
{"timestamp": 1500.25, "input_length": 1, "output_length": 0, "hash_ids": [18446744073709551615]}
)";

}  // namespace

TEST_CASE("a Mooncake trace is read as it stands") {
  const RequestTrace trace = read(kMooncake);
  CHECK(trace.format == "mooncake");
  CHECK(trace.block_tokens == 512);
  CHECK(trace.tail == Tail::partial);
  CHECK(trace.hashing == Hashing::chained);
  CHECK(trace.generated == Generated::none);
  REQUIRE(trace.requests.size() == 3);
  CHECK(trace.requests[1].time_s == 1.5);
  CHECK(trace.requests[2].time_s == 1.50025);
  CHECK(trace.requests[0].prompt_tokens == 1000);
  CHECK(trace.requests[0].generated_tokens == 52);
  CHECK(ids(trace.prompt_blocks(trace.requests[1])) == std::vector<BlockId>{0, 2, 3});
  CHECK(trace.prompt_blocks(trace.requests[2])[0] == UINT64_MAX);
  CHECK(trace.requests[2].line == 3);
  CHECK(trace.requests[1].session == kNone);
}

TEST_CASE("gzip, line ends of Windows and blank lines change nothing") {
  std::string windows = "\xef\xbb\xbf\r\n";
  for (const char c : kMooncake) windows += c == '\n' ? std::string("\r\n \r\n") : std::string(1, c);
  for (const std::string& text : {gzipped(kMooncake), windows, gzipped(windows),
                                  gzipped(kMooncake.substr(0, 100)) + gzipped(kMooncake.substr(100))}) {
    const RequestTrace trace = read(text);
    CHECK(trace.requests.size() == 3);
    CHECK(trace.blocks == read(kMooncake).blocks);
  }
  CHECK_THROWS_WITH(read(gzipped(kMooncake).substr(0, 60)), Catch::Contains("cut off"));
}

TEST_CASE("whether the tail has an id is read off the trace") {
  const std::string missing =
      R"({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [0, 1]}
{"timestamp": 0, "input_length": 1023, "output_length": 1, "hash_ids": [0]}
{"timestamp": 0, "input_length": 511, "output_length": 1, "hash_ids": []}
)";
  CHECK(read(missing).tail == Tail::missing);
  CHECK(read(kMooncake).tail == Tail::partial);
  CHECK_THROWS_WITH(read(missing, {.tail = Tail::partial}), Catch::Contains("line 2"));
  CHECK_THROWS_WITH(read(missing + R"({"timestamp": 0, "input_length": 5, "hash_ids": [9]})"),
                    Catch::Contains("line 4") && Catch::Contains("unlike line 2"));
}

TEST_CASE("a limit reads the first requests") {
  CHECK(read(kMooncake, {.limit = 2}).requests.size() == 2);
  CHECK(read(kMooncake + "damage\n", {.limit = 3}).requests.size() == 3);
}

TEST_CASE("a trace without hash_ids says nothing of shared tokens") {
  const std::string text = R"({"timestamp": 0, "input_length": 1024, "output_length": 1}
{"timestamp": 7, "input_length": 23, "output_length": 1})";
  CHECK_FALSE(read(text).has_blocks());
  CHECK_THROWS_AS(read(text, {.generated = Generated::inferred}), Error);
  CHECK_THROWS_WITH(read(text + "\n" + R"({"timestamp": 7, "input_length": 1, "hash_ids": [1]})"),
                    Catch::Contains("line 3") && Catch::Contains("unlike"));
}

TEST_CASE("what is against a rule is refused with its line and what to do") {
  const auto refused = [](const std::string& line, const std::string& why, const std::string& hint = "") {
    INFO(line);
    CHECK_THROWS_WITH(read(kMooncake + line + "\n"),
                      Catch::Contains("line 4") && Catch::Contains(why) && Catch::Contains(hint));
  };
  refused(R"({"timestamp": 5, "input_length": 1, "hash_ids": [1]})", "arrives before", "--sort");
  refused(R"({"timestamp": 2e3, "input_length": 1537, "hash_ids": [1]})", "but the line has 1 ids",
          "--block-tokens");
  refused(R"({"timestamp": 2000, "input_lenght": 1, "hash_ids": [1]})", "input_length",
          "\"input_lenght\" meant");
  refused(R"({"timestamp": 2000, "input_length": -1, "hash_ids": [1]})", "not a whole number");
  refused(R"({"timestamp": 2000, "input_length": 1.5, "hash_ids": [1]})", "not a whole number");
  refused(R"({"timestamp": 2000, "input_length": 4294967296, "hash_ids": [1]})", "more than 2147483647");
  refused(R"({"timestamp": 2000, "input_length": 99999999999999999999, "hash_ids": [1]})", "whole number");
  refused(R"({"timestamp": 2000, "input_length": 1, "hash_ids": [-1]})", "negative");
  refused(R"({"timestamp": 2000, "input_length": 1, "hash_ids": [99999999999999999999]})", "ids");
  refused(R"({"timestamp": 2000, "input_length": 1, "hash_ids": [[1]]})", "ids");
  refused(R"({"timestamp": 2000, "input_length": 1, "hash_ids": 1})", "ids");
  refused(R"({"timestamp": 2000, "input_length": 1, "input_length": 1, "hash_ids": [1]})", "twice");
  refused(R"({"timestamp": 1e400, "input_length": 1, "hash_ids": [1]})", "timestamp");
  refused(R"({"timestamp": true, "input_length": 1, "hash_ids": [1]})", "timestamp");
  refused(R"({"timestamp": null, "input_length": 1, "hash_ids": [1]})", "no field \"timestamp\"");
  refused(R"({"timestamp": -1, "input_length": 1, "hash_ids": [1]})", "before the trace begins");
  refused(R"({"timestamp": 2000, "input_length": 1, "hash_ids": [1]} {})", "behind");
  refused(R"({"timestamp": 2000, "input_length": 1, "hash_ids": [1])", "JSON");
  refused(R"({"timestamp": 2000, "input_length": 1, "hash_ids": [1], "session_id": "a"})", "AIPerf",
          "bailian");
  refused(R"([1, 2])", "JSON object");
  refused(R"(17)", "JSON object");
  refused(R"({"timestamp": 2000, "input_length": 8, "hash_ids": [1], "block_size": 16})", "16 tokens",
          "one size");
  CHECK(read(kMooncake + R"({"timestamp": 5, "input_length": 1, "hash_ids": [1], "x": {"timestamp": []}})",
             {.sort = true})
            .requests[1]
            .time_s == 0.005);
}

TEST_CASE("a first line that is no format is refused with those that are") {
  CHECK_THROWS_WITH(read("a,b,c\n1,2,3\n"), Catch::Contains("mooncake") && Catch::Contains("azure"));
  CHECK_THROWS_WITH(read(""), Catch::Contains("no requests"));
  CHECK_THROWS_WITH(read("\n \n"), Catch::Contains("no requests"));
  CHECK_THROWS_WITH(read(kMooncake, {.format = "mooncacke"}), Catch::Contains("Did you mean mooncake"));
}

TEST_CASE("a Bailian trace has turns of sessions and categories") {
  const std::string text =
      R"({"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 40, "output_length": 8, "type": "text", "turn": 1, "hash_ids": [1, 2, 3]}
{"chat_id": 160, "parent_chat_id": 7, "timestamp": 62, "input_length": 32, "output_length": 16, "type": "search", "turn": 4, "hash_ids": [4, 5]}
{"chat_id": 161, "parent_chat_id": 159, "timestamp": 63.5, "input_length": 60, "output_length": 3, "type": "text", "turn": 2, "hash_ids": [1, 2, 6, 7]}
)";
  const RequestTrace trace = read(text, {.generated = Generated::inferred});
  CHECK(trace.format == "bailian");
  CHECK(trace.block_tokens == 16);
  CHECK(trace.categories == std::vector<std::string>{"text", "search"});
  CHECK(trace.sessions == std::vector<std::string>{"159", "7"});
  CHECK(trace.requests[0].time_s == 61.114);
  CHECK(trace.requests[0].parent == kNone);
  CHECK(trace.requests[1].parent == kNone);
  CHECK(trace.requests[1].turn == 4);
  CHECK(trace.requests[2].parent == 0);
  CHECK(trace.requests[2].session == 0);
  // 40 prompt and 8 generated tokens fill three blocks: the third is the next turn's third, not its own.
  CHECK(ids(trace.final_blocks(trace.requests[0])) == std::vector<BlockId>{1, 2, 6});
  CHECK(ids(trace.final_blocks(trace.requests[2])) == std::vector<BlockId>{1, 2, 6, 7});
  CHECK_THROWS_WITH(
      read(text +
           R"({"chat_id": 7, "timestamp": 64, "input_length": 1, "output_length": 1, "hash_ids": [9]})"),
      Catch::Contains("line 4") && Catch::Contains("line 2"));
  CHECK_THROWS_WITH(
      read(text +
           R"({"chat_id": 159, "timestamp": 64, "input_length": 1, "output_length": 1, "hash_ids": [9]})"),
      Catch::Contains("second time"));
}

TEST_CASE("a delay counts from the end of the parent") {
  const RequestTrace trace = read(
      R"({"chat_id": 0, "parent_chat_id": -1, "timestamp": 1, "input_length": 4, "output_length": 8, "block_size": 4, "hash_ids": [1]}
{"chat_id": 1, "parent_chat_id": 0, "delay": 0.25, "input_length": 5, "output_length": 8, "block_size": 4, "hash_ids": [1, 2]}
{"chat_id": 2, "timestamp": 1, "input_length": 4, "output_length": 8, "block_size": 4, "hash_ids": [1]}
)");
  CHECK(trace.block_tokens == 4);
  CHECK(trace.requests[1].after_parent);
  CHECK(trace.requests[1].time_s == 0.25);
  CHECK_FALSE(trace.requests[2].after_parent);
}

TEST_CASE("a lookup log of LMCache has whole chunks alone") {
  const RequestTrace trace = read(
      R"({"timestamp": 1700000000.5, "request_id": "a", "model_name": "m", "chunk_size": 256, "seq_len": 700, "dtypes": ["bf16"], "shapes": [[2, 32, 256, 1024]], "chunk_hashes": ["0x1f", "ffffffffffffffff"]}
{"timestamp": 1700000002, "chunk_size": 256, "seq_len": 255, "chunk_hashes": []}
)");
  CHECK(trace.format == "lmcache");
  CHECK(trace.block_tokens == 256);
  CHECK(trace.tail == Tail::missing);
  CHECK(trace.requests[0].time_s == 0);
  CHECK(trace.requests[1].time_s == 1.5);
  CHECK(ids(trace.prompt_blocks(trace.requests[0])) ==
        std::vector<BlockId>{text_id("0x1f"), text_id("ffffffffffffffff")});
}

TEST_CASE("ids that are strings are told apart by their text, whatever it looks like") {
  const std::vector<std::string> texts{"12", "012",     "0x12", "0X12", "1f",
                                       "1F", "block-7", "",     "18",   "fffffffffffffffff0"};
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "\"" : ", \"") + text + "\"";
  const std::string lengths = R"("timestamp": 0, "output_length": 1, "input_length": )";
  const RequestTrace trace =
      read("{" + lengths + std::to_string(512 * (texts.size() + 2)) + R"(, "hash_ids": [)" + list +
           ", 12, 18]}\n" + "{" + lengths + R"(512, "hash_ids": ["12"]})" + "\n");
  const std::vector<BlockId> all = ids(trace.prompt_blocks(trace.requests[0]));
  CHECK(std::set<BlockId>(all.begin(), all.end()).size() == texts.size() + 2);
  CHECK(ids(trace.prompt_blocks(trace.requests[1])) == std::vector<BlockId>{all.front()});
}

TEST_CASE("models of one log of LMCache share no chunks") {
  const auto line = [](const char* model) {
    return std::string(R"({"timestamp": 0, "model_name": ")") + model +
           R"(", "chunk_size": 256, "seq_len": 512, "chunk_hashes": ["0x1", "0x2"]})" + "\n";
  };
  const RequestTrace trace = read(line("a") + line("b") + line("b") + line("a"));
  const auto of = [&](std::size_t i) { return ids(trace.prompt_blocks(trace.requests[i])); };
  CHECK(of(0) == std::vector<BlockId>{text_id("0x1"), text_id("0x2")});
  CHECK(of(3) == of(0));
  CHECK(of(2) == of(1));
  CHECK(of(1)[0] != of(0)[0]);
  CHECK(of(1)[1] != of(0)[1]);
}

TEST_CASE("a trace of kvcache-simulator says its block size and no time") {
  const RequestTrace trace = read(R"({"block_size":64,"hash_ids":[2001,2002],"input_length":128}
{"block_size":64,"hash_ids":[2001,"a7"],"input_length":100,"block_tokens":[64,36]}
)");
  CHECK(trace.format == "kvcache-simulator");
  CHECK(trace.block_tokens == 64);
  CHECK(trace.blocks[3] == text_id("a7"));
  CHECK_THROWS_WITH(read(R"({"block_size":64,"hash_ids":[1,2],"input_length":100,"block_tokens":[50,50]})"),
                    Catch::Contains("block_tokens"));
  CHECK_THROWS_WITH(read(R"({"hash_ids":[1,2],"input_length":100})"), Catch::Contains("--block-tokens"));
}

TEST_CASE("LLMServingSim's sessions become chains and its tokens blocks") {
  const std::string text =
      R"({"session_id": "s", "arrival_time_ns": 1000000000, "sub_requests": [{"input_toks": 4, "output_toks": 2, "tool_duration_ns": 500000000, "input_tok_ids": [1,2,3,4], "output_tok_ids": [5,6]}, {"input_toks": 7, "output_toks": 1, "input_tok_ids": [1,2,3,4,5,6,7]}]}
{"input_toks": 5, "output_toks": 1, "arrival_time_ns": 2000000000, "input_tok_ids": [1,2,9,4,5]}
)";
  const RequestTrace trace = read(text, {.block_tokens = 2});
  CHECK(trace.format == "llmservingsim");
  CHECK(trace.generated == Generated::given);
  REQUIRE(trace.requests.size() == 3);
  CHECK(trace.requests[0].time_s == 1);
  CHECK(trace.requests[1].after_parent);
  CHECK(trace.requests[1].time_s == 0.5);
  CHECK(trace.requests[1].parent == 0);
  CHECK(trace.requests[1].turn == 2);
  CHECK(trace.requests[2].time_s == 2);
  const auto first = ids(trace.prompt_blocks(trace.requests[0])),
             second = ids(trace.prompt_blocks(trace.requests[1])),
             third = ids(trace.prompt_blocks(trace.requests[2]));
  REQUIRE(first.size() == 2);
  REQUIRE(second.size() == 3);
  REQUIRE(third.size() == 2);
  CHECK(ids(trace.final_blocks(trace.requests[0])) == second);
  CHECK(first == std::vector<BlockId>{second[0], second[1]});
  CHECK(third[0] == first[0]);
  CHECK(third[1] != first[1]);
  CHECK(read(text, {.block_tokens = 2, .tail = Tail::partial}).requests[2].n_blocks == 3);
  const RequestTrace turns = read(
      R"({"session_id": 7, "input_toks": 5, "output_toks": 1, "arrival_time_ns": 2}
{"input_toks": 5, "output_toks": 1, "arrival_time_ns": 2}
{"session_id": 7, "input_toks": 9, "output_toks": 1, "arrival_time_ns": 4})");
  CHECK_FALSE(turns.has_blocks());
  CHECK(turns.sessions == std::vector<std::string>{"7"});
  CHECK(turns.requests[1].session == kNone);
  CHECK(turns.requests[2].parent == 0);
  CHECK(turns.requests[2].turn == 2);
  CHECK_FALSE(turns.requests[2].after_parent);
  CHECK_THROWS_WITH(
      read(R"({"input_toks": 5, "output_toks": 1, "arrival_time_ns": 2, "input_tok_ids": [1]})"),
      Catch::Contains("input_tok_ids"));
}

TEST_CASE("logs of one's own name their columns") {
  ReadOptions csv;
  csv.format = "csv";
  csv.fields = {{"time", "arrived"}, {"prompt", "in"}, {"output", "out"}, {"session", "user"}};
  const RequestTrace named = read(
      "in,arrived,out,user,more\n10,2024-05-10 00:00:01,2,ann,x\n20,2024-05-10T00:00:02.5Z,3,,x\n"
      "30,2024-05-10 00:00:03,4,ann,x\n",
      csv);
  CHECK_FALSE(named.has_blocks());
  CHECK((named.requests[0].time_s == 0 && named.requests[1].time_s == 1.5));
  CHECK((named.requests[1].prompt_tokens == 20 && named.requests[1].generated_tokens == 3));
  CHECK((named.requests[1].session == kNone && named.requests[2].parent == 0 && named.requests[2].turn == 2));
  ReadOptions plain;
  plain.format = "csv";
  CHECK(read("time,prompt,output\n7,1,1\n8.5,1,1\n", plain).requests[1].time_s == 1.5);
  CHECK_THROWS_WITH(read("time,prompt,output\nnoon,1,1\n", plain), Catch::Contains("neither seconds nor"));
  CHECK_THROWS_WITH(read("in,out\n1,1\n", csv), Catch::Contains("arrived"));

  ReadOptions lines;
  lines.format = "jsonl";
  CHECK_FALSE(read(R"({"time": 1, "prompt": 5, "output": 2})", lines).has_blocks());
  CHECK_THROWS_WITH(read(R"({"time": 1, "prompt": "text", "output": 2})", lines),
                    Catch::Contains("only a tokenizer knows"));
  lines.block_tokens = 2;
  lines.fields = {{"prompt", "ids"}};
  lines.encode = [](const std::string& text, bool, const std::string&) {
    return std::vector<std::int32_t>(text.begin(), text.end());
  };
  const RequestTrace blocks =
      read(R"({"time": 1, "ids": [1, 2, 3, 4, 5], "output": [6, 7, 8], "session": 4})"
           "\n"
           R"({"time": "1970-01-01 00:00:03", "ids": [1, 2, 9, 9], "output": [1], "session": 4})"
           "\n"
           R"({"time": 4, "ids": "ab", "output": "c"})",
           lines);
  CHECK((blocks.has_blocks() && blocks.block_tokens == 2));
  CHECK((blocks.requests[0].n_blocks == 2 && blocks.requests[0].n_final_blocks == 4));
  CHECK(blocks.blocks[blocks.requests[0].first_block] == blocks.blocks[blocks.requests[1].first_block]);
  CHECK(blocks.blocks[blocks.requests[0].first_block + 1] !=
        blocks.blocks[blocks.requests[1].first_block + 1]);
  CHECK((blocks.requests[1].time_s == 2 && blocks.requests[1].parent == 0));
  CHECK((blocks.requests[2].prompt_tokens == 2 && blocks.requests[2].generated_tokens == 1));
}

TEST_CASE("arrivals and lengths alone") {
  const RequestTrace azure = read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.5000000,4808,10\n2023-11-17 00:00:01.25,"
      "3180,8\n");
  CHECK(azure.format == "azure");
  CHECK_FALSE(azure.has_blocks());
  CHECK(azure.requests[0].time_s == 0);
  CHECK(azure.requests[1].time_s == 1.75);
  CHECK(azure.requests[1].line == 3);
  CHECK(read("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-02-29 00:00:00+00:00,1,2\n").requests.size() ==
        1);
  for (const char* time : {"2023-02-29 00:00:00", "2023-11-16 24:00:00", "2023-11-16", "1.5",
                           "2023-11-16 23:59:59,5", "2023-11-16 23:59:59.", "2023x11-16 23:59:59"})
    CHECK_THROWS_AS(read(std::string("TIMESTAMP,ContextTokens,GeneratedTokens\n") + time + ",1,2\n"), Error);

  const RequestTrace burst = read(
      "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "5,a,1,ChatGPT,472,18,490,Conversation log\n45.5,,1,GPT-4,1087,230,1317,API log\n"
      "60,a,2,ChatGPT,500,1,501,Conversation log\n");
  CHECK(burst.format == "burstgpt");
  CHECK(burst.requests[1].session == kNone);
  CHECK(burst.requests[2].parent == 0);
  CHECK(burst.requests[2].turn == 2);
  CHECK(burst.categories[burst.requests[1].category] == "API log");

  const RequestTrace vidur =
      read("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,2\n0.75,\"11\",3\n");
  CHECK(vidur.format == "vidur");
  CHECK(vidur.requests[1].prompt_tokens == 11);
  CHECK_THROWS_WITH(read("arrived_at,num_prefill_tokens,num_decode_token\n0.5,10,2\n"),
                    Catch::Contains("Did you mean num_decode_token"));
  CHECK_THROWS_WITH(read("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10\n"),
                    Catch::Contains("2 fields under 3"));
  CHECK_THROWS_WITH(read("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,-2\n"),
                    Catch::Contains("line 2"));
  CHECK_THROWS_AS(read("arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,10,2\n", {.block_tokens = 16}),
                  Error);
}

TEST_CASE("generated blocks of a trace without sessions come from the longest earlier prompt") {
  const std::string text = R"({"timestamp": 0, "input_length": 20, "output_length": 12, "hash_ids": [0, 1]}
{"timestamp": 0, "input_length": 17, "output_length": 2, "hash_ids": [0, 2]}
{"timestamp": 9, "input_length": 50, "output_length": 2, "hash_ids": [0, 3, 4, 5]}
)";
  // Both earlier prompts have the one whole block 0; the latest, the second, is the parent. Its 17 + 2 tokens
  // fill no second block.
  const RequestTrace trace = read(text, {.block_tokens = 16, .generated = Generated::inferred});
  CHECK(trace.generated == Generated::inferred);
  CHECK(ids(trace.final_blocks(trace.requests[1])) == std::vector<BlockId>{0});
  CHECK(ids(trace.final_blocks(trace.requests[2])) == std::vector<BlockId>{0, 3, 4, 5});
  CHECK(trace.requests[0].n_final_blocks == 1);  // from the second, which begins like it
  CHECK(read(text, {.block_tokens = 16}).requests[0].n_final_blocks == 0);
}

}  // namespace kvsim::requests::test_read_requests
