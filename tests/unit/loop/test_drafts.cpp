// A cell drafts and the full cache verifies: what comes out is the full cache's, whatever drafts.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "analysis/loop/piece_origins.hpp"
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
  draws = {0.59};
  CHECK(!in_place_of(0, p[0], q[0], next));
  draws = {0.6, 0};
  CHECK(in_place_of(0, p[0], q[0], next) == 1);

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

namespace {

/// A checkpoint that drafts for another one, whose prompt it has read.
struct Drafter {
  Drafter(const std::string& variant, const Place& full) : place(variant, full.prompt.ids.size()) {
    place.prompt.ids = full.prompt.ids;
    place.trace = place.read();
  }

  LoopOutcome run(Place& full, LoopRequest request, const trace::Cut& cut) const {
    const trace::Sequence sequence(place.trace, 0, cut);
    request.drafter = {&sequence, full.prompt.ids, &place.golden.config, &place.golden.weights};
    return full.run(request, cut);
  }

  Place place;
};

}  // namespace

TEST_CASE("greedy tokens are the full model's, whichever checkpoint drafts through whatever cache") {
  std::size_t tested = 0, accepted = 0;
  for (const auto& [variant, drafting_variant] : {std::pair{"llama_untied_f32", "llama_untied_f32"},
                                                  std::pair{"llama_untied_f32", "qwen2_mixed_windows"},
                                                  std::pair{"gemma3_two_rotations", "llama_tied"}}) {
    Place place(variant, 20);
    const Drafter drafter(drafting_variant, place);
    const bool same = std::string(variant) == drafting_variant;
    for (const trace::Cut& cut : {trace::Cut{}, trace::Cut{trace::Cut::At::position, 9}})
      for (const std::uint64_t gamma : {0, 1, 3}) {
        const LoopRequest request = drafting(kDrafts, {"12"}, gamma);
        const std::vector<std::int32_t> full = place.run(greedily(request), cut).references[0].tokens;
        const LoopOutcome outcome = drafter.run(place, request, cut);
        CHECK(outcome.cells[0].skipped.empty());
        for (std::size_t i = 0; i < outcome.cells.size(); ++i) {
          const LoopCell& cell = outcome.cells[i];
          CAPTURE(variant, drafting_variant, gamma, kDrafts[i], cell.skipped);
          if (!cell.skipped.empty()) continue;
          CHECK(cell.modes[0].tokens == full);
          CHECK(outcome.references[cell.first_reference].tokens == full);
          CHECK(cell.modes[0].resident.size() == gamma * cell.modes[0].rounds.size());
          for (const DraftRound& round : cell.modes[0].rounds) {
            // A model that drafts for itself is never wrong.
            if (same && i == 0) CHECK(round.tokens == gamma + 1);
            for (const DraftedToken& token : round.tested) {
              if (same && i == 0) CHECK(token.overlap == Approx(1).margin(1e-12));
              ++tested;
              accepted += token.accepted ? 1 : 0;
            }
          }
        }
      }
  }
  CHECK(accepted > 0);
  CHECK(accepted < tested);
}

TEST_CASE("another checkpoint drafts what it generates behind the text, run anew at every round") {
  Place place("llama_untied_f32", 20);
  constexpr std::size_t kGamma = 3;
  for (const char* variant : {"llama_untied_f32", "qwen2_mixed_windows"}) {
    const Drafter drafter(variant, place);
    const StreamOutcome outcome =
        drafter.run(place, drafting({"full"}, {"100%"}, kGamma), {}).cells[0].modes[0];
    std::size_t known = place.prompt.ids.size() + 1, compared = 0;
    for (const DraftRound& round : outcome.rounds) {
      Place anew(variant, place.prompt.ids.size());
      anew.prompt.ids = place.prompt.ids;
      anew.prompt.ids.insert(
          anew.prompt.ids.end(), outcome.tokens.begin(),
          outcome.tokens.begin() + static_cast<std::ptrdiff_t>(known - place.prompt.ids.size()));
      anew.trace = anew.read();
      LoopRequest request = greedily(drafting({"full"}, {"100%"}, kGamma));
      request.max_new_tokens = kGamma;
      const StreamOutcome full = anew.run(request, {}).references[0];
      for (std::size_t i = 0; i < round.tested.size() && full.margins[i] > 1e-4; ++i, ++compared)
        CHECK(round.tested[i].token == full.tokens[i]);
      known += round.tokens;
    }
    CHECK(compared > 2);
  }
}

