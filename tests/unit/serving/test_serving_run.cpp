#include <catch2/catch.hpp>
#include <cmath>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/requests/serving/served_model.hpp"
#include "sim/requests/serving/serving_run.hpp"
#include "tests/unit/serving/made_requests.hpp"
#include "tests/unit/serving/slow_engine.hpp"

namespace kvsim::serving::test_serving_run {
namespace {

/// One second for a step, a hundredth for each token of a prompt, a tenth for each decoding sequence: whole
/// numbers of hundredths, so that times are easy to follow by hand.
double toy_price(const cost::StepWork& work) {
  double seconds = 1 + 0.1 * static_cast<double>(work.decoding);
  for (const cost::Chunk& chunk : work.chunks) seconds += 0.01 * static_cast<double>(chunk.tokens);
  return seconds;
}

/// Of whole numbers, so that sums are exact in any order; depends on everything that a step has.
double whole_price(const cost::StepWork& work) {
  std::uint64_t seconds = 3 + 5 * work.decoding + work.attended + 2 * work.sampled + 4 * work.within_window;
  for (const cost::Chunk& chunk : work.chunks) seconds += chunk.tokens * (7 + chunk.past);
  return static_cast<double>(seconds);
}

policy::Part lru() {
  return policy::parse_replacement("lru", policy::builtin());
}

ServingSettings settings_of(std::uint64_t capacity, std::uint64_t block = 4) {
  ServingSettings settings;
  settings.engine.memory.capacity = capacity;
  settings.engine.memory.block = block;
  return settings;
}

TEST_CASE("One request alone: its prompt in chunks, then a token a step", "[serving]") {
  ServingSettings settings = settings_of(1000);
  settings.engine.step_tokens = 100;
  const auto trace = made_trace({{5, 250, 4}});
  const ServingResult result = serve(trace, nullptr, settings, toy_price);
  const RequestOutcome& request = result.requests.front();
  // Chunks of 100, 100 and 50 take 2, 2 and 1.5 s; three more tokens take 1.1 s each.
  CHECK(request.arrival == 5);
  CHECK(request.queueing() == 0);
  CHECK(request.ttft() == Approx(5.5));
  CHECK(*request.tpot() == Approx(1.1));
  CHECK(request.longest_gap == Approx(1.1));
  CHECK(request.computed_tokens == 253);  // the last token is never stored
  CHECK(result.end == Approx(5 + 5.5 + 3.3));
  CHECK(result.replicas.front().steps == 6);
  CHECK(result.replicas.front().busy == Approx(8.8));
}

TEST_CASE("Two requests: the second joins the step after its arrival", "[serving]") {
  const auto trace = made_trace({{0, 100, 3}, {0.5, 50, 2}});
  const ServingResult result = serve(trace, nullptr, settings_of(1000), toy_price);
  // Step 1 ends at 2: the first one's prompt. Step 2: 1 + 0.1 + 0.5, ends at 3.6: its second token, and the
  // other's first. Step 3: 1.2, ends at 4.8: both last tokens.
  CHECK(result.requests[0].first_token == Approx(2));
  CHECK(result.requests[0].end == Approx(4.8));
  CHECK(result.requests[1].started == Approx(2));
  CHECK(result.requests[1].queueing() == Approx(1.5));
  CHECK(result.requests[1].first_token == Approx(3.6));
  CHECK(result.requests[1].end == Approx(4.8));
  CHECK(result.requests[0].longest_gap == Approx(1.6));
}

TEST_CASE("A preemption by hand: the later request gives way and is computed once more", "[serving]") {
  // Four blocks of four tokens. Both prompts take two. The first request's token 9 needs a third block.
  const auto trace = made_trace({{0, 8, 3}, {0, 8, 2}});
  ServingSettings settings = settings_of(16);
  SECTION("by recompute") {
    const ServingResult result = serve(trace, nullptr, settings, toy_price);
    // Both prompts: 1.16. Then the first alone: 1.1 twice, ends at 3.36. The second again: prompt and its one
    // token, 9 tokens: 1.09, which gives its second and last.
    CHECK(result.requests[0].end == Approx(3.36));
    CHECK(result.requests[0].preemptions == 0);
    CHECK(result.requests[1].first_token == Approx(1.16));
    CHECK(result.requests[1].preemptions == 1);
    CHECK(result.requests[1].computed_tokens == 8 + 9);
    CHECK(result.requests[1].end == Approx(3.36 + 1.09));
    CHECK(result.requests[1].longest_gap == Approx(3.36 + 1.09 - 1.16));
  }
  SECTION("by swap") {
    settings.engine.preemption = Preemption::swap;
    settings.engine.swap = {.link = {.bandwidth = 80, .latency = 0.5}, .token_bytes = 10, .run_copies = 2};
    const ServingResult result = serve(trace, nullptr, settings, toy_price);
    // Blocks 2 and 3 are beside each other: one run of 8 tokens, 2 * 0.5 + 80 / 80 = 2 s each way. It comes
    // back to the blocks that were freed in reverse, 3 and 2, and those of the first: two or three runs.
    CHECK(result.requests[0].end == Approx(1.16 + 1.1 + 2 + 1.1));
    CHECK(result.requests[1].computed_tokens == 9);
    CHECK(result.requests[1].swap_seconds > 2);
    CHECK(result.requests[1].end ==
          Approx(result.requests[0].end + 1.1 + result.requests[1].swap_seconds - 2));
  }
  SECTION("by swap, without room on the host") {
    settings.engine.preemption = Preemption::swap;
    settings.engine.swap = {.link = {.bandwidth = 80, .latency = 0.5}, .token_bytes = 10, .host_tokens = 7};
    CHECK(serve(trace, nullptr, settings, toy_price).requests[1].computed_tokens == 8 + 9);
  }
}

TEST_CASE("A prefix by hand: what is there is not computed", "[serving]") {
  const auto trace = made_trace({{0, 8, 2, {1, 2}}, {10, 12, 2, {1, 2, 3}}, {20, 8, 1, {1, 2}}}, 4);
  const prefix::PrefixTree tree(trace);
  ServingSettings settings = settings_of(1000);
  settings.engine.prefix_cache = lru();
  const ServingResult result = serve(trace, &tree, settings, toy_price);
  CHECK(result.requests[0].hit_tokens == 0);
  CHECK(result.requests[1].hit_tokens == 8);
  CHECK(result.requests[1].ttft() == Approx(1.04));
  // All of its blocks are there, but the last token must be computed, and with it its block.
  CHECK(result.requests[2].hit_tokens == 4);
  CHECK(result.requests[2].computed_tokens == 4);
}

TEST_CASE("What the device has lost is copied from the host: by hand", "[serving]") {
  // Four blocks on the device: the second prompt displaces the first, which comes back for its third block.
  const auto trace = made_trace({{0, 8, 1, {1, 2}}, {10, 16, 1, {5, 6, 7, 8}}, {20, 12, 1, {1, 2, 3}}}, 4);
  const prefix::PrefixTree tree(trace);
  ServingSettings settings = settings_of(16);
  settings.engine.prefix_cache = lru();
  settings.engine.swap = {.link = {.bandwidth = 80, .latency = 0.5}, .token_bytes = 10, .run_copies = 2};
  CHECK(serve(trace, &tree, settings, toy_price).requests[2].hit_tokens == 0);
  settings.engine.host_cache = {lru(), 400};
  const RequestOutcome back = serve(trace, &tree, settings, toy_price).requests[2];
  CHECK(back.hit_tokens == 8);
  CHECK(back.host_tokens == 8);
  CHECK(back.computed_tokens == 4);
  // Two blocks: 2 * 0.5 s to begin and 40 / 80 s each, before a step of 1.04 s.
  CHECK(back.swap_seconds == Approx(3));
  CHECK(back.ttft() == Approx(4.04));
  settings.engine.host_cache.tokens = 12;  // the second prompt displaces the first there, too
  CHECK(serve(trace, &tree, settings, toy_price).requests[2].host_tokens == 0);
  settings.engine.host_cache.tokens = 3;
  CHECK_THROWS_WITH(serve(trace, &tree, settings, toy_price), Catch::Contains("a block of the trace has 4"));
  settings.engine.prefix_cache.reset();
  CHECK_THROWS_WITH(serve(trace, &tree, settings, toy_price), Catch::Contains("there is none"));
}

TEST_CASE("Generated blocks that the trace knows are found by the next turn", "[serving]") {
  const auto trace = made_trace({{0, 6, 4, {1, 20}, requests::kNone, {1, 2}}, {1, 12, 1, {1, 2, 3}, 0}}, 4);
  const prefix::PrefixTree tree(trace);
  ServingSettings settings = settings_of(1000);
  settings.engine.prefix_cache = lru();
  const ServingResult result = serve(trace, &tree, settings, toy_price);
  // Of 6 + 4 tokens 9 are stored: two blocks.
  CHECK(result.requests[1].hit_tokens == 8);
  CHECK(result.requests[1].arrival == Approx(result.requests[0].end + 1));
}

TEST_CASE("Poisson arrivals at a fixed time of service wait as Pollaczek and Khinchine say", "[serving]") {
  for (const double load : {0.3, 0.7}) {
    std::vector<Made> made;
    double time = 0;
    constexpr std::size_t kRequests = 200'000, kBatches = 100;
    for (std::size_t i = 0; i < kRequests; ++i) {
      time += -std::log(1 - uniform01(combine({17, i}))) / load;
      made.push_back({time, 10, 1});
    }
    ServingSettings settings = settings_of(1000);
    settings.engine.max_sequences = 1;
    const ServingResult result =
        serve(made_trace(made), nullptr, settings, [](const cost::StepWork&) { return 1.0; });
    // Means of batches are nearly independent: their spread gives the sampling error of the whole mean.
    double sum = 0, squares = 0;
    for (std::size_t batch = 0; batch < kBatches; ++batch) {
      double mean = 0;
      for (std::size_t i = 0; i < kRequests / kBatches; ++i)
        mean += result.requests[batch * (kRequests / kBatches) + i].queueing();
      mean /= static_cast<double>(kRequests / kBatches);
      sum += mean;
      squares += mean * mean;
    }
    const double mean = sum / kBatches, variance = (squares / kBatches - mean * mean) / (kBatches - 1);
    CHECK(std::abs(mean - load / (2 * (1 - load))) < 4 * std::sqrt(variance));
    CHECK(std::sqrt(variance) < 0.05 * mean);  // the error is small enough to tell something
  }
}

struct Case {
  requests::RequestTrace trace;
  EngineSettings settings;
};

/// Small memories, so that preemptions and evictions are frequent; prompts from a tree of few branches.
Case random_case(std::uint64_t seed) {
  Case out;
  const auto draw = [&](std::uint64_t what, std::uint64_t n) { return pick(combine({seed, what}), n); };
  constexpr std::uint32_t kBlock = 4;
  if (draw(1, 2) == 0) out.settings.prefix_cache = lru();
  out.settings.preemption = draw(2, 2) == 0 ? Preemption::recompute : Preemption::swap;
  out.settings.swap = {.link = {.bandwidth = 1, .latency = 2}, .token_bytes = 3, .run_copies = 2};
  out.settings.memory.block = kBlock;
  out.settings.memory.capacity = kBlock * (14 + draw(3, 20)) + 1;
  out.settings.step_tokens = 1 + draw(4, 40);
  out.settings.max_sequences = static_cast<std::uint32_t>(1 + draw(5, 8));
  std::vector<Made> made;
  double time = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const auto of = [&](std::uint64_t what, std::uint64_t n) { return pick(combine({seed, i, what}), n); };
    time += static_cast<double>(of(0, 400));
    Made request{time, static_cast<std::uint32_t>(1 + of(1, 30)), static_cast<std::uint32_t>(of(2, 16))};
    if (i > 0 && of(3, 4) == 0) {
      request.parent = static_cast<std::uint32_t>(of(4, i));
      request.time_s = static_cast<double>(of(5, 50));
    }
    requests::BlockId id = 0;
    const std::uint64_t stored = request.prompt + std::max<std::uint64_t>(request.generated, 1) - 1;
    std::vector<requests::BlockId> all;
    for (std::uint64_t block = 0; block < stored / kBlock + 1; ++block) {
      id = combine({id, block, of(10 + block, 2)});
      all.push_back(id);
    }
    // A last block that is not full has an id of its own.
    for (std::uint64_t block = 0; block < request.prompt / kBlock; ++block)
      request.blocks.push_back(all[block]);
    if (request.prompt % kBlock != 0) request.blocks.push_back(combine({id, i, 999}));
    if (of(6, 2) == 0)
      request.final_blocks.assign(all.begin(), all.begin() + static_cast<long>(stored / kBlock));
    made.push_back(request);
  }
  out.trace = made_trace(made, kBlock);
  return out;
}

/// What a run must have for the comparison to tell something.
struct Seen {
  std::uint64_t preemptions = 0, hits = 0, evicted = 0;
};

/// `prepare`: what the slow engine must be told.
void check_with_slow_engine(
    const Case& one, Seen& seen, const std::function<void(SlowEngine&)>& prepare = [](SlowEngine&) {}) {
  const prefix::PrefixTree tree(one.trace);
  const ServingResult result = serve(one.trace, &tree, {.engine = one.settings}, whole_price);
  SlowEngine engine(one.settings, one.trace, whole_price);
  prepare(engine);
  const auto slow = engine.run();
  seen.evicted += engine.evicted;
  REQUIRE(slow.size() == result.requests.size());
  for (std::uint32_t i = 0; i < result.requests.size(); ++i) {
    CAPTURE(i);
    const RequestOutcome& ours = result.requests[i];
    const SlowEngine::Outcome& theirs = slow.at(i);
    REQUIRE(ours.arrival == theirs.arrival);
    REQUIRE(ours.started == theirs.started);
    REQUIRE(ours.first_token == theirs.tokens.front());
    REQUIRE(ours.end == theirs.tokens.back());
    double gap = 0;
    for (std::size_t token = 1; token < theirs.tokens.size(); ++token)
      gap = std::max(gap, theirs.tokens[token] - theirs.tokens[token - 1]);
    REQUIRE(ours.longest_gap == gap);
    REQUIRE(ours.hit_tokens == theirs.hits);
    REQUIRE(ours.computed_tokens == theirs.computed);
    REQUIRE(ours.preemptions == theirs.preemptions);
    REQUIRE(ours.swap_seconds == theirs.swapped);
    seen.preemptions += ours.preemptions;
    seen.hits += ours.hit_tokens;
  }
}

TEST_CASE("Every time and count equals those of the slow engine", "[serving]") {
  Seen seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Case one = random_case(seed);
    // Where blocks lie decides what swaps cost; the slow engine takes each as lying alone.
    if (!one.settings.prefix_cache) one.settings.swap.link.latency = 0;
    check_with_slow_engine(one, seen);
  }
  CHECK(seen.preemptions > 500);
  CHECK(seen.hits > 5000);
}

