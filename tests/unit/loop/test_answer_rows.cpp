// What a row says of an answer, worked by hand.
#include <catch2/catch.hpp>
#include <cmath>

#include "analysis/loop/answer_measures.hpp"
#include "analysis/loop/answer_rows.hpp"
#include "policies/builtin.hpp"

namespace kvsim::analysis::test_answer_rows {
namespace {

/// One cell in one mode, as a closed loop might have run it.
struct Made {
  explicit Made(sim::LoopMode mode) {
    request.cells.push_back({policy::parse_composition("h2o", policy::builtin()), sim::parse_budget("8")});
    request.modes = {mode};
    outcome.references.resize(1);
    outcome.cells.resize(1);
    outcome.cells[0].modes.resize(1);
    feed({1}, {1});
  }

  sim::LoopCell& cell() { return outcome.cells[0]; }
  sim::StreamOutcome& stream() { return outcome.cells[0].modes[0]; }

  /// Entries held after each fed token.
  void feed(const std::vector<std::uint64_t>& held, const std::vector<std::uint64_t>& full) {
    stream().resident = held;
    outcome.references[0].resident = full;
  }

  std::optional<double> number(const char* key) const {
    const Records records{answer_columns(), answer_rows(item, request, outcome)};
    return analysis::number(records.rows.at(0)[records.column(key)]);
  }

