// Tests that each option of the generator has its documented effect on attention, of the documented size.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/writer.hpp"
#include "traces/workloads/synthetic.hpp"

namespace kvsim::test::test_synthetic {

using trace::SyntheticOptions;
using trace::Tensor;

namespace {

/// Options with every structure switched off.
SyntheticOptions silent() {
  SyntheticOptions options;
  options.layers = 1;
  options.kv_heads = 1;
  options.group = 1;
  options.head_dim = 128;
  options.prompt = 600;
  options.decode = 0;
  options.sink = options.locality = options.heavy = options.noise = options.drift = 0;
  return options;
}

/// Scaled scores of query row t on keys 0..t.
std::vector<double> logits(const trace::MemoryTrace& made, std::uint64_t t, std::uint32_t layer = 0,
                           std::uint32_t query_head = 0) {
  const trace::Model& model = made.header().model;
  const std::size_t dim = model.head_dim;
  std::vector<float> query(dim), keys((t + 1) * dim);
  made.read(Tensor::query, layer, query_head, t, 1, query);
  made.read(Tensor::key, layer, query_head / model.group(), 0, t + 1, keys);
  std::vector<double> out(t + 1);
  for (std::size_t j = 0; j <= t; ++j) {
    for (std::size_t i = 0; i < dim; ++i)
      out[j] += static_cast<double>(query[i]) * static_cast<double>(keys[j * dim + i]);
    out[j] *= model.attn_scale;
  }
  return out;
}

std::vector<double> attention(const trace::MemoryTrace& made, std::uint64_t t) {
  std::vector<double> p = logits(made, t);
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - top);
  for (double& value : p) value /= sum;
  return p;
}

std::string digest(const trace::MemoryTrace& made) {
  Sha256 sha;
  for (const Tensor tensor : kTensors)
    for (std::uint32_t layer = 0; layer < made.header().model.n_layers; ++layer)
      for (std::uint32_t head = 0; head < heads_of(made.header().model, tensor); ++head) {
        const std::vector<float> rows = all_rows(made, tensor, layer, head);
        sha.update(rows.data(), rows.size() * sizeof(float));
      }
  return sha.hex();
}

}  // namespace

TEST_CASE("sinks gain their logit, and the attention that follows from it") {
  SyntheticOptions options = silent();
  options.sink = 4;
  options.sinks = 3;
  const trace::MemoryTrace made = synthetic_trace(options);
  const std::vector<double> score = logits(made, 599);
  for (std::size_t j = 0; j < 600; ++j)
    CHECK(score[j] - score[300] == Approx(j < 3 ? 4.0 : 0.0).margin(1e-4));
  const std::vector<double> p = attention(made, 599);
  CHECK(p[0] + p[1] + p[2] == Approx(3 * std::exp(4.0) / (3 * std::exp(4.0) + 597)).epsilon(1e-4));
  // Sinks contribute little: their values are small.
  const std::vector<float> values = all_rows(made, Tensor::value, 0, 0);
  const auto norm = [&](std::size_t row) {
    double sum = 0;
    for (std::size_t i = 0; i < 128; ++i) sum += std::pow(static_cast<double>(values[row * 128 + i]), 2);
    return std::sqrt(sum);
  };
  CHECK(norm(0) < 0.2 * norm(100));
}

TEST_CASE("locality falls with distance, to 1/e at its span") {
  SyntheticOptions options = silent();
  options.locality = 3;
  options.local_span = GENERATE(8.0, 24.0);
  const trace::MemoryTrace made = synthetic_trace(options);
  const std::vector<double> score = logits(made, 599);
  const double topic = 2;  // the same for every key without drift
  const auto gain = [&](std::size_t distance) { return score[599 - distance] - topic; };
  CHECK(gain(0) == Approx(3).epsilon(1e-3));
  CHECK(gain(static_cast<std::size_t>(options.local_span)) == Approx(3 * std::exp(-1.0)).margin(0.15));
  CHECK(gain(static_cast<std::size_t>(2 * options.local_span)) == Approx(3 * std::exp(-2.0)).margin(0.15));
  double far = 0;
  for (std::size_t distance = 200; distance < 600; ++distance) far += gain(distance) / 400;
  CHECK(std::abs(far) < 0.15);
  // The score depends only on the distance.
  const std::vector<double> earlier = logits(made, 400);
  for (const std::size_t distance : {0, 5, 50, 300})
    CHECK(earlier[400 - distance] - topic == Approx(gain(distance)).margin(1e-3));
}