TEST_CASE("With windows and states, too", "[serving]") {
  Seen seen;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const auto draw = [&](std::uint64_t what, std::uint64_t n) { return pick(combine({seed, 77, what}), n); };
    Case one = random_case(seed);
    one.settings.prefix_cache.reset();
    one.settings.preemption = Preemption::recompute;
    cost::Model model = cost::find_model(draw(1, 3) == 0 ? "qwen3-next-80b-a3b" : "llama-3.1-8b");
    model.kv_heads = 1;
    model.head_dim = model.value_dim = 1 + draw(2, 3);
    std::vector<std::uint64_t> windows;
    if (!model.recurrence.matrices.empty()) {
      model.recurrence.state = draw(3, 5);
      model.recurrence.convolution = draw(4, 5);
      windows.resize(model.cached_layers(), 0);
    } else {
      model.layers = 1 + draw(3, 6);
      model.window = 1 + draw(4, 30);
      for (std::uint64_t i = 0; i < model.layers; ++i) {
        model.full_layers.push_back(draw(10 + i, 2) == 0);
        windows.push_back(model.full_layers.back() ? 0 : model.window);
      }
    }
    const ServedModel served{model, cost::find_machine("a100-80-sxm"), {}};
    const std::uint64_t token = 4 * model.head_dim, states = model.remembering_layers() * model.state_bytes();
    // Room for at least the longest request in every layer.
    const std::uint64_t bytes = 2 * states + token * windows.size() * (52 + draw(5, 60));
    one.settings = engine_settings(served, one.settings, bytes, 2 << 20);
    REQUIRE(one.settings.memory.sizes);
    check_with_slow_engine(one, seen, [&](SlowEngine& engine) {
      engine.windows = windows;
      engine.layer_token = token;
      engine.states = states;
    });
  }
  CHECK(seen.preemptions > 300);
}

