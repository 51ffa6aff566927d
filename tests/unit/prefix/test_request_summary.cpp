#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "sim/requests/prefix/request_summary.hpp"
#include "tests/support/source_folder.hpp"
#include "traces/requests/read_requests.hpp"
#include "traces/requests/trace_builder.hpp"

namespace kvsim::test_request_summary {

using prefix::RequestSummary;
using prefix::summarize;
using requests::BlockId;
using requests::Request;
using requests::RequestTrace;

namespace {

const std::string kConversation = "/traces/sample/requests/mooncake_conversation.jsonl.gz";

RequestTrace trace_of(std::uint32_t block_tokens, const std::vector<std::uint32_t>& lengths,
                      const std::vector<std::vector<BlockId>>& prompts) {
  RequestTrace trace{.format = "test", .block_tokens = block_tokens};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Request request{.time_s = static_cast<double>(i * i), .prompt_tokens = lengths[i]};
    request.first_block = trace.blocks.size();
    request.n_blocks = static_cast<std::uint32_t>(prompts[i].size());
    trace.blocks.insert(trace.blocks.end(), prompts[i].begin(), prompts[i].end());
    trace.requests.push_back(request);
  }
  return trace;
}

}  // namespace

TEST_CASE("a cache that is keyed by piece finds blocks behind other prefixes, too") {
  // Request 1 finds documents 2 and 3 in the other order, request 2 document 1 as its prefix and 3 behind it,
  // and 5 tokens of 4 nowhere; request 3 them, and document 2 twice.
  RequestTrace trace = trace_of(10, {30, 20, 25, 25}, {{1, 2, 3}, {3, 2}, {1, 3, 4}, {2, 2, 4}});
  trace.hashing = requests::Hashing::content;
  const RequestSummary summary = summarize(trace);
  CHECK(summary.sharing->all.hit_tokens == 10);
  CHECK(summary.sharing->elsewhere_tokens == 0 + 20 + 10 + 25);
  // A chained id names its whole prefix, and stands behind no other.
  CHECK_FALSE(summarize(trace_of(10, {25, 20}, {{1, 2, 3}, {1, 4}})).sharing->elsewhere_tokens);
}

TEST_CASE("ids of tokens name a block, or it and all before it") {
  const std::vector<std::uint64_t> one{1, 2, 3, 4, 5}, other{9, 9, 3, 4, 5};
  for (const auto hashing : {requests::Hashing::chained, requests::Hashing::content}) {
    std::vector<BlockId> a, b;
    append_ids(one, 2, hashing, requests::Tail::partial, a);
    append_ids(other, 2, hashing, requests::Tail::partial, b);
    REQUIRE(a.size() == 3);
    CHECK(a[0] != b[0]);
    CHECK((a[1] == b[1]) == (hashing == requests::Hashing::content));
    CHECK((a[2] == b[2]) == (hashing == requests::Hashing::content));
    std::vector<BlockId> whole;
    append_ids(one, 2, hashing, requests::Tail::missing, whole);
    CHECK(whole == std::vector<BlockId>(a.begin(), a.end() - 1));
  }
}

TEST_CASE("an infinite cache holds the leading runs of blocks that were there") {
  // Request 1 finds block 1 (10 tokens), request 2 blocks 1, 2 and the rest 3 of 5 tokens, request 3 nothing,
  // request 4 the block 7 alone: 9 is new.
  const RequestTrace trace =
      trace_of(10, {25, 20, 25, 10, 30}, {{1, 2, 3}, {1, 4}, {1, 2, 3}, {7}, {7, 9, 8}});
  const RequestSummary summary = summarize(trace);
  REQUIRE(summary.sharing);
  const prefix::Sharing& sharing = *summary.sharing;
  CHECK(sharing.all.tokens == 110);
  CHECK(sharing.all.hit_tokens == 0 + 10 + 25 + 0 + 10);
  CHECK(sharing.all.whole_tokens == 0 + 10 + 20 + 0 + 10);
  CHECK(sharing.last_half.tokens == 65);
  CHECK(sharing.last_half.hit_tokens == 35);
  CHECK(sharing.blocks == 12);
  CHECK(sharing.distinct == 7);
  CHECK(sharing.seen_once == 3);
  CHECK(sharing.roots == 2);
  CHECK(sharing.branching == 1);
  CHECK(sharing.widest == 2);
  CHECK(sharing.deepest == 3);
  CHECK(summary.end_s == 16);
  CHECK(summary.gap_s.mean == 4);
  CHECK(summary.gap_s.p50 == 3);
  CHECK(summary.gap_s.max == 7);
  CHECK(summary.gap_cv == Approx(std::sqrt(5.0) / 4));
  CHECK(summary.prompt.p50 == 25);
  CHECK(summary.prompt.p99 == 30);
}