TEST_CASE("heavy hitters have the requested share, gain their logit, and draw the attention") {
  SyntheticOptions options = silent();
  options.prompt = 4000;
  options.heavy = 5;
  options.heavy_share = 0.05;
  options.layers = 2;
  const trace::MemoryTrace made = synthetic_trace(options);
  const std::vector<double> score = logits(made, 3999), other = logits(made, 3999, 1);
  std::size_t heavy = 0, common = 0;
  for (std::size_t j = 0; j < 4000; ++j) {
    const double gain = score[j] - 2;
    REQUIRE((std::abs(gain) < 1e-3 || std::abs(gain - 5) < 1e-3));
    heavy += gain > 2.5 ? 1 : 0;
    common += gain > 2.5 && other[j] - 2 > 2.5 ? 1 : 0;
  }
  CHECK(heavy == Approx(200).margin(42));  // three standard deviations of a binomial
  CHECK(common < 40);                      // every layer has its own heavy hitters
  const std::vector<double> p = attention(made, 3999);
  double mass = 0;
  for (std::size_t j = 0; j < 4000; ++j) mass += score[j] - 2 > 2.5 ? p[j] : 0;
  CHECK(mass > 0.85);
}

TEST_CASE("drift turns attention away from old tokens at the given rate") {
  SyntheticOptions options = silent();
  options.prompt = 3000;
  options.drift = GENERATE(0.0, 0.5, 1.0);
  const trace::MemoryTrace made = synthetic_trace(options);
  const std::vector<double> score = logits(made, 2999);
  for (const std::size_t distance : {0, 500, 1000, 2999})
    CHECK(score[2999 - distance] ==
          Approx(2 * std::cos(options.drift * static_cast<double>(distance) / 1000)).margin(1e-3));
}

TEST_CASE("noise has the requested standard deviation and no bias") {
  SyntheticOptions options = silent();
  options.noise = GENERATE(0.5, 2.0);
  options.head_dim = GENERATE(8U, 64U);
  const trace::MemoryTrace made = synthetic_trace(options);
  double sum = 0, squares = 0, n = 0;
  for (std::uint64_t t = 0; t < 600; t += 2) {
    for (const double score : logits(made, t)) {
      sum += score - 2;
      squares += (score - 2) * (score - 2);
      ++n;
    }
  }
  CHECK(sum / n == Approx(0).margin(0.05 * options.noise));
  CHECK(std::sqrt(squares / n) == Approx(options.noise).epsilon(0.06));
}

TEST_CASE("a stretch turns keys and queries apart and leaves every logit") {
  SyntheticOptions options = silent();
  options.noise = 2;
  options.locality = options.heavy = 3;
  options.prompt = 200;
  options.needles = 3;
  const trace::MemoryTrace plain = synthetic_trace(options);
  options.stretch = GENERATE(2.0, 8.0);  // powers of two, which round nothing
  const trace::MemoryTrace made = synthetic_trace(options);
  for (const std::uint64_t t : {0, 77, 198, 199}) CHECK(logits(made, t) == logits(plain, t));
  // Of the noise, components 66 to 127, the even ones are all of a key and the odd ones all of a query.
  const auto size = [&](Tensor tensor, std::size_t parity) {
    const std::vector<float> rows = all_rows(made, tensor, 0, 0);
    double sum = 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (i % 128 >= 66 && i % 2 == parity) sum += std::pow(static_cast<double>(rows[i]), 2);
    return std::sqrt(sum);
  };
  const double apart = options.stretch * options.stretch;
  CHECK(size(Tensor::key, 0) == Approx(apart * size(Tensor::key, 1)).epsilon(0.05));
  CHECK(size(Tensor::query, 1) == Approx(apart * size(Tensor::query, 0)).epsilon(0.05));
}