TEST_CASE("what another checkpoint's cache drafts depends on the verified text alone") {
  Place place("qwen2_mixed_windows", 20);
  std::size_t compared = 0, rejected = 0;
  for (const char* variant : {"qwen2_mixed_windows", "llama_tied"}) {
    const Drafter drafter(variant, place);
    const LoopOutcome threes = drafter.run(place, drafting(kDrafts, {"9"}, 3, 1.0), {});
    for (std::size_t i = 0; i < kDrafts.size(); ++i) {
      CAPTURE(variant, kDrafts[i], threes.cells[i].skipped);
      if (!threes.cells[i].skipped.empty()) continue;
      // What is drafted first behind a text that many rounds of three or of one have made.
      const StreamOutcome& stream = threes.cells[i].modes[0];
      for (const DraftRound& round : stream.rounds) rejected += round.tokens <= 3 ? 1 : 0;
      LoopRequest greedy = drafting({kDrafts[i]}, {"9"}, 3), ones = drafting({kDrafts[i]}, {"9"}, 1);
      std::map<std::size_t, DraftedToken> first_at;  // by tokens of the answer before
      for (const LoopRequest* request : {&ones, &greedy}) {
        std::size_t answered = 1;
        const LoopOutcome outcome = drafter.run(place, *request, {});
        for (const DraftRound& round : outcome.cells[0].modes[0].rounds) {
          const auto [known, fresh] = first_at.emplace(answered, round.tested.front());
          CHECK(known->second.token == round.tested.front().token);
          CHECK(known->second.overlap == round.tested.front().overlap);
          compared += fresh ? 0 : 1;
          answered += round.tokens;
        }
      }
    }
  }
  CHECK(compared > 20);
  CHECK(rejected > 20);
}

