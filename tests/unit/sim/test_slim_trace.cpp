// Tests replay on traces that lack most of the prompt's queries: it decides the same, or refuses by name.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "policies/builtin.hpp"
#include "sim/attention/attention_rows.hpp"
#include "sim/base/error.hpp"
#include "sim/inspect/head_attention.hpp"
#include "sim/replay/replay.hpp"
#include "tests/support/every_eviction.hpp"
#include "tests/support/random_trace.hpp"

namespace kvsim::test_slim_trace {

using Catch::Matchers::Contains;
using Catch::Matchers::VectorContains;

namespace {

/// Returns what a capture with --queries window:W[,sample:K] stores of a trace with all queries.
trace::MemoryTrace slim(const trace::MemoryTrace& full, std::uint64_t window,
                        const std::vector<std::uint64_t>& sample, bool columns = true) {
  trace::Header header = full.header();
  const trace::Model& model = header.model;
  const std::uint64_t prompt = header.segments[0].count;
  header.query_token = sample;
  for (std::uint64_t token = prompt - window; token < header.n_tokens(); ++token)
    header.query_token.push_back(token);
  if (columns) header.counted_tokens = prompt;
  trace::MemoryTrace out(header);
  const std::size_t dim = model.head_dim;
  std::vector<float> rows(prompt * prompt);
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    for (const trace::Tensor tensor : {trace::Tensor::key, trace::Tensor::value})
      for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
        const std::span<float> to = out.rows(tensor, layer, head);
        full.read(tensor, layer, head, 0, header.n_tokens(), to);
      }
    for (std::uint32_t head = 0; head < model.n_q_heads; ++head) {
      if (full.has_output_weights()) full.read_output_weights(layer, head, out.output_weights(layer, head));
      for (std::size_t row = 0; row < header.query_token.size(); ++row)
        full.read(trace::Tensor::query, layer, head, header.query_token[row], 1,
                  out.rows(trace::Tensor::query, layer, head).subspan(row * dim, dim));
      if (!columns) continue;
      std::vector<float> q(prompt * dim), k(prompt * dim);
      full.read(trace::Tensor::query, layer, head, 0, prompt, q);
      full.read(trace::Tensor::key, layer, head / model.group(), 0, prompt, k);
      sim::attention_rows({model.attn_scale, model.layer_window[layer]}, {q.data(), prompt, dim, dim}, 0,
                          sim::KeyPanels({k.data(), prompt, dim, dim}), rows.data(), prompt);
      for (std::uint64_t j = 0; j < prompt; ++j) {
        double sum = 0, squares = 0;
        for (std::uint64_t i = 0; i < prompt; ++i) {
          const auto p = static_cast<double>(rows[i * prompt + j]);
          sum += p;
          squares += p * p;
        }
        out.column_sums(layer, head)[j] = static_cast<float>(sum);
        out.column_sums_of_squares(layer, head)[j] = static_cast<float>(squares);
      }
    }
  }
  return out;
}

sim::Outcome replayed(const trace::Source& source, const std::vector<std::string>& policies,
                      const trace::Cut& cut = {}) {
  const trace::Sequence sequence(source, 0, cut);
  sim::Request request;
  for (const std::string& text : policies)
    request.cells.push_back({policy::parse_composition(text, policy::builtin()), sim::parse_budget("50%")});
  request.decisions = true;
  Progress progress;
  return sim::replay(sequence, request, progress);
}

std::string skipped(const trace::Source& source, const std::string& policy, const trace::Cut& cut = {}) {
  return replayed(source, {policy}, cut).cells[0].skipped;
}

bool same(const std::vector<std::vector<sim::ResidentInterval>>& a,
          const std::vector<std::vector<sim::ResidentInterval>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& i, const auto& j) {
      return i.position == j.position && i.first == j.first && i.last == j.last;
    });
  });
}

}  // namespace

TEST_CASE("policies that run on a slim trace decide as on the full one") {
  const std::vector<std::int32_t> windows =
      GENERATE(std::vector<std::int32_t>{}, std::vector<std::int32_t>{-1, 70});
  const trace::MemoryTrace full =
      test::random_trace({.prompt = 120, .decode = 6, .layer_window = windows, .output_weights = true});
  const trace::MemoryTrace window = slim(full, 40, {3, 50});
  const std::vector<std::string> policies = test::every_policy();
  const sim::Outcome expected = replayed(full, policies), got = replayed(window, policies);
  std::set<std::string> ran;
  for (std::size_t cell = 0; cell < policies.size(); ++cell) {
    INFO(policies[cell]);
    if (!expected.cells[cell].skipped.empty()) continue;
    if (!got.cells[cell].skipped.empty()) {
      CHECK_THAT(got.cells[cell].skipped, Contains("this trace holds those of the last 40 and of 2 others"));
      CHECK_THAT(got.cells[cell].skipped, Contains("--queries all"));
      CHECK_THAT(got.cells[cell].skipped, Contains("needs the queries of all 120 prompt tokens"));
      continue;
    }
    ran.insert(policies[cell]);
    // Column sums rounded to float change no decision, so every number is the same to the bit.
    CHECK(same(got.cells[cell].resident_intervals, expected.cells[cell].resident_intervals));
    for (std::size_t lane = 0; lane < expected.cells[cell].lanes.size(); ++lane) {
      CHECK(got.cells[cell].lanes[lane].attention_loss == expected.cells[cell].lanes[lane].attention_loss);
      CHECK(got.cells[cell].lanes[lane].importance_kept == expected.cells[cell].lanes[lane].importance_kept);
      CHECK(got.cells[cell].lanes[lane].output_error == expected.cells[cell].lanes[lane].output_error);
    }
  }
  std::vector<const char*> column_policies = {"h2o",  "roco",   "q_hitter",      "ems_like",
                                              "vatp", "snapkv", "streaming_llm", "keydiff"};
  // Published arithmetic knows layers of one size alone.
  if (windows.empty()) column_policies.push_back("snapkv(window=4)+d2o_layers(variant=official)");
  for (const char* policy : column_policies)
    CHECK_THAT(std::vector<std::string>(ran.begin(), ran.end()), VectorContains(std::string(policy)));
  for (const char* policy : {"fastgen", "keyformer", "h2o.stream", "snapkv(window=4)+retrieval_heads"})
    CHECK(ran.count(policy) == 0);
}