TEST_CASE("generated blocks raise the ceiling") {
  RequestTrace trace = trace_of(10, {15, 30}, {{1, 2}, {1, 3, 4}});
  CHECK(summarize(trace).sharing->all.hit_tokens == 10);
  trace.generated = requests::Generated::inferred;
  trace.requests[0].first_final_block = trace.requests[1].first_block;
  trace.requests[0].n_final_blocks = 2;
  CHECK(summarize(trace).sharing->all.hit_tokens == 20);
  CHECK(summarize(trace).sharing->distinct == 4);
}

TEST_CASE("Mooncake's conversation trace has the numbers that were published and counted") {
  const RequestTrace trace = requests::read_requests(test::source_folder() + kConversation);
  const RequestSummary summary = summarize(trace);
  CHECK(summary.requests == 12031);
  CHECK(summary.prompt_tokens == 144793823);
  CHECK(trace.tail == requests::Tail::partial);
  CHECK(summary.prompt.mean == Approx(12035).epsilon(1e-4));
  CHECK(summary.generated.mean == Approx(343).epsilon(1e-2));
  CHECK(summary.prompt.max == 126195);
  CHECK(summary.end_s == 3536.999);
  REQUIRE(summary.sharing);
  const prefix::Sharing& sharing = *summary.sharing;
  CHECK(sharing.blocks == 288500);
  CHECK(sharing.distinct == 182790);
  CHECK(static_cast<double>(sharing.seen_once) / 182790 == Approx(0.7585).margin(0.00005));
  CHECK(sharing.top_share == Approx(0.3165).margin(0.00005));
  CHECK(sharing.last_half.hit_tokens == 27038068);
  CHECK(sharing.last_half.tokens == 67915607);
  CHECK(static_cast<double>(sharing.all.hit_tokens) / 144793823 == Approx(0.373624).margin(5e-7));
  CHECK(static_cast<double>(sharing.last_half.whole_tokens) / 67915607 == Approx(0.397791).margin(5e-7));
}

TEST_CASE("the summary is that of sets of prefixes") {
  // The slow twin knows whole prefixes as lists and no tree.
  const RequestTrace trace = requests::read_requests(test::source_folder() + kConversation, {.limit = 2000});
  std::map<std::vector<BlockId>, std::uint64_t> times;
  std::uint64_t hits = 0;
  for (const Request& request : trace.requests) {
    std::vector<BlockId> before;
    bool leading = true;
    std::uint64_t left = request.prompt_tokens;
    for (const BlockId id : trace.prompt_blocks(request)) {
      before.push_back(id);
      if (before.size() > 24) break;  // prefixes of prefixes cost the square of their length
      const std::uint64_t tokens = std::min<std::uint64_t>(left, 512);
      leading = leading && times.contains(before);
      if (leading) hits += tokens;
      left -= tokens;
      ++times[before];
    }
  }
  // Prompts are cut after 24 blocks on both sides.
  RequestTrace cut = trace;
  for (Request& request : cut.requests) {
    if (request.n_blocks <= 24) continue;
    request.n_blocks = 24;
    request.prompt_tokens = 24 * 512;
  }
  const prefix::Sharing sharing = *summarize(cut).sharing;
  CHECK(sharing.distinct == times.size());
  CHECK(sharing.all.hit_tokens == hits);
  std::uint64_t once = 0;
  for (const auto& [before, n] : times) once += n == 1 ? 1 : 0;
  CHECK(sharing.seen_once == once);
}

}  // namespace kvsim::test_request_summary