TEST_CASE("sampled answers are the full model's in distribution, whichever checkpoint drafts") {
  Place place("llama_tied", 16);
  const Drafter drafter("qwen2_mixed_windows", place);
  constexpr int kSeeds = 400;
  std::vector<double> drafted(8), alone(8), its_own(8);
  double accepted = 0, overlaps = 0, variance = 0, tested = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    LoopRequest request = drafting({"full"}, {"100%"}, 2, 1.0);
    request.max_new_tokens = 4;
    request.seed = static_cast<std::uint64_t>(seed);
    const StreamOutcome stream = drafter.run(place, request, {}).cells[0].modes[0];
    for (std::size_t k = 1; k < stream.tokens.size(); ++k)
      drafted[static_cast<std::size_t>(stream.tokens[k]) % 8] += 1;
    for (const DraftRound& round : stream.rounds)
      for (const DraftedToken& token : round.tested) {
        its_own[static_cast<std::size_t>(token.token) % 8] += 1;
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
  CHECK(std::abs(accepted - overlaps) < 5 * std::sqrt(variance));
  CHECK(overlaps < 0.999 * tested);
}

TEST_CASE("a small checkpoint drafts for a cache that drafts for the full one") {
  const std::string variant = "llama_untied_f32";
  Place place(variant, 20);
  const std::vector<std::string> retrievals = {"full", "full+triforce(chunk=4,read=12)", "h2o",
                                               "streaming_llm"};
  std::size_t helped = 0, accepted = 0;
  for (const char* small : {"llama_untied_f32", "qwen2_mixed_windows"}) {
    const Drafter helper(small, place);
    for (const trace::Cut& cut : {trace::Cut{}, trace::Cut{trace::Cut::At::position, 9}}) {
      const trace::Sequence sequence(helper.place.trace, 0, cut);
      LoopRequest request = drafting(retrievals, {"12"}, 4);
      const LoopOutcome without = place.run(request, cut);
      request.helper = {&sequence, place.prompt.ids, &helper.place.golden.config,
                        &helper.place.golden.weights};
      for (const char* cache : {"full", "streaming_llm"}) {
        request.helper_cell = {policy::parse_composition(cache, policy::builtin()), parse_budget("8")};
        const LoopOutcome outcome = place.run(request, cut);
        for (std::size_t i = 0; i < retrievals.size(); ++i) {
          CAPTURE(small, cache, retrievals[i], outcome.cells[i].skipped);
          REQUIRE(outcome.cells[i].skipped == without.cells[i].skipped);
          if (!outcome.cells[i].skipped.empty()) continue;
          const StreamOutcome &mine = outcome.cells[i].modes[0], &alone = without.cells[i].modes[0];
          CHECK(mine.tokens == alone.tokens);
          std::map<std::size_t, std::vector<DraftedToken>> drafts;  // by tokens of the answer before
          std::size_t answered = 1;
          for (const DraftRound& round : alone.rounds) {
            drafts[answered] = round.tested;
            answered += round.tokens;
          }
          answered = 1;
          for (const DraftRound& round : mine.rounds) {
            // Greedily, what the cell drafts is its own, whatever proposes it.
            const std::vector<DraftedToken>& own = drafts[answered];
            for (std::size_t t = 0; t < std::min(own.size(), round.tested.size()); ++t) {
              CHECK(own[t].token == round.tested[t].token);
              CHECK(own[t].overlap == round.tested[t].overlap);
            }
            answered += round.tokens;
            // A pass yields an accepted token and one more, or one in its place; together 4, or 5.
            std::size_t yielded = 0;
            for (const DraftedToken& token : round.helped) {
              CHECK(yielded < 4);
              yielded += token.accepted ? 2 : 1;
              ++helped;
              accepted += token.accepted ? 1 : 0;
              if (small == variant && cache == std::string("full") && i == 0) {
                CHECK(token.accepted);
                CHECK(token.overlap == Approx(1).margin(1e-12));
              }
            }
            CHECK((yielded == 4 || yielded == 5));
            CHECK(round.tested.size() <= yielded);
          }
        }
      }
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < helped);
}

TEST_CASE("sampled answers are the full cache's in distribution under a hierarchy of drafts") {
  Place place("llama_tied", 16);
  const Drafter helper("qwen2_mixed_windows", place);
  const trace::Sequence sequence(helper.place.trace, 0, {});
  constexpr int kSeeds = 400;
  std::vector<double> drafted(8), alone(8);
  double accepted[2] = {}, overlaps[2] = {}, variance[2] = {};  // of the helper, of the cell
  for (int seed = 0; seed < kSeeds; ++seed) {
    LoopRequest request = drafting({"random"}, {"5"}, 2, 1.0);
    request.max_new_tokens = 4;
    request.seed = static_cast<std::uint64_t>(seed + kSeeds);
    LoopRequest none = request;
    none.gamma = 0;
    const std::vector<std::int32_t> of_full = place.run(none, {}).cells[0].modes[0].tokens;
    for (std::size_t k = 1; k < of_full.size(); ++k) alone[static_cast<std::size_t>(of_full[k]) % 8] += 1;
    request.seed = static_cast<std::uint64_t>(seed);
    request.helper = {&sequence, place.prompt.ids, &helper.place.golden.config, &helper.place.golden.weights};
    request.helper_cell = {policy::parse_composition("streaming_llm", policy::builtin()), parse_budget("8")};
    const StreamOutcome stream = place.run(request, {}).cells[0].modes[0];
    for (std::size_t k = 1; k < stream.tokens.size(); ++k)
      drafted[static_cast<std::size_t>(stream.tokens[k]) % 8] += 1;
    for (const DraftRound& round : stream.rounds)
      for (const std::vector<DraftedToken>* tests : {&round.helped, &round.tested})
        for (const DraftedToken& token : *tests) {
          const std::size_t of = tests == &round.helped ? 0 : 1;
          accepted[of] += token.accepted ? 1 : 0;
          overlaps[of] += token.overlap;
          variance[of] += token.overlap * (1 - token.overlap);
        }
  }
  CHECK(chi_square(drafted, alone) < 34.9);  // 7 degrees of freedom, by chance once in 10^5
  for (const std::size_t of : {0, 1}) {
    CHECK(std::abs(accepted[of] - overlaps[of]) < 5 * std::sqrt(variance[of]));
    CHECK(variance[of] > 1);
  }
}

TEST_CASE("a draft that leads, by hand") {
  // p - q is -.4 and .4: logits of p are raised by .4 and lowered by .4.
  const Distribution p = {0.5, 0.5}, q = {0.9, 0.1};
  const std::vector<float> logits = {1, 1};
  const Distribution led = led_by(q, logits, 1, 1);
  CHECK(led[0] == Approx(std::exp(0.4) / (std::exp(0.4) + std::exp(-0.4))));  // .690
  CHECK(led[1] == Approx(1 - led[0]));
  CHECK(led_by(q, logits, 1, 0) == p);
  // A token below a tenth of the largest stays as it is.
  const Distribution rare = led_by(Distribution{0.95, 0.05}, logits, 1, 1);
  CHECK(rare[0] / rare[1] == Approx(std::exp(0.45)));
  std::vector<double> draws;
  const auto next = [&] {
    const double draw = draws.front();
    draws.erase(draws.begin());
    return draw;
  };
  draws = {0.76};
  CHECK(!in_place_of(0, p, q, next, led));  // .76 * .9 is below .690
  draws = {0.77, 0.99};
  CHECK(in_place_of(0, p, q, next, led) == 1);  // of max(p - q, p - led, 0) nothing else is left
}

TEST_CASE("what a draft that leads yields is neither distribution, and p itself where it does not lead") {
  const Distribution p = {0.6, 0.3, 0.1}, q = {0.2, 0.3, 0.5};
  std::vector<float> logits;
  for (const double each : p) logits.push_back(static_cast<float>(std::log(each)));
  constexpr int kRuns = 20000;
  std::uint64_t draws = 0;
  const auto draw = [&] { return uniform01(combine({11, draws++})); };
  for (const double eta : {0.0, 2.0}) {
    const Distribution led = led_by(q, logits, 1, eta);
    // A drafted token is accepted, or another comes of the rest.
    double kept = 0, all = 0;
    Distribution rest(3), expected(3), seen(3);
    for (std::size_t x = 0; x < 3; ++x) {
      kept += std::min(led[x], q[x]);
      all += rest[x] = std::max({p[x] - q[x], p[x] - led[x], 0.0});
    }
    for (std::size_t x = 0; x < 3; ++x) expected[x] = std::min(led[x], q[x]) + (1 - kept) * rest[x] / all;
    for (int run = 0; run < kRuns; ++run) {
      const std::int32_t token = drawn(q, draw());
      ++seen[static_cast<std::size_t>(in_place_of(token, p, q, draw, led).value_or(token))];
    }
    const auto distance = [&](const Distribution& from) {
      double sum = 0;
      for (std::size_t x = 0; x < 3; ++x)
        sum += (seen[x] - kRuns * from[x]) * (seen[x] - kRuns * from[x]) / (kRuns * from[x]);
      return sum;
    };
    CHECK(distance(expected) < 23);  // 2 degrees of freedom, by chance once in 10^5
    CHECK((distance(p) < 23) == (eta == 0));
    CHECK((distance(led) < 23) == (eta == 0));
  }
}

TEST_CASE("a model that drafts from a part of the prompt") {
  Place place("llama_tied", 20);
  Drafter drafter("llama_tied", place);
  std::vector<std::int32_t> some(place.prompt.ids.begin(), place.prompt.ids.begin() + 4);
  some.insert(some.end(), place.prompt.ids.begin() + 12, place.prompt.ids.end());
  drafter.place.prompt.ids = some;
  drafter.place.trace = drafter.place.read();
  const LoopRequest request = drafting({"full"}, {"100%"}, 3);
  const std::vector<std::int32_t> full = place.run(greedily(request), {}).references[0].tokens;
  const trace::Sequence sequence(drafter.place.trace, 0, {});
  LoopRequest asked = request;
  asked.drafter = {&sequence, some, &drafter.place.golden.config, &drafter.place.golden.weights};
  const LoopOutcome outcome = place.run(asked, {});
  CHECK(outcome.cells[0].modes[0].tokens == full);
  // What is drafted first is what this model says behind that part and the first token of the answer.
  Place anew("llama_tied", 20);
  anew.prompt.ids = some;
  anew.prompt.ids.push_back(full[0]);
  anew.trace = anew.read();
  const StreamOutcome alone = anew.run(greedily(request), {}).references[0];
  if (alone.margins[0] > 1e-4) CHECK(outcome.cells[0].modes[0].rounds[0].tested[0].token == alone.tokens[0]);
  // At a temperature, a draft that leads is accepted more often.
  double overlaps[2] = {}, tested[2] = {};
  for (int seed = 0; seed < 30; ++seed) {
    asked.temperature = 1;
    asked.seed = static_cast<std::uint64_t>(seed);
    for (const double lead : {0.0, 50.0}) {
      asked.lead = lead;
      const StreamOutcome stream = place.run(asked, {}).cells[0].modes[0];
      for (const DraftRound& round : stream.rounds)
        for (const DraftedToken& token : round.tested) {
          overlaps[lead > 0 ? 1 : 0] += token.overlap;
          ++tested[lead > 0 ? 1 : 0];
        }
    }
  }
  CHECK(overlaps[1] / tested[1] > overlaps[0] / tested[0]);
}

TEST_CASE("documents are retrieved by the words that they share with the question") {
  // N = 3: `red` is in two of them, ln(1 + 1.5 / 2.5) = .470; `cat` in one, ln(1 + 2.5 / 1.5) = .981. All
  // have three words, so that a word counts 2.2 f / (f + 1.2): 1 once, 1.375 twice.
  const std::vector<std::string> texts = {"a red cat", "red, RED sun", "the blue sea"};
  CHECK(analysis::retrieved_documents(texts, "Where is the cat?", 1) == std::vector<std::size_t>{0});
  CHECK(analysis::retrieved_documents(texts, "red", 1) == std::vector<std::size_t>{1});
  CHECK(analysis::retrieved_documents(texts, "red cat", 1) == std::vector<std::size_t>{0});  // 1.451 to .646
  CHECK(analysis::retrieved_documents(texts, "red cat", 2) == std::vector<std::size_t>{0, 1});
  CHECK(analysis::retrieved_documents(texts, "green", 2) ==
        std::vector<std::size_t>{0, 1});  // nothing is shared
  CHECK(analysis::retrieved_documents(texts, "sea", 9).size() == 3);
}

}  // namespace kvsim::sim::test_drafts