TEST_CASE("With representations, whose bytes rise and fall, too", "[serving]") {
  const char* text = GENERATE("fp8", "q4_0", "scalar(bits=4,group=8)", "kivi(bits=2,group=4,residual=8)");
  CAPTURE(text);
  Seen seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    Case one = random_case(seed);
    one.settings.prefix_cache.reset();
    one.settings.preemption = Preemption::recompute;
    ServedModel served{cost::find_model("llama-3.1-8b"), cost::find_machine("a100-80-sxm"), {}};
    served.model.layers = 3;
    served.model.kv_heads = 2;
    served.model.head_dim = served.model.value_dim = 32;
    served.kept = KeptTokens{.bytes = 1};  // of prices, which are not asked
    served.serving = cost::served_with(
        served.serving, policy::parse_composition("full+" + std::string(text), policy::builtin()));
    const cost::Storage& storage = served.serving.layout.storage;
    const auto layer_bytes = [&](std::uint64_t kept, std::uint64_t appended) {
      return cost::stored_bytes(storage, served.model, 2, {kept, appended});
    };
    std::uint64_t most = 0;
    for (std::uint64_t tokens = 1; tokens <= 48; ++tokens) most = std::max(most, 3 * layer_bytes(1, tokens));
    const std::uint64_t bytes = most * (10 + pick(combine({seed, 78}), 20)) / 10;
    one.settings = engine_settings(served, one.settings, bytes, 2 << 20);
    check_with_slow_engine(one, seen, [&](SlowEngine& engine) {
      engine.windows = {0, 0, 0};
      engine.layer_bytes = layer_bytes;
    });
  }
  CHECK(seen.preemptions > 100);
}