TEST_CASE("needles gain their logit from queries that ask for them, and the attention that follows from it") {
  SyntheticOptions options = silent();
  options.needle = 9;
  options.needles = 3;
  options.needle_tokens = 5;
  options.kv_heads = options.group = 2;
  options.decode = 4;
  const trace::MemoryTrace made = synthetic_trace(options);
  // What the file says: the three last tokens of the prompt are the question, the others the context.
  const trace::Header& header = made.header();
  for (const std::uint32_t bit : {trace::kFlagQuestion, trace::kFlagContext, trace::kFlagEvidence})
    CHECK((header.flags_known & bit) != 0);
  std::vector<std::size_t> evidence;
  for (std::size_t t = 0; t < 604; ++t) {
    CHECK(((header.token_flags[t] & trace::kFlagContext) != 0) == (t < 597));
    CHECK(((header.token_flags[t] & trace::kFlagQuestion) != 0) == (t >= 597 && t < 600));
    if ((header.token_flags[t] & trace::kFlagEvidence) != 0) evidence.push_back(t);
  }
  // One of five tokens in each third of what lies between the sinks and the question: 4 to 596.
  REQUIRE(evidence.size() == 15);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(evidence[5 * i + 4] == evidence[5 * i] + 4);
    CHECK(evidence[5 * i] >= 4 + 593 * i / 3);
    CHECK(evidence[5 * i + 4] < 4 + 593 * (i + 1) / 3);
  }
  const auto asked = [](std::uint64_t t) { return t < 600 ? t - 597 : (t - 600) % 3; };
  const double topic = 2;  // the same for every key without drift
  for (std::uint64_t t = 597; t < 604; ++t)
    for (std::uint32_t head = 0; head < 4; ++head) {
      const std::vector<double> score = logits(made, t, 0, head);
      std::vector<bool> is_needle(t + 1);
      for (const std::size_t token : evidence) is_needle[token] = true;
      for (std::size_t i = 0; i < 15; ++i) {
        const double gain = score[evidence[i]] - topic;
        if (i / 5 == asked(t))
          CHECK(gain == Approx(9).epsilon(1e-4));
        else
          CHECK(gain < 7);  // it has another direction
      }
      for (std::size_t j = 0; j <= t; ++j)
        if (!is_needle[j]) CHECK(score[j] == Approx(topic).margin(1e-4));
    }
  // Queries that do not ask have no part in it.
  for (const double score : logits(made, 596)) CHECK(score == Approx(topic).margin(1e-4));
  // Every head has directions of its own.
  const std::vector<float> one = all_rows(made, Tensor::key, 0, 0), other = all_rows(made, Tensor::key, 0, 1);
  CHECK_FALSE(std::equal(one.begin() + static_cast<std::ptrdiff_t>(evidence[0] * 128),
                         one.begin() + static_cast<std::ptrdiff_t>((evidence[0] + 1) * 128),
                         other.begin() + static_cast<std::ptrdiff_t>(evidence[0] * 128)));
  // With a single needle nothing else gains: five tokens of e^9 among 595 of 1.
  options.needles = 1;
  const trace::MemoryTrace single = synthetic_trace(options);
  const std::vector<double> p = attention(single, 599);
  double mass = 0;
  for (std::size_t t = 0; t < 600; ++t)
    if ((single.header().token_flags[t] & trace::kFlagEvidence) != 0) mass += p[t];
  CHECK(mass == Approx(5 * std::exp(9.0) / (5 * std::exp(9.0) + 595)).epsilon(1e-4));
}

TEST_CASE("needles fill a prompt that has just room for them, and none marks nothing") {
  SyntheticOptions options = silent();
  options.sinks = 2;
  options.needles = 4;
  options.needle_tokens = 3;
  options.prompt = 2 + 4 * 3 + 4;
  const trace::MemoryTrace made = synthetic_trace(options);
  for (std::size_t t = 0; t < options.prompt; ++t)
    CHECK(((made.header().token_flags[t] & trace::kFlagEvidence) != 0) == (t >= 2 && t < 14));
  const SyntheticOptions plain;
  CHECK((synthetic_trace(plain).header().flags_known & trace::kFlagEvidence) == 0);
}