TEST_CASE("refusals name the policy, what is missing, and how to capture it") {
  const trace::MemoryTrace full = test::random_trace({.prompt = 60, .decode = 2});
  const trace::MemoryTrace bare = slim(full, 8, {}, false), sampled = slim(full, 8, {1, 9}),
                           only_sample = slim(full, 0, {0, 30});
  CHECK_THAT(
      skipped(bare, "h2o"),
      Contains("h2o: needs the queries of all 60 prompt tokens; this trace holds those of the last 8") &&
          Contains("Capture with --queries all, or window:1, which stores column statistics, too."));
  CHECK_THAT(skipped(bare, "snapkv(window=16)"),
             Contains("snapkv: needs the queries of the last 16 of 60 prompt tokens") &&
                 Contains("Capture with --queries window:16 or all."));
  CHECK_THAT(skipped(bare, "ems_like(window=4)"), Contains("or window:4, which stores column statistics"));
  CHECK_THAT(skipped(sampled, "ems_like(window=16)"),
             Contains("or window:16, which stores column statistics"));
  CHECK_THAT(skipped(sampled, "h2o.stream"),
             Contains("last 8 and of 2 others") && Contains("--queries all."));
  CHECK(skipped(sampled, "ems_like(window=8)").empty());
  // The query of the last prompt row, which cut prompt measures, is missing; from the first generated token
  // on all queries are there.
  CHECK_THROWS_WITH(skipped(only_sample, "h2o"),
                    Contains("cut prompt needs those from 59 on") && Contains("or cut at 60."));
  const trace::Cut behind = trace::parse_cut("60");
  CHECK(skipped(only_sample, "h2o", behind).empty());
  CHECK_THAT(skipped(only_sample, "tova", behind),
             Contains("needs the queries of the last 1 of 60") && Contains("holds those of 2 of them"));
  // Column statistics cover the whole prompt, so they do not serve a shorter one.
  CHECK_THAT(skipped(sampled, "h2o", trace::parse_cut("55")), Contains("h2o: needs the queries of all 55"));
  CHECK_THROWS_WITH(skipped(sampled, "window", trace::parse_cut("50")),
                    Contains("cut 50 needs those from 50 on"));
}

TEST_CASE("column statistics of another prompt than the sequence's are not used") {
  trace::MemoryTrace full = test::random_trace({.prompt = 20, .decode = 4});
  trace::MemoryTrace window = slim(full, 4, {});
  trace::Header header = window.header();
  // The prompt goes on for three tokens that the column statistics do not cover.
  header.segments = {{.parent = -1, .begin = 0, .count = 20, .path_len = 0},
                     {.parent = 0, .begin = 20, .count = 3, .path_len = 20},
                     {.parent = 1, .begin = 23, .count = 1, .path_len = 23, .phase = trace::Phase::decode}};
  header.passes.clear();
  header.token_segment.assign(20, 0);
  header.token_segment.insert(header.token_segment.end(), {1, 1, 1, 2});
  header.sequence_leaf = {2};
  const trace::MemoryTrace longer(header);
  CHECK(longer.has_column_statistics());
  CHECK_FALSE(trace::Sequence(longer).has_column_statistics());
  CHECK(trace::Sequence(window).has_column_statistics());
}

TEST_CASE("attention per key is read from column statistics") {
  const std::vector<std::int32_t> windows{-1, 7};
  const trace::MemoryTrace full = test::random_trace({.prompt = 50, .decode = 2, .layer_window = windows});
  const trace::MemoryTrace window = slim(full, 4, {});
  const auto attention = [](const trace::Source& source) {
    std::vector<std::vector<double>> lanes(4);
    Progress progress;
    sim::for_key_norm_attention(
        trace::Sequence(source), 1, progress,
        [&](std::size_t lane, const sim::KeyNormAttention& keys) { lanes[lane] = keys.attention; });
    return lanes;
  };
  const auto expected = attention(full), got = attention(window);
  for (std::size_t lane = 0; lane < 4; ++lane)
    for (std::size_t j = 0; j < (lane < 2 ? 50 : 7); ++j)
      CHECK(got[lane][j] == Approx(expected[lane][j]).epsilon(2e-7));  // two sums rounded to float
  CHECK_THROWS_WITH(attention(slim(full, 4, {}, false)), Contains("--queries all"));
}

}  // namespace kvsim::test_slim_trace