TEST_CASE("With memory to spare the static way is the paged one, with windows too", "[serving]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    Case one = random_case(seed);
    one.settings.prefix_cache.reset();
    one.settings.preemption = Preemption::recompute;
    ServedModel served{cost::find_model("gemma-3-12b"), cost::find_machine("a100-80-sxm"), {}};
    served.model.window = 7;
    const auto run = [&](AllocatorKind kind) {
      one.settings.allocator = kind;
      one.settings.memory.max_tokens = 100;
      return serve(one.trace, nullptr, {.engine = engine_settings(served, one.settings, 1ull << 40, 2 << 20)},
                   whole_price);
    };
    const ServingResult paged = run(AllocatorKind::paged), fixed = run(AllocatorKind::static_max);
    for (std::size_t i = 0; i < paged.requests.size(); ++i)
      REQUIRE(paged.requests[i].end == fixed.requests[i].end);
    CHECK(paged.replicas.front().used == fixed.replicas.front().used);
    CHECK(paged.replicas.front().reserved < fixed.replicas.front().reserved);
    // 8 layers hold 100 tokens and 40 hold 7, of 2 * 8 heads of 256 numbers of 2 bytes.
    CHECK(fixed.replicas.front().peak % ((8 * 100 + 40 * 7) * 8192) == 0);
  }
}

