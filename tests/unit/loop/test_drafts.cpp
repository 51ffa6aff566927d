// A cell drafts and the full cache verifies: what comes out is the full cache's, whatever drafts.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "sim/base/rng.hpp"
#include "sim/loop/speculation.hpp"
#include "tests/unit/loop/loop_place.hpp"
#include "traces/model/cpu/step_batch.hpp"
#include "traces/model/sampling.hpp"

namespace kvsim::sim::test_drafts {
namespace {

using Distribution = std::vector<double>;

/// Pearson's statistic of two samples of the same size.
double chi_square(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] + b[i] > 0) sum += (a[i] - b[i]) * (a[i] - b[i]) / (a[i] + b[i]);
  return sum;
}

LoopRequest drafting(const std::vector<std::string>& policies, const std::vector<std::string>& budgets,
                     std::uint64_t gamma, double temperature = 0) {
  LoopRequest request = Place::request(policies, budgets);
  request.modes = {LoopMode::draft};
  request.max_new_tokens = 12;
  request.gamma = gamma;
  request.temperature = temperature;
  return request;
}

LoopRequest greedily(LoopRequest request) {
  request.modes = {LoopMode::greedy};
  return request;
}

const std::vector<std::string> kDrafts = {
    "full",
    "streaming_llm",
    "snapkv(window=4)",
    "h2o",
    "tova",
    "random",
    "full+kivi(bits=2,group=2,residual=4)",
    "h2o+kivi(bits=2,group=2,residual=4)",
    "full+scalar(bits=4)",
    "full+quest(page=4,read=8)",
    "full+top_tokens(read=4)",
    "d2o",
};

/// What a cache of `sinks` first tokens and the latest ones drafts behind the first `known` tokens of a text,
/// and by how much each token leads: rows of a whole run of the text, sums in double, no cache at all.
struct SlowDraft {
  std::vector<std::int32_t> tokens{};
  std::vector<double> margins{};

  SlowDraft(const Place& text, std::size_t known, std::size_t gamma, std::size_t sinks, std::size_t budget) {
    const model::ModelConfig& config = text.golden.config;
    Workers workers(1);
    model::cpu::StepBatch batch(config, text.golden.weights, Elem::f32, known + gamma, workers);
    const std::size_t dim = config.head_dim, group = config.n_heads / config.n_kv_heads;
    std::map<std::array<std::size_t, 3>, std::vector<float>> rows;  // by layer, head and position: key, value
    for (std::uint32_t layer = 0; layer < config.n_layers; ++layer)
      for (std::uint32_t head = 0; head < config.n_kv_heads; ++head)
        for (std::size_t position = 0; position + 1 < known; ++position) {
          std::vector<float>& row = rows[{layer, head, position}];
          row.resize(2 * dim);
          text.trace.read(trace::Tensor::key, layer, head, position, 1, std::span(row).first(dim));
          text.trace.read(trace::Tensor::value, layer, head, position, 1, std::span(row).last(dim));
        }
    std::int32_t fed = text.prompt.ids[known - 1];
    for (std::size_t position = known - 1; tokens.size() < gamma; ++position) {
      const std::vector<model::cpu::StepBatch::Row> step = {{fed, position}};
      batch.forward(
          step, [&](std::uint32_t layer, const model::cpu::StepTensors& tensors, std::span<float> attended) {
            for (std::size_t head = 0; head < config.n_heads; ++head) {
              const std::size_t lane = head / group;
              std::vector<float>& own = rows[{layer, lane, position}];
              own.assign(tensors.keys(0, lane, 1).row(0).begin(), tensors.keys(0, lane, 1).row(0).end());
              const std::span<const float> value = tensors.values(0, lane, 1).row(0);
              own.insert(own.end(), value.begin(), value.end());
              double total = 0;
              std::vector<double> sum(dim);
              for (std::size_t at = 0; at <= position; ++at) {
                if (at >= sinks && at + (budget - sinks) <= position) continue;
                const std::vector<float>& row = rows.at({layer, lane, at});
                double dot = 0;
                for (std::size_t c = 0; c < dim; ++c)
                  dot += double{tensors.queries(0, head, 1)(0, c)} * row[c];
                const double weight = std::exp(dot / std::sqrt(static_cast<double>(dim)));
                total += weight;
                for (std::size_t c = 0; c < dim; ++c) sum[c] += weight * row[dim + c];
              }
              for (std::size_t c = 0; c < dim; ++c)
                attended[head * dim + c] = static_cast<float>(sum[c] / total);
            }
          });
      const std::vector<float> logits = batch.logits(std::vector<std::size_t>{0});
      tokens.push_back(fed = model::choose_token(logits, {}, 0));
      margins.push_back(margin(logits));
    }
  }
};

}  // namespace

