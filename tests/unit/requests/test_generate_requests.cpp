#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/requests/prefix/request_summary.hpp"
#include "tests/support/source_folder.hpp"
#include "traces/requests/generate_requests.hpp"
#include "traces/requests/generated_blocks.hpp"
#include "traces/requests/like_requests.hpp"
#include "traces/requests/portable_draws.hpp"
#include "traces/requests/read_requests.hpp"

namespace kvsim::requests::test_generate_requests {

namespace {

std::vector<BlockId> ids(std::span<const BlockId> blocks) {
  return {blocks.begin(), blocks.end()};
}

/// What every sound trace satisfies.
void check_sound(const RequestTrace& trace) {
  double latest = 0;
  std::map<BlockId, std::pair<bool, BlockId>> before;
  for (std::uint32_t i = 0; i < trace.requests.size(); ++i) {
    const Request& request = trace.requests[i];
    const auto blocks = trace.prompt_blocks(request);
    REQUIRE(blocks.size() == block_count(request.prompt_tokens, trace.block_tokens, trace.tail));
    for (std::size_t k = 0; k < blocks.size(); ++k) {
      const std::pair<bool, BlockId> stands{k > 0, k > 0 ? blocks[k - 1] : 0};
      REQUIRE(before.try_emplace(blocks[k], stands).first->second == stands);
    }
    if (request.parent != kNone) REQUIRE(request.parent < i);
    if (request.after_parent) {
      REQUIRE(request.parent != kNone);
    } else {
      REQUIRE(request.time_s >= latest);
      latest = request.time_s;
    }
  }
}

}  // namespace

TEST_CASE("portable functions are those of the library, to rounding") {
  for (double x = 1e-300; x < 1e300; x *= 7.3) {
    CHECK(portable_log(x) == Approx(std::log(x)).epsilon(1e-14).margin(1e-15));
    CHECK(portable_exp(std::log(x)) == Approx(std::exp(std::log(x))).epsilon(1e-12));
  }
  CHECK(portable_log(1) == 0);
  CHECK(portable_exp(0) == 1);
  for (double t = -2; t < 2; t += 0.037)
    CHECK(portable_sine(t) == Approx(std::sin(2 * M_PI * t)).margin(1e-14));
}

TEST_CASE("draws have the mean and the variance of their distributions") {
  // Six standard errors of the mean of 40,000 draws: a sound generator fails once in 5 * 10^8 tries.
  constexpr std::uint64_t kDraws = 40000;
  const auto moments = [](auto draw, double mean, double variance, double fourth) {
    double sum = 0, squares = 0;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double x = draw(combine({17, i})) - mean;
      sum += x;
      squares += x * x;
    }
    CHECK(sum / kDraws == Approx(0).margin(6 * std::sqrt(variance / kDraws)));
    CHECK(squares / kDraws ==
          Approx(variance).margin(6 * std::sqrt((fourth - variance * variance) / kDraws)));
  };
  moments(exponential_draw, 1, 1, 9);
  moments(normal_draw, 0, 1, 3);
  for (const double k : {0.0625, 0.5, 1.0, 7.5})
    moments([&](std::uint64_t key) { return gamma_draw(key, k); }, k, k, 3 * k * k + 6 * k);
  moments([](std::uint64_t key) { return static_cast<double>(geometric_draw(key, 4)); }, 4, 12, 1308);
  CHECK(geometric_draw(3, 1) == 1);
  const ZipfDraws zipf(3, 1);
  moments([&](std::uint64_t key) { return static_cast<double>(zipf.draw(key)); }, 7.0 / 11, 1 - 49.0 / 121,
          0.723);
}

TEST_CASE("a generated trace is sound, and the same for the same options") {
  for (const Arrivals arrivals : {Arrivals::poisson, Arrivals::bursty, Arrivals::diurnal}) {
    for (const bool after_parent : {true, false}) {
      const GenerateOptions options{
          .seed = 5, .requests = 400, .block_tokens = 64, .arrivals = arrivals, .after_parent = after_parent};
      const RequestTrace trace = generate_requests(options);
      CHECK(trace.requests.size() == 400);
      check_sound(trace);
      const RequestTrace again = generate_requests(options);
      CHECK(again.blocks == trace.blocks);
      CHECK(again.requests.back().time_s == trace.requests.back().time_s);
      GenerateOptions other = options;
      other.seed = 6;
      CHECK(generate_requests(other).blocks != trace.blocks);
    }
  }
}

TEST_CASE("each turn's prompt begins with the prompt and the answer before it") {
  const RequestTrace trace = generate_requests({.requests = 300, .block_tokens = 32});
  CHECK(trace.generated == Generated::given);
  std::size_t later = 0;
  for (const Request& request : trace.requests) {
    if (request.parent == kNone) continue;
    ++later;
    const Request& parent = trace.requests[request.parent];
    const auto known = ids(trace.final_blocks(parent));
    const auto prompt = ids(trace.prompt_blocks(request));
    CHECK(known.size() == (parent.prompt_tokens + parent.generated_tokens) / 32);
    REQUIRE(known.size() <= prompt.size());
    CHECK(std::vector<BlockId>(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(known.size())) ==
          known);
    CHECK(request.turn == parent.turn + 1);
    CHECK(request.session == parent.session);
  }
  CHECK(later > 100);
  // What the next turn shows of the answers is what the generator knows of them.
  RequestTrace inferred = trace;
  forget_generated(inferred);
  infer_generated(inferred);
  for (const Request& request : trace.requests) {
    if (request.parent == kNone) continue;
    CHECK(ids(inferred.final_blocks(inferred.requests[request.parent])) ==
          ids(trace.final_blocks(trace.requests[request.parent])));
  }
}