TEST_CASE("Under every policy of blocks, too", "[serving]") {
  const char* text =
      GENERATE("lru", "fifo", "lfu", "lfu(age=false)", "ttl(seconds=3000)", "queue_lru(window=3)");
  CAPTURE(text);
  Seen seen;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Case one = random_case(seed);
    one.settings.prefix_cache = policy::parse_replacement(text, policy::builtin());
    check_with_slow_engine(one, seen);
  }
  CHECK(seen.preemptions > 100);
  CHECK(seen.hits > 2000);
  CHECK(seen.evicted > 2000);
}

TEST_CASE("Policies of cost keep what takes long to compute: by hand", "[serving]") {
  // Four blocks. Those of the first two prompts take three, which were used once each, block 2 before block 1
  // before block 9; the third prompt needs two, so that one leaves.
  const auto trace =
      made_trace({{0, 8, 1, {1, 2}}, {10, 4, 1, {9}}, {20, 8, 1, {5, 6}}, {30, 12, 1, {1, 2, 3}}}, 4);
  const prefix::PrefixTree tree(trace);
  ServingSettings settings = settings_of(16);
  const auto hits = [&](const char* policy, std::vector<double> seconds) {
    settings.engine.prefix_cache = policy::parse_replacement(policy, policy::builtin());
    settings.engine.block_seconds = std::make_shared<const std::vector<double>>(std::move(seconds));
    return serve(trace, &tree, settings, toy_price).requests[3].hit_tokens;
  };
  // Block 2 was used longest ago.
  CHECK(hits("lru", {1, 5, 9}) == 4);
  CHECK(hits("hpt", {1, 1, 1}) == 4);
  CHECK(hits("hpt", {5, 1, 9}) == 4);
  // First blocks cost less: block 1 leaves, and block 2 is behind a gap.
  CHECK(hits("hpt", {1, 5, 9}) == 0);
}