TEST_CASE("drafts are those of a slow run that attends sinks and the latest tokens of the full cache") {
  const std::string variant = "llama_untied_f32";
  constexpr std::size_t kSinks = 4, kBudget = 7, kGamma = 3;
  Place place(variant, 30);
  const StreamOutcome outcome =
      place.run(drafting({"streaming_llm"}, {std::to_string(kBudget)}, kGamma), {}).cells[0].modes[0];
  Place whole(variant, place.prompt.ids.size());
  whole.prompt.ids.insert(whole.prompt.ids.end(), outcome.tokens.begin(), outcome.tokens.end());
  whole.trace = whole.read();
  std::size_t known = place.prompt.ids.size() + 1, compared = 0, rejected = 0;
  for (const DraftRound& round : outcome.rounds) {
    const SlowDraft slow(whole, known, kGamma, kSinks, kBudget);
    for (std::size_t i = 0; i < round.tested.size() && slow.margins[i] > 1e-4; ++i, ++compared) {
      CAPTURE(known, i);
      CHECK(round.tested[i].token == slow.tokens[i]);
      const std::size_t at = known + i;
      if (at < whole.prompt.ids.size())
        CHECK(round.tested[i].accepted == (slow.tokens[i] == whole.prompt.ids[at]));
      rejected += round.tested[i].accepted ? 0 : 1;
    }
    known += round.tokens;
  }
  CHECK(compared > 6);
  CHECK(rejected > 0);
}

TEST_CASE("verification worked by hand") {
  // q draws token 0 always, p wants it with .6: drawn numbers below .6 accept it.
  const std::vector<Distribution> p = {{0.6, 0.4}, {0.1, 0.9}}, q = {{1, 0}};
  const std::vector<std::int32_t> token = {0};
  std::vector<double> draws;
  const auto next = [&] {
    const double draw = draws.front();
    draws.erase(draws.begin());
    return draw;
  };
  draws = {0.59, 0.05};
  Verdict verdict = verify_drafted(token, p, q, next);
  CHECK(verdict.accepted == 1);
  CHECK(verdict.next == 0);  // of the second p
  draws = {0.61, 0.99};
  verdict = verify_drafted(token, p, q, next);
  CHECK(verdict.accepted == 0);
  CHECK(verdict.next == 1);  // max(p - q, 0) has nothing else
  CHECK(overlap(p[0], q[0]) == 0.6);

  CHECK(probabilities(std::vector<float>{1, 3, 3}, 0) == Distribution{0, 1, 0});
  const Distribution half = probabilities(std::vector<float>{0, std::log(4.0F)}, 2);
  CHECK(half[0] == Approx(1.0 / 3));  // e^0 to e^(log 4 / 2)
  CHECK(drawn(Distribution{0, 2, 2}, 0.49) == 1);
  CHECK(drawn(Distribution{0, 2, 2}, 0.5) == 2);
  CHECK(drawn(Distribution{0.1, 0.7, 0}, std::nextafter(1.0, 0.0)) == 1);
}

