// Every value that a parameter of a registered policy may take, other than its default, changes something.
#include <catch2/catch.hpp>
#include <cmath>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "tests/unit/policies/allocation_feeder.hpp"
#include "tests/unit/policies/representation_feeder.hpp"
#include "tests/unit/policies/selection_feeder.hpp"

namespace kvsim::policy::test::test_parameters_matter {

namespace {

std::vector<std::string> other_values(Kind kind, const ParamSpec& param) {
  switch (param.type) {
    case ParamType::count:
      // Groups of a code must divide what they are of.
      if (const int fallback = kind == Kind::representation ? std::stoi(param.fallback) : 0; fallback > 1)
        return 2 * fallback <= param.max
                   ? std::vector{std::to_string(fallback / 2), std::to_string(2 * fallback)}
                   : std::vector{std::to_string(fallback / 2)};
      return {"3", "7"};
    case ParamType::real:
      return {std::to_string(param.min + 0.4), std::to_string(param.min + 0.75)};
    case ParamType::flag:
      return {param.fallback == "true" ? "false" : "true"};
    case ParamType::pool:
      return {"none", "avg:7", "avg:7:nopad", "max:3"};
    case ParamType::policy:
      return {"tova", "l2_norm"};
    case ParamType::share:
      return {"0.3", "0.7"};
    case ParamType::amount:
      return {"40", "70%"};
    default:
      break;  // choices, and texts that name files
  }
  std::vector<std::string> out;
  for (const std::string& choice : param.choices)
    if (choice != param.fallback) out.push_back(choice);
  return out;
}

bool is_default(const ParamSpec& param, const std::string& value) {
  if (param.type == ParamType::real) return std::stod(value) == std::stod(param.fallback);
  return value == param.fallback;
}

/// The same rows shifted towards later keys, so that generated tokens get more attention than the prompt's.
Run drifting(Run run) {
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    for (std::size_t i = 0; i < run.length(); ++i) {
      float sum = 0;
      for (std::size_t j = 0; j <= i; ++j) sum += run.p(head, i, j) *= static_cast<float>((j + 1) * (j + 1));
      for (std::size_t j = 0; j <= i; ++j) run.p(head, i, j) /= sum;
    }
  }
  return run;
}

bool evicts_differently(const std::string& a_text, const std::string& b_text) {
  const Composition a = parse_composition(a_text, builtin()), b = parse_composition(b_text, builtin());
  if (a.layer_unit() != b.layer_unit()) return true;
  const std::size_t floor = std::max(a.floor(), b.floor());
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Shape shape{.prompt = seed % 2 == 0 ? floor + std::max<std::size_t>(floor, 59) : 6U,
                      .decode = 40,
                      .n_lanes = a.layer_unit() ? 4 : 1,
                      .group = 2};
    const auto differ = [&](const Run& run) {
      for (const std::size_t budget : {floor + 5 + seed, floor + 25 + seed})
        if (feed(a, run, budget).held != feed(b, run, budget).held) return true;
      return false;
    };
    // Blank runs, where all scores are equal, show how ties are broken.
    if (differ(blank_run(shape))) return true;
    const Run run = random_run(shape, seed);
    if (differ(run) || differ(drifting(run))) return true;
  }
  return false;
}

/// Returns the budgets of an allocation, or nothing if it refuses.
Tokens given(const std::string& allocation, const Layers& layers, std::size_t budget) {
  const Composition composition = parse_composition("snapkv(window=5)+" + allocation, builtin());
  try {
    return allocate(composition, measured_request(composition, layers, budget));
  } catch (const Error& error) {
    REQUIRE(error.kind() == ErrorKind::usage);
    return {};
  }
}

/// One prompt is long enough for rules that need long prompts.
const std::vector<Layers>& studies() {
  static const std::vector<Layers> all = {random_layers(5, {.prompt = 100, .decode = 0, .n_lanes = 3}, 0),
                                          random_layers(5, {.prompt = 100, .decode = 0, .n_lanes = 2}, 1),
                                          random_layers(5, {.prompt = 400, .decode = 0, .n_lanes = 2}, 2)};
  return all;
}

bool allocates_differently(const std::string& a, const std::string& b) {
  for (const Layers& layers : studies())
    for (const double share : {0.2, 0.63, 0.9}) {
      const auto budget = static_cast<std::size_t>(share * static_cast<double>(layers[0].prompt));
      if (given(a, layers, budget) != given(b, layers, budget)) return true;
    }
  return false;
}