TEST_CASE("Laws of every policy on the device", "[serving]") {
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (!spec.as<policy::ReplacementRule>()) continue;
    CAPTURE(spec.name);
    EngineSettings settings;
    settings.prefix_cache = policy::parse_replacement(spec.name, policy::builtin());
    std::uint64_t found = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(seed);
      Case one = random_case(seed);
      one.settings.prefix_cache = settings.prefix_cache;
      const prefix::PrefixTree tree(one.trace);
      const auto run = [&] { return serve(one.trace, &tree, {.engine = one.settings}, whole_price); };
      if (spec.name == "opt") {
        CHECK_THROWS_WITH(run(), Catch::Contains("knows the future"));
        continue;
      }
      const ServingResult tight = run();
      REQUIRE(tight.replicas.front().peak <= one.settings.memory.capacity);
      for (const RequestOutcome& request : tight.requests) {
        found += request.hit_tokens;
        if (request.preemptions == 0)
          REQUIRE(request.computed_tokens + request.hit_tokens ==
                  request.prompt_tokens + std::max<std::uint64_t>(request.generated_tokens, 1) - 1);
      }
      // Where nothing is short of room, nothing leaves, and all policies find the same; TTL's time is long.
      one.settings.memory.capacity = 1'000'000;
      const ServingResult wide = run();
      one.settings.prefix_cache = lru();
      const ServingResult of_lru = run();
      for (std::size_t i = 0; i < wide.requests.size() && spec.name != "ttl"; ++i)
        REQUIRE(wide.requests[i].end == of_lru.requests[i].end);
    }
    CHECK((found > 1000 || spec.name == "opt"));
  }
  Case one = random_case(1);
  one.settings.prefix_cache = policy::parse_replacement("priority(pin=1)", policy::builtin());
  const prefix::PrefixTree tree(one.trace);
  CHECK_THROWS_WITH(serve(one.trace, &tree, {.engine = one.settings}, whole_price),
                    Catch::Contains("for good"));
}

TEST_CASE("Laws of a run", "[serving]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Case one = random_case(seed);
    const prefix::PrefixTree tree(one.trace);
    EngineSettings plain = one.settings;
    plain.prefix_cache.reset();
    plain.memory.capacity = 1'000'000;
    const ServingResult wide = serve(one.trace, nullptr, {.engine = plain}, whole_price);
    for (const RequestOutcome& request : wide.requests) {
      // Without preemption every token is computed once, the last generated one excepted.
      REQUIRE(request.preemptions == 0);
      REQUIRE(request.computed_tokens ==
              request.prompt_tokens + std::max<std::uint64_t>(request.generated_tokens, 1) - 1);
    }
    // With memory to spare, which allocator gives it does not matter.
    for (const AllocatorKind kind :
         {AllocatorKind::static_max, AllocatorKind::page_groups, AllocatorKind::buddy}) {
      EngineSettings other = plain;
      other.allocator = kind;
      other.memory.max_tokens = 100;
      other.memory.page_group = 16;
      const ServingResult result = serve(one.trace, nullptr, {.engine = other}, whole_price);
      for (std::size_t i = 0; i < result.requests.size(); ++i)
        REQUIRE(result.requests[i].end == wide.requests[i].end);
    }
    const ServingResult tight = serve(one.trace, &tree, {.engine = one.settings}, whole_price);
    REQUIRE(tight.replicas.front().peak <= one.settings.memory.capacity);
    std::uint64_t computed = 0;
    for (const RequestOutcome& request : tight.requests) {
      computed += request.computed_tokens;
      REQUIRE(request.arrival <= request.started);
      REQUIRE(request.started < request.first_token);
      REQUIRE(request.first_token <= request.end);
      if (request.preemptions == 0)
        REQUIRE(request.computed_tokens + request.hit_tokens ==
                request.prompt_tokens + std::max<std::uint64_t>(request.generated_tokens, 1) - 1);
    }
    REQUIRE(computed == tight.replicas.front().prompt_tokens + tight.replicas.front().decoded_tokens);
    // With a cache on the host, too, every token is found or computed once.
    if (one.settings.prefix_cache) {
      EngineSettings kept = one.settings;
      kept.host_cache = {lru(), 1'000'000};
      const ServingResult hosted = serve(one.trace, &tree, {.engine = kept}, whole_price);
      for (const RequestOutcome& request : hosted.requests) {
        REQUIRE(request.host_tokens <= request.hit_tokens);
        if (request.preemptions == 0)
          REQUIRE(request.computed_tokens + request.hit_tokens ==
                  request.prompt_tokens + std::max<std::uint64_t>(request.generated_tokens, 1) - 1);
      }
    }
    // A prompt that nobody shares is served as without a prefix cache.
    EngineSettings shared = plain;
    shared.prefix_cache = lru();
    Case lonely = random_case(seed);
    for (std::size_t i = 0; i < lonely.trace.blocks.size(); ++i) lonely.trace.blocks[i] = i;
    const prefix::PrefixTree lonely_tree(lonely.trace);
    const ServingResult alone = serve(lonely.trace, &lonely_tree, {.engine = shared}, whole_price);
    for (std::size_t i = 0; i < alone.requests.size(); ++i)
      REQUIRE(alone.requests[i].end == wide.requests[i].end);
  }
}