TEST_CASE("query heads of a group differ, and lanes differ") {
  SyntheticOptions options = silent();
  options.noise = 1;
  options.kv_heads = options.group = options.layers = 2;
  options.prompt = 20;
  const trace::MemoryTrace made = synthetic_trace(options);
  CHECK(all_rows(made, Tensor::query, 0, 0) != all_rows(made, Tensor::query, 0, 1));
  CHECK(all_rows(made, Tensor::key, 0, 0) != all_rows(made, Tensor::key, 0, 1));
  CHECK(all_rows(made, Tensor::key, 0, 0) != all_rows(made, Tensor::key, 1, 0));
  CHECK(all_rows(made, Tensor::value, 1, 0) != all_rows(made, Tensor::value, 1, 1));
}

TEST_CASE("the seed determines every byte, on every machine") {
  SyntheticOptions options;
  options.prompt = 30;
  options.decode = 3;
  const std::string first = digest(synthetic_trace(options));
  CHECK(first == digest(synthetic_trace(options)));
  CHECK(first == "a0417fabc0910180e5fe32d230c73932582ee3852ae71ee7d5694535c684ffa2");
  options.seed = 2;
  CHECK(first != digest(synthetic_trace(options)));
}

TEST_CASE("a longer trace begins with the shorter one") {
  SyntheticOptions options;
  options.prompt = 40;
  options.decode = 0;
  const trace::MemoryTrace longer = synthetic_trace(options);
  options.prompt = 25;
  const trace::MemoryTrace shorter = synthetic_trace(options);
  const std::vector<float> a = all_rows(longer, Tensor::key, 1, 1), b = all_rows(shorter, Tensor::key, 1, 1);
  CHECK(std::equal(b.begin(), b.end(), a.begin()));
  CHECK(std::equal(shorter.header().token_id.begin(), shorter.header().token_id.end(),
                   longer.header().token_id.begin()));
}

TEST_CASE("in 16 bits a memory trace holds exactly the values of the file") {
  SyntheticOptions options;
  options.prompt = 50;
  options.elem = GENERATE(Elem::bf16, Elem::f16);
  const trace::MemoryTrace made = synthetic_trace(options);
  const Scratch scratch;
  trace::write_trace(scratch.file("a.h5"), made);
  const auto read = trace::open_trace(scratch.file("a.h5"));
  for (const Tensor tensor : kTensors) CHECK(all_rows(made, tensor, 3, 1) == all_rows(*read, tensor, 3, 1));
}

TEST_CASE("impossible options are refused by name") {
  const auto refuses = [](auto change, const char* text) {
    SyntheticOptions options;
    change(options);
    try {
      synthetic_trace(options);
      FAIL("accepted: " << text);
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK_THAT(error.what(), Catch::Contains(text));
    }
  };
  refuses([](SyntheticOptions& o) { o.head_dim = 6; }, "head dimension");
  refuses([](SyntheticOptions& o) { o.head_dim = 9; }, "head dimension");
  refuses([](SyntheticOptions& o) { o.head_dim = 1026; }, "head dimension");
  refuses([](SyntheticOptions& o) { o.layers = 0; }, "layers");
  refuses([](SyntheticOptions& o) { o.kv_heads = 600, o.group = 2; }, "KV heads");
  refuses([](SyntheticOptions& o) { o.prompt = 0; }, "prompt");
  refuses([](SyntheticOptions& o) { o.decode = UINT64_MAX; }, "prompt");
  refuses([](SyntheticOptions& o) { o.heavy_share = 1.5; }, "heavy share");
  refuses([](SyntheticOptions& o) { o.sink = -1; }, "sink");
  refuses([](SyntheticOptions& o) { o.noise = std::nan(""); }, "noise");
  refuses([](SyntheticOptions& o) { o.local_span = 0; }, "local span");
  refuses([](SyntheticOptions& o) { o.drift = std::nan(""); }, "drift");
  refuses([](SyntheticOptions& o) { o.stretch = 0.5; }, "stretch");
  refuses([](SyntheticOptions& o) { o.needle = 1001; }, "needle");
  refuses([](SyntheticOptions& o) { o.needle_tokens = 0; }, "needle");
  refuses([](SyntheticOptions& o) { o.needles = 102; }, "room for sinks, needles");
  refuses([](SyntheticOptions& o) { o.needles = o.needle_tokens = UINT32_MAX; }, "room for sinks, needles");
}

}  // namespace kvsim::test::test_synthetic