/// Where not every token of the prompt is kept, each later one evicts another.
bool stores_differently(const std::string& a_text, const std::string& b_text, CacheShape shape) {
  shape.representation = a_text;
  if (shape.prompt == 0) shape.prompt = 150;
  shape.dim = 128;
  shape.length = shape.prompt + 250;
  for (int pair = 0; pair < 64; ++pair)
    shape.inv_freq.push_back(std::pow(10000.0F, -static_cast<float>(pair) / 64));
  RepresentedCache a(shape);
  shape.representation = b_text;
  RepresentedCache b(shape);
  if (a.sent_bits() != b.sent_bits()) return true;
  for (std::size_t step = 0; step < 220; ++step) {
    if (a.ledger() != b.ledger()) return true;
    for (std::size_t slot = 0; slot < a.rows().slots(); ++slot)
      if (!std::ranges::equal(a.rows().keys(0).row(slot), b.rows().keys(0).row(slot)) ||
          !std::ranges::equal(a.rows().values(0).row(slot), b.rows().values(0).row(slot)) ||
          a.rows().biases(0)[slot] != b.rows().biases(0)[slot])
        return true;
    const std::vector<std::size_t> victims =
        shape.every > 1 ? std::vector{step % a.rows().slots()} : std::vector<std::size_t>{};
    a.append(victims);
    b.append(victims);
  }
  return false;
}

/// Half of the tokens that join take the place of others.
bool reads_differently(const std::string& a_text, const std::string& b_text, SelectedShape shape) {
  shape.selection = a_text;
  if (shape.prompt == 0) shape.prompt = 150;
  shape.dim = 32;
  shape.length = shape.prompt + 80;
  for (int pair = 0; pair < 16; ++pair)
    shape.inv_freq.push_back(std::pow(10000.0F, -static_cast<float>(pair) / 16));
  SelectedCache a(shape);
  shape.selection = b_text;
  SelectedCache b(shape);
  if (a.leader() != b.leader()) return true;
  for (std::size_t step = 0; step < 60; ++step) {
    if (a.index_bits() != b.index_bits()) return true;
    const std::vector<std::size_t> victims =
        shape.every > 1 && step % 2 == 0 ? std::vector{step % a.slots().size()} : std::vector<std::size_t>{};
    a.append(victims);
    b.append(victims);
    if (a.index_bits_read() != b.index_bits_read()) return true;
    for (std::size_t head = 0; head < shape.n_lanes * shape.group; ++head)
      if (a.read(head) != b.read(head)) return true;
  }
  return false;
}

bool decides_differently(const PolicySpec& spec, const std::string& others, const std::string& changed) {
  const std::string a = spec.name + "(" + others + ")",
                    b = spec.name + "(" + others + (others.empty() ? "" : ",") + changed + ")";
  switch (spec.kind()) {
    case Kind::eviction:
      return evicts_differently(a, b);
    case Kind::allocation:
      return allocates_differently(a, b);
    case Kind::representation:
      // The last are for rules of several KV heads, of long prompts, and of deep layers.
      return stores_differently(a, b, {}) || stores_differently(a, b, {.every = 3}) ||
             stores_differently(a, b, {.n_lanes = 8}) ||
             stores_differently(a, b, {.prompt = 500, .n_lanes = 2}) ||
             stores_differently(a, b, {.layer = 3, .n_layers = 4});
    case Kind::selection:
      // The last are for rules of layers that lead others, of the first layers and of long prompts.
      return reads_differently(a, b, {.n_lanes = 2, .group = 2}) || reads_differently(a, b, {.every = 3}) ||
             reads_differently(a, b, {.layer = 2, .n_layers = 32}) ||
             reads_differently(a, b, {.layer = 13, .n_layers = 32}) ||
             reads_differently(a, b, {.prompt = 1500, .n_lanes = 2, .layer = 0});
    case Kind::replacement:
      break;
  }
  return false;
}

/// The other parameters are at their defaults, or one of them is changed, because some parameters matter only
/// together.
bool matters(const PolicySpec& spec, const ParamSpec& param, const std::string& changed) {
  const auto decides = [&](const std::string& others) {
    try {
      return decides_differently(spec, others, changed);
    } catch (const Error&) {  // not every combination is legal
      return false;
    }
  };
  if (decides("")) return true;
  for (const ParamSpec& other : spec.params) {
    if (other.name == param.name) continue;
    for (const std::string& value : other_values(spec.kind(), other))
      if (decides(other.name + "=" + value)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("every parameter of a registered policy has an effect") {
  for (const PolicySpec& spec : builtin().policies()) {
    // Those of replacements are looked at where there are requests (unit/prefix).
    if (spec.kind() == Kind::replacement) continue;
    if (!complete(spec)) continue;  // needs a file; its own test has one
    if (spec.name == "lazy_layers")
      continue;  // of 1,024 tokens and rows with a peak; its own test changes each
    for (const ParamSpec& param : spec.params) {
      if (param.name == "own_traces") continue;  // matters where a file is read
      if (param.name == "representatives")
        continue;  // matters where blocks compete behind a short window; its own test changes it
      if (param.name == "fading")
        continue;  // matters beside carry with a smaller interval; its own test changes it
      for (const std::string& value : other_values(spec.kind(), param)) {
        if (is_default(param, value)) continue;
        const std::string changed = param.name + "=" + value;
        CAPTURE(spec.name, changed);
        CHECK(matters(spec, param, changed));
      }
    }
  }
}

}  // namespace kvsim::policy::test::test_parameters_matter