TEST_CASE("Replicas: each routing by hand", "[serving]") {
  // Two prompts, each asked for three times, far enough apart that nothing waits.
  std::vector<Made> made;
  for (std::uint32_t i = 0; i < 6; ++i)
    made.push_back({100.0 * i, 9, 1, {1 + 10 * (i % 2), 2 + 10 * (i % 2), 100 + i}});
  const auto trace = made_trace(made, 4);
  const prefix::PrefixTree tree(trace);
  ServingSettings settings = settings_of(1000);
  settings.engine.prefix_cache = lru();
  settings.replicas = 2;
  const auto hits = [&](Routing routing) {
    settings.routing.routing = routing;
    const ServingResult result = serve(trace, &tree, settings, toy_price);
    return summary_of(result, {}, 1000);
  };
  // The idle first replica gets everything: each prompt is computed once, and found twice.
  CHECK(hits(Routing::least_loaded).hit_rate == Approx(4 * 8 / 54.0));
  CHECK(hits(Routing::longest_prefix).hit_rate == Approx(4 * 8 / 54.0));
  CHECK(hits(Routing::longest_prefix).elsewhere_tokens == 0);
  CHECK(hits(Routing::hashed).hit_rate == Approx(4 * 8 / 54.0));
  // What one replica had and another computed is what chance costs.
  const ServingSummary random = hits(Routing::random);
  CHECK(random.hit_rate * 54 + static_cast<double>(random.elsewhere_tokens) == Approx(4 * 8));

  SECTION("the same seed gives the same replicas, another one others") {
    const auto replicas = [&](std::uint64_t seed) {
      settings.routing = {.routing = Routing::random, .seed = seed};
      std::vector<std::uint32_t> out;
      for (const RequestOutcome& request : serve(trace, &tree, settings, toy_price).requests)
        out.push_back(request.replica);
      return out;
    };
    CHECK(replicas(1) == replicas(1));
    bool differs = false;
    for (std::uint64_t seed = 2; seed < 10; ++seed) differs = differs || replicas(seed) != replicas(1);
    CHECK(differs);
  }
}

TEST_CASE("Least loaded counts requests that have not ended", "[serving]") {
  const auto trace = made_trace({{0, 100, 50}, {0.1, 10, 1}, {20, 10, 1}});
  ServingSettings settings = settings_of(1000);
  settings.replicas = 2;
  const ServingResult result = serve(trace, nullptr, settings, toy_price);
  CHECK(result.requests[0].replica == 0);
  CHECK(result.requests[1].replica == 1);
  CHECK(result.requests[2].replica == 1);
  CHECK(result.requests[1].queueing() == 0);
}

TEST_CASE("Faster arrivals, the same delays behind parents", "[serving]") {
  auto trace = made_trace({{10, 10, 1}, {3, 10, 1, {}, 0}});
  ServingSettings settings = settings_of(1000);
  settings.rate = 2;
  const ServingResult result = serve(trace, nullptr, settings, toy_price);
  CHECK(result.requests[0].arrival == 5);
  CHECK(result.requests[1].arrival == Approx(result.requests[0].end + 3));
}