TEST_CASE("kinds of sessions share what they are made to share") {
  const auto hits = [](const char* mix, const char* shape) {
    const RequestTrace trace = generate_requests(
        {.requests = 600, .block_tokens = 16, .mix = parse_mix(mix), .shape = parse_shape(shape)});
    return prefix::summarize(trace).sharing->all.hit_tokens;
  };
  // One document of 12,000 tokens behind one of the system prompt: 750 whole blocks of every prompt but the
  // first. Of a million documents some 0.2 pairs of 600 requests have the same.
  const std::string equal = "spread=0,system_prompts=1,system_tokens=1,questions=1,document_popularity=0,";
  CHECK(hits("document=1", (equal + "documents=1").c_str()) == 599 * 12000);
  CHECK(hits("document=1", (equal + "documents=1000000").c_str()) <= 2 * 12000);
  // Prompts of one turn share their system prompt alone, here a whole number of blocks of equal length.
  const RequestTrace trace =
      generate_requests({.requests = 200,
                         .block_tokens = 16,
                         .mix = parse_mix("chat=1"),
                         .shape = parse_shape("chat_turns=1,system_prompts=1,system_tokens=64,spread=0")});
  CHECK(prefix::summarize(trace).sharing->all.hit_tokens == 199 * 64);
  CHECK(prefix::summarize(trace).sharing->roots == 1);
}

TEST_CASE("sessions begin at the rate and with the spread that was asked for") {
  const auto summary = [](Arrivals arrivals, const char* shape) {
    return prefix::summarize(generate_requests(
        {.requests = 20000,
         .mix = parse_mix("chat=1"),
         .arrivals = arrivals,
         .rate = 4,
         .shape = parse_shape(std::string("chat_turns=1,system_tokens=1,text_tokens=1") + shape)}));
  };
  const prefix::RequestSummary poisson = summary(Arrivals::poisson, "");
  CHECK(poisson.end_s == Approx(5000).epsilon(6 / std::sqrt(20000.0)));
  CHECK(poisson.gap_cv == Approx(1).margin(0.06));
  const prefix::RequestSummary bursty = summary(Arrivals::bursty, ",burst_cv=4");
  CHECK(bursty.end_s == Approx(5000).epsilon(6 * 4 / std::sqrt(20000.0)));
  CHECK(bursty.gap_cv == Approx(4).margin(0.8));
  // Over whole periods a diurnal process has its mean rate.
  CHECK(summary(Arrivals::diurnal, ",period_s=500").end_s == Approx(5000).epsilon(0.05));
}

TEST_CASE("a trace like another has its sharing to the token") {
  const RequestTrace trace = read_requests(
      test::source_folder() + "/traces/sample/requests/mooncake_conversation.jsonl.gz", {.limit = 6000});
  const RequestTrace like = like_requests(trace, 9);
  check_sound(like);
  const prefix::RequestSummary was = prefix::summarize(trace), is = prefix::summarize(like);
  CHECK(is.sharing->all.hit_tokens == was.sharing->all.hit_tokens);
  CHECK(is.sharing->last_half.hit_tokens == was.sharing->last_half.hit_tokens);
  CHECK(is.sharing->all.tokens == was.sharing->all.tokens);
  CHECK(is.sharing->blocks == was.sharing->blocks);
  CHECK(is.sharing->distinct == was.sharing->distinct);
  CHECK(is.sharing->seen_once == was.sharing->seen_once);
  CHECK(is.sharing->widest == was.sharing->widest);
  CHECK(is.sharing->top_share == was.sharing->top_share);
  CHECK(is.generated_tokens == was.generated_tokens);
  // Every pair of neighbours in the list of a shared block's requests is as far apart as before.
  const auto gaps = [](const RequestTrace& of) {
    std::map<BlockId, std::uint32_t> last;
    std::multiset<std::pair<std::uint32_t, std::uint32_t>> out;
    for (std::uint32_t i = 0; i < of.requests.size(); ++i)
      for (const BlockId id : of.prompt_blocks(of.requests[i])) {
        const auto [at, fresh] = last.try_emplace(id, i);
        if (!fresh) out.insert({at->second, i});
        at->second = i;
      }
    return out;
  };
  CHECK(gaps(like) == gaps(trace));
  std::size_t changed = 0;
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    CHECK(like.requests[i].time_s == trace.requests[i].time_s);
    changed += like.requests[i].prompt_tokens != trace.requests[i].prompt_tokens ? 1 : 0;
  }
  CHECK(changed > 5000);
  CHECK(like_requests(trace, 9).blocks == like.blocks);
  CHECK(like_requests(trace, 10).requests[5].prompt_tokens != like.requests[5].prompt_tokens);
}

TEST_CASE("settings of a generator are checked") {
  CHECK_THROWS_WITH(parse_mix("chat=0.5,agnet=0.5"), Catch::Contains("agent"));
  CHECK_THROWS_WITH(parse_mix("chat=0.5"), Catch::Contains("sum to 1"));
  CHECK_THROWS_WITH(parse_mix("chat=0.5,chat=0.5"), Catch::Contains("twice"));
  CHECK(parse_mix("agent=100%").agent == 1);
  CHECK_THROWS_WITH(parse_shape("chat_turn=3"), Catch::Contains("chat_turns"));
  CHECK_THROWS_AS(parse_shape("chat_turns=x"), Error);
  CHECK_THROWS_AS(generate_requests({.rate = 0}), Error);
  CHECK_THROWS_AS(generate_requests({.block_tokens = 0}), Error);
}

}  // namespace kvsim::requests::test_generate_requests