TEST_CASE("sampled tokens are the full cache's in distribution, which drawing from p at a rejection is not") {
  // Three tokens; what p and q say depends on the token before. Tokens 2 and 3 after a given first one.
  const std::vector<Distribution> p = {{0.6, 0.3, 0.1}, {0.2, 0.2, 0.6}, {0.5, 0.5, 0}},
                                  q = {{0.9, 0.05, 0.05}, {0.3, 0.4, 0.3}, {0.1, 0.8, 0.1}};
  constexpr int kRuns = 20000;
  std::uint64_t draws = 0;
  const auto draw = [&] { return uniform01(combine({7, draws++})); };
  std::vector<double> expected(9), seen(9), released(9);
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b < 3; ++b) expected[3 * a + b] = kRuns * p[0][a] * p[a][b];
  for (const bool exact : {true, false})
    for (int run = 0; run < kRuns; ++run) {
      std::vector<std::int32_t> text = {0};
      while (text.size() < 3) {
        std::vector<std::int32_t> drafted;
        std::vector<Distribution> of_p, of_q;
        for (std::size_t place = 0; place <= 2; ++place) {
          const auto before = static_cast<std::size_t>(place == 0 ? text.back() : drafted.back());
          of_p.push_back(p[before]);
          if (place == 2) break;
          of_q.push_back(q[before]);
          drafted.push_back(drawn(q[before], draw()));
        }
        Verdict verdict = verify_drafted(drafted, of_p, of_q, draw);
        // What a released sampler does (TriForce, utils/decoding.py, inner loop).
        if (!exact && verdict.accepted < 2) verdict.next = drawn(of_p[verdict.accepted], draw());
        text.insert(text.end(), drafted.begin(),
                    drafted.begin() + static_cast<std::ptrdiff_t>(verdict.accepted));
        text.push_back(verdict.next);
      }
      (exact ? seen : released)[static_cast<std::size_t>(3 * text[1] + text[2])] += 1;
    }
  const auto distance = [&](const std::vector<double>& counts) {
    double sum = 0;
    for (std::size_t i = 0; i < 9; ++i)
      if (expected[i] > 0) sum += (counts[i] - expected[i]) * (counts[i] - expected[i]) / expected[i];
    return sum;
  };
  // Of 8 cells that can occur: 7 degrees of freedom, exceeded by chance once in 10^5.
  CHECK(seen[6 + 2] == 0);
  CHECK(distance(seen) < 34.9);
  CHECK(distance(released) > 34.9);
}

TEST_CASE("greedy tokens are the full cache's, whatever drafts and however many tokens") {
  for (const std::string& variant : model::golden_variants()) {
    Place place(variant);
    for (const trace::Cut& cut : {trace::Cut{}, trace::Cut{trace::Cut::At::position, 9}})
      for (const std::uint64_t gamma : {0, 1, 3}) {
        const LoopRequest request = drafting(kDrafts, {"12"}, gamma);
        const std::vector<std::int32_t> full = place.run(greedily(request), cut).references[0].tokens;
        const LoopOutcome outcome = place.run(request, cut);
        for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
          const LoopCell& cell = outcome.cells[i];
          CAPTURE(variant, gamma, kDrafts[i], cell.skipped);
          if (!cell.skipped.empty()) continue;
          CHECK(cell.modes[0].tokens == full);
          CHECK(outcome.references[cell.first_reference].tokens == full);
          for (const DraftRound& round : cell.modes[0].rounds) {
            CHECK(round.tested.size() <= gamma);
            // The full cache, and any whose numbers are the same, is never wrong.
            if (i == 0) CHECK(round.tokens == gamma + 1);
            if (i == 0)
              for (const DraftedToken& token : round.tested) CHECK(token.overlap == Approx(1).margin(1e-12));
          }
        }
        CHECK(outcome.cells[0].skipped.empty());
      }
  }
}

TEST_CASE("a rejected draft leaves no trace: each round drafts what a fresh run of the same text drafts") {
  Place place("qwen2_mixed_windows", 20);
  const LoopRequest request = drafting(kDrafts, {"9"}, 3);
  const LoopOutcome outcome = place.run(request, {});
  std::size_t rejected = 0;
  for (std::size_t i = 0; i < kDrafts.size(); ++i) {
    const LoopCell& cell = outcome.cells[i];
    CAPTURE(kDrafts[i], cell.skipped);
    if (!cell.skipped.empty()) continue;
    // With one token less to draft the first ones are the same: fewer drafted rows have been taken back.
    LoopRequest fewer = drafting({kDrafts[i]}, {"9"}, 1);
    const std::vector<DraftRound> ones = place.run(fewer, {}).cells[0].modes[0].rounds;
    std::map<std::size_t, DraftedToken> first_at;  // by tokens of the answer before
    std::size_t answered = 1;
    for (const DraftRound& round : ones) {
      first_at[answered] = round.tested.front();
      answered += round.tokens;
    }
    answered = 1;
    for (const DraftRound& round : cell.modes[0].rounds) {
      if (const auto same = first_at.find(answered); same != first_at.end()) {
        CHECK(same->second.token == round.tested.front().token);
        CHECK(same->second.overlap == round.tested.front().overlap);
      }
      answered += round.tokens;
      rejected += round.tokens <= 3 ? 1 : 0;
    }
  }
  CHECK(rejected > 0);
}

