#include "sim/inspect/hash_correlation.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "policies/parts/index/fingerprints.hpp"
#include "sim/attention/attention_rows.hpp"
#include "sim/attention/group_tensors.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/spread.hpp"
#include "sim/base/workers.hpp"

namespace kvsim::sim {
namespace {

/// The correlations of one query head, one per hash length.
using PerLength = std::vector<std::optional<double>>;

/// A query, the keys up to its position, and the attention that it pays them.
struct Attended {
  MatrixView query;  ///< one row
  MatrixView keys;
  std::vector<float> attention;  ///< [keys.rows]

  Attended(const AttentionShape& shape, MatrixView q, MatrixView k) : query(q), keys(k), attention(k.rows) {
    attention_rows(shape, query, keys.rows - 1, KeyPanels(keys), attention.data(), keys.rows);
  }
};

/// Correlates the attention on keys [from, keys.rows) with the likeness of their hashes. `key` seeds the
/// projections.
PerLength correlate(const Attended& attended, std::size_t from, const HashStudy& study, std::uint64_t key) {
  const std::size_t n = attended.keys.rows - std::min(from, attended.keys.rows);
  const std::size_t most = *std::max_element(study.bits.begin(), study.bits.end());
  // The bits in which each key's hash differs from the query's, per projection. A shorter hash is the first
  // bits of it.
  std::vector<std::uint64_t> differing;
  for (std::size_t p = 0; p < study.projections; ++p) {
    const policy::SimHash hash(most, attended.keys.cols, combine({key, p}));
    const std::uint64_t query = hash(attended.query.row(0));
    for (std::size_t j = 0; j < n; ++j)
      differing.push_back(hash(attended.keys.row(attended.keys.rows - n + j)) ^ query);
  }
  const std::vector<double> attention(attended.attention.end() - static_cast<std::ptrdiff_t>(n),
                                      attended.attention.end());
  PerLength out;
  for (const std::size_t bits : study.bits) {
    const std::uint64_t mask = ~std::uint64_t{0} >> (policy::kMaxHashBits - bits);
    std::vector<double> likeness(n);
    for (std::size_t j = 0; j < n; ++j) {
      int distance = 0;
      for (std::size_t p = 0; p < study.projections; ++p)
        distance += std::popcount(differing[p * n + j] & mask);
      likeness[j] = 1 - static_cast<double>(distance) / static_cast<double>(bits * study.projections);
    }
    out.push_back(pearson(attention, likeness));
  }
  return out;
}

/// Returns [rows, dim] standard normal draws.
std::vector<float> noise(std::size_t rows, std::size_t dim, std::uint64_t key) {
  std::vector<float> out(rows * dim);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(normal(combine({key, i})));
  return out;
}

Correlations summary(std::span<const PerLength> heads, std::size_t length) {
  std::vector<double> defined;
  for (const PerLength& head : heads)
    if (head[length]) defined.push_back(*head[length]);
  Correlations out;
  out.defined = defined.size();
  out.undefined = heads.size() - defined.size();
  if (defined.empty()) return out;
  out.mean = mean_of(defined);
  double squares = 0;
  for (const double r : defined) squares += (r - *out.mean) * (r - *out.mean);
  out.spread = std::sqrt(squares / static_cast<double>(defined.size()));
  return out;
}

void check(const trace::Sequence& sequence, const HashStudy& study) {
  if (study.bits.empty()) usage_error("no hash length to study");
  for (const std::size_t bits : study.bits)
    if (bits == 0 || bits > policy::kMaxHashBits)
      usage_error("a hash has 1 to " + std::to_string(policy::kMaxHashBits) + " bits, not " +
                  std::to_string(bits));
  if (study.projections == 0) usage_error("no projection to hash with");
  if (sequence.first_query() >= sequence.prompt_length())
    usage_error("does not store the last prompt query", sequence.source().name());
}

}  // namespace

std::vector<HashCorrelation> hash_correlation(const trace::Sequence& sequence, const HashStudy& study,
                                              Progress& progress) {
  check(sequence, study);
  const trace::Model& model = sequence.model();
  const std::size_t prompt = sequence.prompt_length(), dim = model.head_dim, group = model.group();
  std::vector<PerLength> from_trace(std::size_t{model.n_layers} * model.n_q_heads),
      from_noise(from_trace.size());
  progress.total.store(from_trace.size(), std::memory_order_relaxed);
  Workers workers(study.threads);
  workers.run(std::size_t{model.n_layers} * model.n_kv_heads, [&](std::size_t lane) {
    const auto layer = static_cast<std::uint32_t>(lane / model.n_kv_heads);
    const auto kv_head = static_cast<std::uint32_t>(lane % model.n_kv_heads);
    const std::uint64_t key = combine({study.seed, key_of("hash correlation"), layer, kv_head});
    const std::size_t from = std::max(study.skip, model.first_seen(layer, prompt - 1));
    std::vector<float> keys(prompt * dim), query(dim);
    read_finite(sequence, trace::Tensor::key, layer, kv_head, 0, prompt, keys);
    for (std::size_t g = 0; g < group; ++g) {
      progress.check();
      const std::size_t head = kv_head * group + g, out = std::size_t{layer} * model.n_q_heads + head;
      read_finite(sequence, trace::Tensor::query, layer, static_cast<std::uint32_t>(head), prompt - 1, 1,
                  query);
      from_trace[out] = correlate(
          {attention_shape(model, layer, head), {query.data(), 1, dim, dim}, {keys.data(), prompt, dim, dim}},
          from, study, key);
      // The noise has as many keys as the trace's correlation.
      const std::size_t n = std::max<std::size_t>(prompt - std::min(from, prompt), 1);
      const std::vector<float> drawn = noise(n + 1, dim, combine({key, key_of("noise"), g}));
      const MatrixView all{drawn.data(), n + 1, dim, dim};
      from_noise[out] = correlate({{1 / std::sqrt(static_cast<double>(dim)), -1},
                                   {all.data, 1, dim, dim},
                                   {all.data + dim, n, dim, dim}},
                                  0, study, combine({key, key_of("noise")}));
      progress.advance();
    }
  });
  const std::size_t heads = study.per == HashScope::all     ? from_trace.size()
                            : study.per == HashScope::layer ? model.n_q_heads
                                                            : 1;
  std::vector<HashCorrelation> out;
  for (std::size_t first = 0; first < from_trace.size(); first += heads) {
    HashCorrelation of;
    if (study.per != HashScope::all) of.layer = first / model.n_q_heads;
    if (study.per == HashScope::head) of.head = first % model.n_q_heads;
    for (std::size_t length = 0; length < study.bits.size(); ++length) {
      of.bits = study.bits[length];
      of.trace = summary(std::span(from_trace).subspan(first, heads), length);
      of.noise = summary(std::span(from_noise).subspan(first, heads), length);
      out.push_back(of);
    }
  }
  return out;
}

}  // namespace kvsim::sim
