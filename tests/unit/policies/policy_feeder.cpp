#include "tests/unit/policies/policy_feeder.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "policies/builtin.hpp"
#include "sim/base/rng.hpp"
#include "sim/feed/unit_driver.hpp"

namespace kvsim::policy::test {
namespace {

constexpr int kHeadDim = 3, kValueDim = 2;

/// What a layer with a window has left behind when the prompt ends.
std::size_t first_of(const Run& run) {
  return run.prompt - run.unit.reach(run.prompt);
}

class RunPrompt final : public Prompt {
 public:
  explicit RunPrompt(const Run& run) : run_(run) {}
  std::size_t length() const override { return run_.prompt - first(); }
  std::size_t first() const override { return first_of(run_); }
  MatrixView keys(int lane) const override { return view(run_.keys, lane, run_.unit.head_dim); }
  MatrixView values(int lane) const override { return view(run_.values, lane, run_.unit.value_dim); }
  MatrixView queries(int head) const override { return view(run_.queries, head, run_.unit.head_dim); }
  Rotary rotary() const override { return {.inv_freq = run_.inv_freq}; }
  double scale() const override { return kScale; }
  double cap() const override { return run_.cap; }
  float sink(int head) const override {
    return run_.sinks.empty() ? Prompt::sink(head) : run_.sinks[static_cast<std::size_t>(head)];
  }
  MatrixView output_weights(int head) const override {
    const auto dim = static_cast<std::size_t>(run_.unit.value_dim);
    return {run_.output_weights[static_cast<std::size_t>(head)].data(), dim, kHidden, kHidden};
  }
  std::span<const std::uint8_t> classes() const override {
    return std::span(run_.classes).subspan(first(), length());
  }
  std::span<const float> surprises() const override {
    return std::span(run_.surprises).subspan(first(), length());
  }

 private:
  MatrixView view(const std::vector<std::vector<float>>& tensor, int lane, int dim) const {
    const auto width = static_cast<std::size_t>(dim);
    return {tensor[static_cast<std::size_t>(lane)].data() + first() * width, length(), width, width};
  }
  const Run& run_;
};

class RunFuture final : public Future {
 public:
  RunFuture(const Run& run, std::size_t first_position)
      : run_(run), first_(first_position), mean_(steps() * run.length()) {
    for (int head = 0; head < run.unit.n_query_heads(); ++head)
      for (std::size_t s = 0; s < steps(); ++s)
        for (std::size_t j = 0; j < run.length(); ++j)
          mean_[s * run.length() + j] +=
              run.p(head, first_ + s, j) / static_cast<float>(run.unit.n_query_heads());
  }
  std::size_t prompt() const override { return run_.prompt - first(); }
  std::size_t first() const override { return first_of(run_); }
  std::size_t first_position() const override { return first_ - first(); }
  std::size_t steps() const override { return run_.length() - first_; }
  MatrixView attention() const override {
    return {mean_.data() + first(), steps(), run_.length() - first(), run_.length()};
  }
  MatrixView queries(int head) const override {
    const std::vector<float>& all = run_.queries[static_cast<std::size_t>(head)];
    return {all.data() + first_ * kHeadDim, steps(), kHeadDim, kHeadDim};
  }
  MatrixView keys(int lane) const override {
    return {run_.keys[static_cast<std::size_t>(lane)].data() + first() * kHeadDim, run_.length() - first(),
            kHeadDim, kHeadDim};
  }
  double scale() const override { return kScale; }

 private:
  const Run& run_;
  std::size_t first_;
  std::vector<float> mean_;
};

void observe_columns(PromptObserver& observer, const Run& run) {
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    std::vector<double> sum(run.prompt), sum_squares(run.prompt);
    for (std::size_t i = 0; i < run.prompt; ++i)
      for (std::size_t j = 0; j < run.prompt; ++j) {
        const auto p = static_cast<double>(run.p(head, i, j));
        sum[j] += p;
        sum_squares[j] += p * p;
      }
    observer.observe_columns({.query_head = head,
                              .sum = std::span(sum).subspan(first_of(run)),
                              .sum_squares = std::span(sum_squares).subspan(first_of(run))});
  }
}

void observe_prompt(PromptObserver& observer, const Run& run, const Feeding& feeding) {
  if (feeding.columns) observe_columns(observer, run);
  const std::size_t held = first_of(run), length = run.prompt - held;
  const std::size_t wanted =
      std::min(feeding.columns ? observer.rows_beside_columns() : observer.prompt_rows(), length);
  if (wanted == 0 && !feeding.every_row) return;
  const std::size_t from = feeding.every_row ? held : run.prompt - wanted;
  for (int head = 0; head < run.unit.n_query_heads(); ++head) {
    for (std::size_t first = from; first < run.prompt; first += feeding.block_rows) {
      const std::size_t n = std::min(feeding.block_rows, run.prompt - first);
      const float* rows = run.rows[static_cast<std::size_t>(head)].data() + first * run.length() + held;
      observer.observe({.query_head = head,
                        .first_query = first - held,
                        .prompt_length = length,
                        .p = {rows, n, first + n - held, run.length()},
                        .first = held});
    }
  }
}

/// The rows of one position in every lane or query head.
class OwnRows {
 public:
  OwnRows(const std::vector<std::vector<float>>& tensor, std::size_t position, std::size_t dim) : dim_(dim) {
    for (const std::vector<float>& lane : tensor)
      rows_.insert(rows_.end(), lane.begin() + static_cast<std::ptrdiff_t>(position * dim),
                   lane.begin() + static_cast<std::ptrdiff_t>((position + 1) * dim));
  }
  MatrixView view() const { return {rows_.data(), rows_.size() / dim_, dim_, dim_}; }