TEST_CASE(
    "sampled answers do not depend on what drafts, in distribution; overlap says how often it is accepted") {
  Place place("llama_tied", 16);
  constexpr int kSeeds = 400;
  std::vector<double> drafted(8), alone(8);
  double tested = 0, accepted = 0, overlaps = 0, variance = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    LoopRequest request = drafting({"random"}, {"5"}, 2, 1.0);
    request.max_new_tokens = 4;
    request.seed = static_cast<std::uint64_t>(seed);
    const LoopOutcome outcome = place.run(request, {});
    const StreamOutcome& stream = outcome.cells[0].modes[0];
    for (std::size_t k = 1; k < stream.tokens.size(); ++k)
      drafted[static_cast<std::size_t>(stream.tokens[k]) % 8] += 1;
    for (const DraftRound& round : stream.rounds)
      for (const DraftedToken& token : round.tested) {
        ++tested;
        accepted += token.accepted ? 1 : 0;
        overlaps += token.overlap;
        variance += token.overlap * (1 - token.overlap);
      }
    request.gamma = 0;
    request.seed = static_cast<std::uint64_t>(seed + kSeeds);
    const std::vector<std::int32_t> of_full = place.run(request, {}).cells[0].modes[0].tokens;
    for (std::size_t k = 1; k < of_full.size(); ++k) alone[static_cast<std::size_t>(of_full[k]) % 8] += 1;
  }
  CHECK(chi_square(drafted, alone) < 34.9);  // 7 degrees of freedom, by chance once in 10^5
  // Each test is passed with the probability that it says: within five standard deviations.
  CHECK(std::abs(accepted - overlaps) < 5 * std::sqrt(variance));
  CHECK(overlaps < 0.999 * tested);
}

TEST_CASE("drafts depend neither on the other cells nor on threads") {
  Place place("qwen2_mixed_windows");
  LoopRequest request = drafting(kDrafts, {"8"}, 3, 0.7);
  const LoopOutcome together = place.run(request, {});
  request.threads = 8;
  const LoopOutcome threads = place.run(request, {});
  for (std::size_t i = 0; i < kDrafts.size(); ++i) {
    const LoopOutcome alone = place.run(drafting({kDrafts[i]}, {"8"}, 3, 0.7), {});
    CAPTURE(kDrafts[i]);
    REQUIRE(together.cells[i].skipped == alone.cells[0].skipped);
    if (!alone.cells[0].skipped.empty()) continue;
    for (const LoopOutcome* other : {&alone, &threads}) {
      const StreamOutcome& a = together.cells[i].modes[0];
      const StreamOutcome& b = other->cells[other == &alone ? 0 : i].modes[0];
      CHECK(a.tokens == b.tokens);
      CHECK(a.resident == b.resident);
      CHECK(a.stored_bits == b.stored_bits);
      REQUIRE(a.rounds.size() == b.rounds.size());
      for (std::size_t r = 0; r < a.rounds.size(); ++r) {
        CHECK(a.rounds[r].tokens == b.rounds[r].tokens);
        REQUIRE(a.rounds[r].tested.size() == b.rounds[r].tested.size());
        for (std::size_t t = 0; t < a.rounds[r].tested.size(); ++t)
          CHECK(a.rounds[r].tested[t].overlap == b.rounds[r].tested[t].overlap);
      }
    }
  }
}

}  // namespace kvsim::sim::test_drafts
