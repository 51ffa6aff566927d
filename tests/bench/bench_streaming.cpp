// Policies that let the prompt pass through their cache: 4,096 decisions per lane, thousands of lanes.
//
// First the whole replay of a few lanes, on one thread and on two, and the extrapolated time of 1,024 lanes
// on two threads. Every registered eviction that can stream its prompt is run, then all of them in one
// replay, which computes the attention rows once. Then decisions alone: the same lane through the policy and
// through the simplest code (a struct per slot, victims by sorting or by scanning them), which must make the
// same decisions.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string>

#include "policies/builtin.hpp"
#include "policies/parts/index/fingerprints.hpp"
#include "sim/attention/attention_rows.hpp"
#include "sim/base/rng.hpp"
#include "sim/replay/replay.hpp"
#include "tests/bench/paired.hpp"
#include "traces/workloads/synthetic.hpp"

using namespace kvsim;

namespace {

using policy::Position;
constexpr std::size_t kTokens = 4096, kDecode = 64, kLanes = 1024;

trace::MemoryTrace make(std::uint32_t lanes, std::uint32_t group) {
  trace::SyntheticOptions options;
  options.layers = 1;
  options.kv_heads = lanes;
  options.group = group;
  options.head_dim = 128;
  options.decode = kDecode;
  options.prompt = kTokens - kDecode;
  return trace::synthetic_trace(options);
}

/// Returns every eviction that streams its prompt, by default or with prompt=stream.
std::vector<std::string> streaming_policies() {
  std::vector<std::string> out;
  for (const policy::PolicySpec& spec : policy::builtin().policies()) {
    if (spec.kind() != policy::Kind::eviction || !policy::complete(spec)) continue;
    std::string arguments;
    bool streams = false;
    for (const ParamSpec& param : spec.params) {
      const auto& choices = param.choices;
      if (param.name == "unit") arguments += ",unit=lane";
      if (param.name != "prompt" || std::find(choices.begin(), choices.end(), "stream") == choices.end())
        continue;
      arguments += ",prompt=stream";
      streams = true;
    }
    if (streams) out.push_back(spec.name + "(" + arguments.substr(1) + ")");
  }
  return out;
}

double replay_seconds(const trace::MemoryTrace& trace, const std::vector<std::string>& policies,
                      const std::string& budget, unsigned threads) {
  sim::Request request;
  request.threads = threads;
  for (const std::string& policy : policies)
    request.cells.push_back(
        {policy::parse_composition(policy, policy::builtin()), sim::parse_budget(budget)});
  Progress progress;
  return bench::seconds([&] { sim::replay(trace::Sequence(trace), request, progress); });
}

void whole_replays(int rounds) {
  const trace::MemoryTrace one = make(1, 4), two = make(2, 4);
  std::printf(
      "replay of %zu tokens, d = 128, group 4, budget 25 %%, seconds (least of %d rounds)\n%-44s %9s %9s "
      "%14s\n",
      kTokens, rounds, "", "1 lane", "2 lanes", "1,024 lanes,");
  std::printf("%-44s %9s %9s %14s\n", "", "1 thread", "2 threads", "2 threads");
  std::vector<std::string> all = streaming_policies();
  const auto line = [&](const std::string& name, const std::vector<std::string>& policies) {
    double single = 1e9, both = 1e9;
    for (int round = 0; round < rounds; ++round) {
      single = std::min(single, replay_seconds(one, policies, "25%", 1));
      both = std::min(both, replay_seconds(two, policies, "25%", 2));
    }
    std::printf("%-44s %9.3f %9.3f %12.1f min\n", name.c_str(), single, both, both * kLanes / 2 / 60);
    std::fflush(stdout);
  };
  line("window (nothing streamed)", {"window"});
  for (const std::string& policy : all) line(policy, {policy});
  line("all of them in one replay", all);
}

/// One lane with one query head and all data that a decision may use.
struct Lane {
  std::size_t dim = 128;
  std::vector<float> keys, queries, rows;