 private:
  std::size_t dim_;
  std::vector<float> rows_;
};

std::vector<Position> sorted(std::span<const Position> slots) {
  std::vector<Position> positions(slots.begin(), slots.end());
  std::sort(positions.begin(), positions.end());
  return positions;
}

std::unique_ptr<Eviction> make(const Part& part, const Run& run, const Feeding& feeding) {
  if (!part.spec->is_oracle()) return part.make_eviction(run.unit);
  auto oracle = part.make_oracle(run.unit);
  const RunFuture future(run, feeding.last_row_again ? run.prompt - 1 : run.prompt);
  oracle->set_future(future);
  return oracle;
}

using Driver = sim::UnitDriver<sim::IndexStore>;

/// Lets the token at `position` arrive and attend. Returns the attended positions.
std::vector<Position> arrive(Driver& driver, const Run& run, std::size_t position) {
  Driver::Cache& cache = driver.caches().front();
  const OwnRows keys(run.keys, position, kHeadDim), values(run.values, position, kValueDim),
      queries(run.queries, position, kHeadDim);
  const sim::Token token{
      static_cast<Position>(position), keys.view(), values.view(), queries.view(), run.classes[position],
      run.surprises[position]};
  driver.admit(cache, token, 0);
  if (cache.decoder) {
    const OwnRows rows(run.rows, position, run.length());
    sim::SlotGather gather;
    driver.attended(cache, token, gather(rows.view(), cache.residents.slots(), false));
    REQUIRE(cache.residents.slots().size() <= cache.capacity);
    const std::span<const double> scores = cache.decoder->scores();
    REQUIRE((scores.empty() || scores.size() == cache.residents.slots().size()));
  }
  return sorted(cache.attended);
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
  run.queries.assign(static_cast<std::size_t>(run.unit.n_query_heads()), std::vector<float>(n * kHeadDim));
  run.output_weights.assign(static_cast<std::size_t>(run.unit.n_query_heads()),
                            std::vector<float>(kValueDim * kHidden));
  run.classes.assign(n, 0);
  run.surprises.assign(n, 0);
  run.inv_freq = {0.02F};
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
  for (auto* tensor : {&run.keys, &run.values, &run.queries, &run.output_weights})
    for (std::vector<float>& lane : *tensor)
      for (float& x : lane) x = static_cast<float>(draw()) / static_cast<float>(levels);
  for (std::uint8_t& token_class : run.classes) {
    const double u = uniform01(combine({seed, draws++}));
    token_class = u < 0.1 ? kSpecialToken : u < 0.3 ? kPunctuation : 0;
  }
  for (float& surprise : run.surprises) surprise = static_cast<float>(draw()) / static_cast<float>(levels);
  return run;
}

void feed_prompt(PromptObserver& observer, const Run& run) {
  observe_prompt(observer, run, {});
  observer.finish_prompt(RunPrompt(run));
}

Fed feed(const Composition& composition, const Run& run, std::size_t budget, const Feeding& feeding) {
  const Part& part = composition.eviction;
  if (part.spec->own_budget()) budget = run.length();
  Driver driver(part, make(part, run, feeding), run.unit, run.prompt, run.length());
  const bool streams = driver.eviction().streams_prompt();
  if (!streams) {
    observe_prompt(driver.eviction(), run, feeding);
    driver.eviction().finish_prompt(RunPrompt(run));
    REQUIRE(driver.eviction().scores().size() == (part.spec->scored() ? run.prompt - first_of(run) : 0));
  }
  const Driver::Cache& cache = driver.start(0, budget, run.length(), false);
  for (std::size_t position = 0; streams && position < run.prompt; ++position) arrive(driver, run, position);
  if (feeding.again) {
    const OwnRows keys(feeding.again->keys, run.prompt - 1, kHeadDim),
        values(feeding.again->values, run.prompt - 1, kValueDim),
        queries(run.queries, run.prompt - 1, kHeadDim);
    driver.ask_again(driver.caches().front(),
                     {static_cast<Position>(run.prompt - 1), keys.view(), values.view(), queries.view(), 0});
  }
  Fed out;
  out.kept = sorted(cache.residents.slots());
  for (std::size_t position = run.prompt; position < run.length(); ++position)
    out.held.push_back(arrive(driver, run, position));
  return out;
}

Fed feed(const std::string& policy, const Run& run, std::size_t budget, const Feeding& feeding) {
  return feed(parse_composition(policy, builtin()), run, budget, feeding);
}

}  // namespace kvsim::policy::test
