#include "tests/unit/policies/policy_feeder.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::test {
namespace {

constexpr int kHeadDim = 3, kValueDim = 2;

class RunPrompt final : public Prompt {
 public:
  explicit RunPrompt(const Run& run) : run_(run) {}
  std::size_t length() const override { return run_.prompt; }
  MatrixView keys(int lane) const override { return view(run_.keys, lane, run_.unit.head_dim); }
  MatrixView values(int lane) const override { return view(run_.values, lane, run_.unit.value_dim); }

 private:
  MatrixView view(const std::vector<std::vector<float>>& tensor, int lane, int dim) const {
    const auto width = static_cast<std::size_t>(dim);
    return {tensor[static_cast<std::size_t>(lane)].data(), run_.prompt, width, width};
  }
  const Run& run_;
};

void observe_prompt(Eviction& eviction, const Run& run, const Feeding& feeding) {
  const std::size_t wanted = std::min(eviction.prompt_rows(), run.prompt);
  if (wanted == 0 && !feeding.every_row) return;
  const std::size_t from = feeding.every_row ? 0 : run.prompt - wanted;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    for (std::size_t first = from; first < run.prompt; first += feeding.block_rows) {
      const std::size_t n = std::min(feeding.block_rows, run.prompt - first);
      const float* rows = run.rows[static_cast<std::size_t>(head)].data() + first * run.length();
      eviction.observe({.query_head = head,
                        .first_query = first,
                        .prompt_length = run.prompt,
                        .p = {rows, n, first + n, run.length()}});
    }
  }
}

/// Own keys or values of one position, all lanes.
std::vector<float> own_rows(const std::vector<std::vector<float>>& tensor, std::size_t position,
                            std::size_t dim) {
  std::vector<float> out;
  for (const std::vector<float>& lane : tensor)
    out.insert(out.end(), lane.begin() + static_cast<std::ptrdiff_t>(position * dim),
               lane.begin() + static_cast<std::ptrdiff_t>((position + 1) * dim));
  return out;
}

void show_step(Decoder& decoder, const Run& run, const std::vector<Position>& slots, std::size_t own_slot) {
  const auto query = static_cast<std::size_t>(slots[own_slot]);
  const auto n_heads = static_cast<std::size_t>(run.unit.n_query_heads());
  const auto n_lanes = static_cast<std::size_t>(run.unit.n_lanes);
  std::vector<float> attention;
  std::vector<double> mass(n_heads);
  for (std::size_t head = 0; head < n_heads; ++head) {
    for (const Position position : slots) {
      attention.push_back(run.p(static_cast<int>(head), query, static_cast<std::size_t>(position)));
      mass[head] += static_cast<double>(attention.back());
    }
  }
  const std::vector<float> keys = own_rows(run.keys, query, kHeadDim),
                           values = own_rows(run.values, query, kValueDim);
  decoder.observe({.position = static_cast<Position>(query),
                   .slots = slots,
                   .own_slot = own_slot,
                   .attention = {attention.data(), n_heads, slots.size(), slots.size()},
                   .mass = mass,
                   .keys = {keys.data(), n_lanes, kHeadDim, kHeadDim},
                   .values = {values.data(), n_lanes, kValueDim, kValueDim}});
}

std::vector<Position> sorted(std::vector<Position> positions) {
  std::sort(positions.begin(), positions.end());
  return positions;
}

std::vector<Position> compressed(const Eviction& eviction, const Run& run, std::size_t budget) {
  std::vector<Position> keep(std::min(budget, run.prompt), Position{-1});
  eviction.compress(budget, keep);
  REQUIRE(std::adjacent_find(keep.begin(), keep.end(), std::greater_equal<>()) == keep.end());
  REQUIRE((keep.empty() || (keep.front() >= 0 && keep.back() < static_cast<Position>(run.prompt))));
  return keep;
}

}  // namespace

Run blank_run(const Shape& shape) {
  Run run;
  run.unit = {.n_lanes = shape.n_lanes, .group = shape.group, .head_dim = kHeadDim, .value_dim = kValueDim};
  run.prompt = shape.prompt;
  run.decode = shape.decode;
  const std::size_t n = run.length();
  run.rows.assign(static_cast<std::size_t>(run.unit.n_query_heads()), std::vector<float>(n * n));
  run.keys.assign(static_cast<std::size_t>(shape.n_lanes), std::vector<float>(n * kHeadDim));
  run.values.assign(static_cast<std::size_t>(shape.n_lanes), std::vector<float>(n * kValueDim));
  return run;
}

Run random_run(const Shape& shape, std::uint64_t seed, int levels) {
  Run run = blank_run(shape);
  std::uint64_t draws = 0;
  const auto draw = [&] { return 1 + static_cast<int>(uniform01(combine({seed, draws++})) * levels); };
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    for (std::size_t i = 0; i < run.length(); ++i) {
      float sum = 0;
      for (std::size_t j = 0; j <= i; ++j) sum += run.p(head, i, j) = static_cast<float>(draw());
      for (std::size_t j = 0; j <= i; ++j) run.p(head, i, j) /= sum;
    }
  }
  for (auto* tensor : {&run.keys, &run.values})
    for (std::vector<float>& lane : *tensor)
      for (float& x : lane) x = static_cast<float>(draw()) / static_cast<float>(levels);
  return run;
}

Fed feed(const Composition& composition, const Run& run, std::size_t budget, const Feeding& feeding) {
  const PolicySpec& spec = *composition.eviction.spec;
  if (spec.unbounded) budget = run.length();
  const auto eviction = spec.make_eviction(composition.eviction.params, run.unit);
  observe_prompt(*eviction, run, feeding);
  eviction->finish_prompt(RunPrompt(run));

  Fed out;
  out.kept = compressed(*eviction, run, budget);
  std::vector<Position> slots = out.kept;
  const auto decoder = eviction->decoder(budget, slots);
  for (std::size_t query = run.prompt; query < run.length(); ++query) {
    const auto position = static_cast<Position>(query);
    std::size_t own_slot = slots.size();
    if (decoder && slots.size() == budget) {
      own_slot = decoder->evict({.position = position, .slots = slots});
      REQUIRE(own_slot < slots.size());
      slots[own_slot] = position;
    } else {
      slots.push_back(position);
    }
    if (decoder) {
      show_step(*decoder, run, slots, own_slot);
      REQUIRE(slots.size() <= budget);
    }
    out.held.push_back(sorted(slots));
  }
  return out;
}

Fed feed(const std::string& policy, const Run& run, std::size_t budget, const Feeding& feeding) {
  return feed(parse_composition(policy, builtin()), run, budget, feeding);
}

}  // namespace kvsim::policy::test