  Lane() {
    const trace::MemoryTrace trace = make(1, 1);
    keys.resize(kTokens * dim);
    queries.resize(kTokens * dim);
    trace.read(trace::Tensor::key, 0, 0, 0, kTokens, keys);
    trace.read(trace::Tensor::query, 0, 0, 0, kTokens, queries);
    rows.resize(kTokens * kTokens);
    sim::attention_rows({trace.header().model.attn_scale, -1}, matrix(queries), 0,
                        sim::KeyPanels(matrix(keys)), rows.data(), kTokens);
  }
  MatrixView matrix(const std::vector<float>& tensor) const { return {tensor.data(), kTokens, dim, dim}; }
  MatrixView token(const std::vector<float>& tensor, std::size_t i) const {
    return {tensor.data() + i * dim, 1, dim, dim};
  }
  const float* row(std::size_t query) const { return rows.data() + query * kTokens; }
};

using Held = std::set<Position>;

Held by_policy(const Lane& lane, const std::string& text, std::size_t budget) {
  const policy::Composition composition = policy::parse_composition(text, policy::builtin());
  const auto eviction = composition.eviction.make_eviction({.head_dim = static_cast<int>(lane.dim)});
  const policy::Start start = eviction->start(budget);
  const bool rows = composition.eviction.needs().decode_rows;
  std::vector<Position> slots;
  std::vector<std::size_t> victims;
  std::vector<float> seen;
  for (std::size_t query = 0; query < kTokens; ++query) {
    const auto position = static_cast<Position>(query);
    policy::Arrival arrival;
    arrival.position = position;
    arrival.slots = slots;
    arrival.full = slots.size() == budget;
    arrival.keys = lane.token(lane.keys, query);
    arrival.queries = lane.token(lane.queries, query);
    victims.clear();
    start.decoder->evict(arrival, victims);
    const std::size_t own = victims.empty() ? slots.size() : victims[0];
    if (victims.empty()) slots.push_back(position);
    slots[own] = position;
    double mass = 0;
    policy::Step step;
    step.position = position;
    step.slots = slots;
    step.own_slot = own;
    step.keys = arrival.keys;
    if (rows) {
      seen.resize(slots.size());
      for (std::size_t i = 0; i < slots.size(); ++i) mass += seen[i] = lane.row(query)[slots[i]];
      step.attention = {seen.data(), 1, slots.size(), slots.size()};
      step.mass = {&mass, 1};
    }
    start.decoder->observe(step);
  }
  return {slots.begin(), slots.end()};
}

struct PlainSlot {
  Position position = 0;
  double score = 0;
  std::array<std::uint8_t, 16> hash{};
};

/// Scores from attention, accumulated or from the last row only; sorts the slots for every decision.
Held by_sorting(const Lane& lane, bool accumulate, std::size_t recent, std::size_t budget) {
  std::vector<PlainSlot> slots;
  for (std::size_t query = 0; query < kTokens; ++query) {
    if (slots.size() == budget) {
      std::sort(slots.begin(), slots.end(), [](const PlainSlot& a, const PlainSlot& b) {
        return a.score != b.score ? a.score < b.score : a.position < b.position;
      });
      const auto victim = std::find_if(slots.begin(), slots.end(), [&](const PlainSlot& slot) {
        return static_cast<std::size_t>(slot.position) + recent <= query;
      });
      slots.erase(victim);
    }
    slots.push_back({static_cast<Position>(query)});
    for (PlainSlot& slot : slots) {
      const auto attention = static_cast<double>(lane.row(query)[slot.position]);
      slot.score = accumulate ? slot.score + attention : attention;
    }
  }
  Held held;
  for (const PlainSlot& slot : slots) held.insert(slot.position);
  return held;
}

/// HashEvict with one byte per bit.
Held by_scanning(const Lane& lane, std::size_t budget) {
  const policy::SimHash simhash(16, lane.dim, combine({0, key_of("hashevict"), 0, 0}));
  const auto hash = [&](const std::vector<float>& tensor, std::size_t i) {
    const std::uint64_t code = simhash(lane.token(tensor, i).row(0));
    std::array<std::uint8_t, 16> bits{};
    for (std::size_t b = 0; b < bits.size(); ++b) bits[b] = code >> b & 1;
    return bits;
  };
  std::vector<PlainSlot> slots;
  for (std::size_t query = 0; query < kTokens; ++query) {
    const PlainSlot own{static_cast<Position>(query), 0, hash(lane.keys, query)};
    if (slots.size() < budget) {
      slots.push_back(own);
      continue;
    }
    const std::array<std::uint8_t, 16> wanted = hash(lane.queries, query);
    std::size_t victim = 0;
    int most = -1;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      int distance = 0;
      for (std::size_t b = 0; b < wanted.size(); ++b) distance += slots[i].hash[b] != wanted[b] ? 1 : 0;
      const auto position = static_cast<std::size_t>(slots[i].position);
      if (position < 4 || position + 10 > query || distance <= most) continue;
      most = distance;
      victim = i;
    }
    slots[victim] = own;
  }
  Held held;
  for (const PlainSlot& slot : slots) held.insert(slot.position);
  return held;
}

void decisions_alone(int pairs) {
  const Lane lane;
  for (const std::size_t budget : {256U, 1024U, 2048U}) {
    const auto compare = [&](const std::string& policy, const char* plainly, const auto& plain) {
      Held ours, theirs;
      const bench::Paired p =
          bench::paired([&] { theirs = plain(); }, [&] { ours = by_policy(lane, policy, budget); }, pairs);
      if (ours != theirs) {
        std::printf("%s: not the same decisions\n", policy.c_str());
        std::exit(1);
      }
      bench::report((policy + ", " + std::to_string(budget) + " slots: " + plainly + " / policy").c_str(), p);
      std::printf("  %.2f us per token of a lane\n", p.baseline_s * 1e6 / kTokens);
    };
    compare("h2o(feedback=raw,prompt=stream)", "sorting",
            [&] { return by_sorting(lane, true, budget / 2, budget); });
    compare("tova(unit=lane,prompt=stream)", "sorting", [&] { return by_sorting(lane, false, 0, budget); });
    compare("hashevict", "a byte per bit", [&] { return by_scanning(lane, budget); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 5;
  whole_replays(std::max(1, pairs / 2));
  decisions_alone(pairs);
  return 0;
}