  AnswerItem item;
  sim::LoopRequest request;
  sim::LoopOutcome outcome;
};

}  // namespace

TEST_CASE("perplexities are the inverse geometric means of the fed tokens' probabilities") {
  Made made(sim::LoopMode::teacher);
  made.stream().measures = {{.log_p = std::log(0.5), .log_p_full = std::log(0.5)},
                            {.log_p = std::log(0.125), .log_p_full = std::log(0.5)}};
  CHECK(*made.number("log_p") == Approx(std::log(0.0625)));
  CHECK(*made.number("ppl") == Approx(4));
  CHECK(*made.number("ppl_full") == Approx(2));
  CHECK(*made.number("delta_ppl") == Approx(2));

  made.stream().measures = {{.log_p = -800, .log_p_full = std::log(0.5)}};
  CHECK_FALSE(made.number("ppl"));  // e^800 is beyond a double
  CHECK_FALSE(made.number("delta_ppl"));
  CHECK(*made.number("ppl_full") == Approx(2));
  CHECK_FALSE(Made(sim::LoopMode::greedy).number("ppl"));
}

TEST_CASE("quantiles of the KL are values that occur, by nearest rank") {
  Made made(sim::LoopMode::teacher);
  for (int i = 0; i < 2000; ++i) made.stream().measures.push_back({.kl = 1.0 + (i * 7) % 2000});
  CHECK(made.number("kl") == 1000.5);
  CHECK(made.number("kl_median") == 1000);
  CHECK(made.number("kl_p90") == 1800);
  CHECK(made.number("kl_p99") == 1980);
  CHECK(made.number("kl_p999") == 1998);
  CHECK(made.number("kl_max") == 2000);
}

/// The longest common subsequence from words i and j on, by trying everything.
std::uint64_t longest_from(const std::string& a, const std::string& b, std::size_t i = 0, std::size_t j = 0) {
  if (i == a.size() || j == b.size()) return 0;
  if (a[i] == b[j]) return 1 + longest_from(a, b, i + 1, j + 1);
  return std::max(longest_from(a, b, i + 1, j), longest_from(a, b, i, j + 1));
}

TEST_CASE("ROUGE-L is the F1 of the longest common subsequence of words") {
  // Lin's example: of "police killed the gunman", "police kill the gunman" shares police the gunman, and "the
  // gunman kill police" the gunman.
  CHECK(*rouge_l("police kill the gunman", "police killed the gunman") == Approx(0.75));
  CHECK(*rouge_l("the gunman kill police", "police killed the gunman") == Approx(0.5));
  CHECK(*rouge_l("a b c d e", "a c e") == Approx(2.0 * 3 / 8));
  CHECK(rouge_l("The CAT, sat!", "the cat sat") == 1.0);
  CHECK(rouge_l("", "words") == 0.0);
  CHECK_FALSE(rouge_l("", " ... "));
  CHECK(rouge_l("caf\u00e9 noir", "caf\u00e9") == Approx(2.0 / 3));
  std::uint64_t state = 1;
  for (int i = 0; i < 200; ++i) {
    std::string letters[2], texts[2];
    for (std::size_t k = 0; k < 2; ++k)
      for (std::uint64_t n = (state = state * 6364136223846793005 + 1442695040888963407) >> 61; n > 0; --n) {
        state = state * 6364136223846793005 + 1442695040888963407;
        letters[k] += static_cast<char>('a' + (state >> 62));
        texts[k] += std::string(1, letters[k].back()) + " ";
      }
    if (letters[0].empty() && letters[1].empty()) continue;
    const double expected = 2.0 * static_cast<double>(longest_from(letters[0], letters[1])) /
                            static_cast<double>(letters[0].size() + letters[1].size());
    CHECK(*rouge_l(texts[0], texts[1]) == Approx(expected).margin(1e-12));
  }
}

TEST_CASE("kept and ROUGE-L of a row are of greedy answers, kept where the full cache is right") {
  Made made(sim::LoopMode::greedy);
  made.item.text = [](const std::vector<std::int32_t>& ids) {
    std::string text;
    for (const std::int32_t id : ids) text += " w" + std::to_string(id);
    return text;
  };
  made.item.answers = {" w1"};
  made.item.right = [](const std::string& text) { return text.starts_with(" w1"); };
  made.stream().tokens = {1, 2, 3, 4};
  made.outcome.references[0].tokens = {1, 5, 3, 4};
  CHECK(made.number("kept") == 1);
  CHECK(made.number("rouge_l") == 0.75);
  made.stream().tokens = {2, 1};
  CHECK(made.number("kept") == 0);
  made.outcome.references[0].tokens = {2, 1};
  CHECK_FALSE(made.number("kept"));
  CHECK(made.number("right_full") == 0);
  made.request.modes = {sim::LoopMode::teacher};
  CHECK_FALSE(made.number("rouge_l"));
}

TEST_CASE("repetition is the share of runs of four tokens that occurred before") {
  Made made(sim::LoopMode::greedy);
  const auto of = [&](const std::vector<std::int32_t>& tokens) {
    made.stream().tokens = tokens;
    return made.number("rep_4");
  };
  CHECK(of({1, 2, 3, 4, 5}) == 0);
  CHECK(of({1, 2, 1, 2, 1, 2, 1}) == 0.5);  // 1212 2121 1212 2121
  CHECK(*of({7, 7, 7, 7, 7, 7, 7, 7}) == Approx(0.8));
  CHECK(of({1, 2, 3, 1}) == 0);  // single tokens may come again
  CHECK_FALSE(of({1, 1, 1}));
  CHECK_FALSE(Made(sim::LoopMode::teacher).number("rep_4"));
}

TEST_CASE("what is held and evicted is counted in entries over all lanes") {
  Made made(sim::LoopMode::greedy);
  made.item.lanes = 2;
  made.item.token_bytes = 16;
  made.outcome.prompt = 10;
  made.cell().kept_tokens = 6.5;  // 13 entries
  SECTION("after a cut at the question, every fed token joins") {
    made.feed({13, 15, 12}, {22, 24, 26});
    CHECK(made.number("held_bytes") == 12 * 16);
    CHECK(made.number("held_bytes_peak") == 15 * 16);
    CHECK(made.number("evicted_after_cut") == 3.5);  // of 13 + 6 entries, 12 are left
  }
  SECTION("after a cut at the prompt's end, its last token is fed again and does not join") {
    made.feed({13, 13, 13}, {20, 22, 24});
    CHECK(made.number("evicted_after_cut") == 2);
  }
  SECTION("the most is held right after the cut") {
    made.feed({8, 10}, {22, 24});
    CHECK(made.number("held_bytes_peak") == 13 * 16);
    CHECK(made.number("held_bytes") == 10 * 16);
  }
  SECTION("a cache that evicts nothing") {
    made.cell().kept_tokens = 10;
    made.feed({22, 24}, {22, 24});
    CHECK(made.number("evicted_after_cut") == 0);
    CHECK(made.number("held_bytes_peak") == made.number("held_bytes"));
  }
  SECTION("nothing is said of a cache whose size is not known") {
    made.feed({8, 10}, {22, 24});
    made.item.token_bytes = 0;
    CHECK_FALSE(made.number("held_bytes"));
    CHECK(made.number("evicted_after_cut"));
    made.item.lanes = 0;
    CHECK_FALSE(made.number("evicted_after_cut"));
  }
  SECTION("nor of a cell that was skipped") {
    made.cell().skipped = "knows the future";
    for (const char* key : {"held_bytes", "held_bytes_peak", "evicted_after_cut", "rep_4"})
      CHECK_FALSE(made.number(key));
  }
}

}  // namespace kvsim::analysis::test_answer_rows