TEST_CASE("What the memory cannot hold is refused, skipped or cut: by hand", "[serving]") {
  // Blocks of 4 in a memory of 14: 12 tokens. The second request has 10 + 6 - 1, the third 20 of its prompt;
  // the fourth waits for the third.
  const auto trace = made_trace({{0, 8, 3}, {50, 10, 6}, {100, 20, 4, {1, 2, 3, 4, 5}}, {7, 4, 1, {}, 2}}, 4);
  ServingSettings settings = settings_of(14);
  CHECK_THROWS_WITH(serve(trace, nullptr, settings, toy_price),
                    Catch::Contains("request 1") && Catch::Contains("a request of 15 tokens") &&
                        Catch::Contains("holds 12"));
  settings.over_long = OverLong::skip;
  const ServingResult skipped = serve(trace, nullptr, settings, toy_price);
  CHECK(skipped.requests[1].skipped);
  CHECK(skipped.requests[2].skipped);
  CHECK(skipped.requests[3].arrival == 107);
  CHECK(summary_of(skipped, {}, 14).skipped == 2);
  CHECK(summary_of(skipped, {}, 14).requests == 2);
  settings.over_long = OverLong::cut;
  const ServingResult cut = serve(trace, nullptr, settings, toy_price);
  // 12 tokens: 10 of the prompt, and two of three generated ones are stored; 12 of the prompt, and one token.
  CHECK(cut.requests[1].prompt_tokens == 10);
  CHECK(cut.requests[1].generated_tokens == 3);
  CHECK(cut.requests[1].cut_tokens == 3);
  CHECK(cut.requests[1].computed_tokens == 12);
  CHECK(cut.requests[2].prompt_tokens == 12);
  CHECK(cut.requests[2].generated_tokens == 1);
  CHECK(cut.requests[2].cut_tokens == 11);
  CHECK(cut.requests[3].arrival == Approx(cut.requests[2].end + 7));
  CHECK(summary_of(cut, {}, 14).cut == 2);
  CHECK(summary_of(cut, {}, 14).requests == 4);
  // The first is served as alone.
  CHECK(cut.requests[0].end == skipped.requests[0].end);
  CHECK(cut.requests[0].cut_tokens == 0);
  // Blocks of what is left of a prompt are shared as ever.
  const prefix::PrefixTree tree(trace);
  settings.engine.prefix_cache = lru();
  CHECK(serve(trace, &tree, settings, toy_price).requests[2].prompt_tokens == 12);
  // Where nothing is left, skipping is no answer.
  settings = settings_of(14);
  settings.over_long = OverLong::skip;
  CHECK_THROWS_WITH(serve(made_trace({{0, 20, 1}}), nullptr, settings, toy_price),
                    Catch::Contains("holds 12"));
  CHECK(parse_over_long("cut") == OverLong::cut);
  CHECK_THROWS_WITH(parse_over_long("drop"), Catch::Contains("skip"));
}

TEST_CASE("What cannot be served is refused", "[serving]") {
  const auto trace = made_trace({{0, 10, 5}});
  ServingSettings settings = settings_of(1000);
  const auto refused = [&](const requests::RequestTrace& asked, const std::string& why) {
    CHECK_THROWS_WITH(serve(asked, nullptr, settings, toy_price), Catch::Contains(why));
  };
  SECTION("memory that is too small for one") {
    settings = settings_of(12);
    refused(trace, "a request of 14 tokens");
    CHECK_NOTHROW(serve(made_trace({{0, 10, 3}}), nullptr, settings, toy_price));
  }
  SECTION("no prompt") {
    refused(made_trace({{0, 0, 5}}), "without a prompt");
  }
  SECTION("a time that is none") {
    refused(made_trace({{NAN, 1, 5}}), "arrives at");
  }
  SECTION("a parent that comes later") {
    refused(made_trace({{0, 1, 1, {}, 1}, {0, 1, 1}}), "waits for one");
  }
  SECTION("a prefix cache without blocks") {
    settings.engine.prefix_cache = lru();
    refused(trace, "which prompts share");
  }
  SECTION("a swap without a link") {
    settings.engine.preemption = Preemption::swap;
    refused(trace, "no link");
  }
  SECTION("no replicas") {
    settings.replicas = 0;
    refused(trace, "replicas");
  }
  SECTION("longest prefix without any") {
    settings.routing.routing = Routing::longest_prefix;
    refused(trace, "keeps prefixes");
  }
  SECTION("names") {
    CHECK_THROWS_WITH(parse_allocator("page_group"), Catch::Contains("page_groups"));
    CHECK_THROWS_WITH(parse_routing("randm"), Catch::Contains("random"));
  }
}

}  // namespace
}  // namespace kvsim::serving::test_serving_run
