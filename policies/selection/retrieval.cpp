// RetrievalAttention: keys that an index finds for a query, beside the first and the last of the prompt.
#include <algorithm>
#include <limits>
#include <vector>

#include "policies/parts/index/key_index.hpp"
#include "policies/parts/index/reading.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::retrieval {
namespace {

struct Rule {
  Amount read;
  std::size_t sinks = 128, recent = 512;
  IndexRule index;
  Amount queries;

  /// Keys that the index holds of a prompt of so many tokens.
  std::size_t indexed(std::size_t prompt) const { return prompt - std::min(prompt, sinks + recent); }
};

class RetrievalSelector final : public Selector {
 public:
  RetrievalSelector(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), unit_(unit), indexes_(static_cast<std::size_t>(unit.n_lanes)) {}

  void begin(const Prompt& prompt, const StoredTokens& tokens) override {
    const std::vector<std::size_t> kept = least_first(tokens.positions());  // slots
    const std::size_t n = rule_.indexed(kept.size());
    number_.assign(prompt.first() + prompt.length(), kNone);
    slots_.assign(n, kNone);
    removed_.assign(n, 0);
    looked_at_.resize(n);
    if (n == 0) return;
    for (std::size_t i = 0; i < n; ++i)
      number_[static_cast<std::size_t>(tokens.positions()[kept[rule_.sinks + i]])] = i;
    const auto dim = static_cast<std::size_t>(unit_.head_dim);
    for (std::size_t lane = 0; lane < indexes_.size(); ++lane) {
      std::vector<float> keys;
      keys.reserve(n * dim);
      for (std::size_t i = 0; i < n; ++i) {
        const std::span<const float> key = tokens.key(lane, kept[rule_.sinks + i]);
        keys.insert(keys.end(), key.begin(), key.end());
      }
      std::vector<MatrixView> queries;
      if (rule_.index.kind == IndexKind::query_graph)
        for (int head = 0; head < unit_.group; ++head) {
          MatrixView rows = prompt.queries(static_cast<int>(lane) * unit_.group + head);
          const auto asked = static_cast<std::size_t>(rule_.queries.of(rows.rows));
          rows.data += (rows.rows - asked) * rows.stride;
          rows.rows = asked;
          queries.push_back(rows);
        }
      indexes_[lane] =
          make_key_index(rule_.index, std::move(keys), dim, queries,
                         combine({unit_.seed, key_of("retrieval"), static_cast<std::uint64_t>(unit_.layer),
                                  static_cast<std::uint64_t>(unit_.first_kv_head) + lane}));
    }
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), count = static_cast<std::size_t>(rule_.read.of(slots));
    if (count >= slots_.size()) return reads.everything(slots);
    std::ranges::fill(slots_, kNone);
    always_.clear();
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const auto at = static_cast<std::size_t>(tokens.positions()[slot]);
      if (const std::size_t i = at < number_.size() ? number_[at] : kNone; i == kNone)
        always_.push_back(slot);
      else
        slots_[i] = slot;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i)
      if (slots_[i] == kNone && removed_[i] == 0) {
        removed_[i] = 1;
        for (const auto& index : indexes_) index->remove(i);
      }
    const auto dim = static_cast<std::size_t>(unit_.head_dim);
    for (std::size_t lane = 0; lane < indexes_.size(); ++lane) {
      std::ranges::fill(looked_at_, 0);
      const auto group = static_cast<std::size_t>(unit_.group);
      for (std::size_t head = lane * group; head < (lane + 1) * group; ++head) {
        indexes_[lane]->search(asking.queries.row(head), count, looked_at_, found_);
        std::vector<std::size_t>& of = reads.of(head);
        of = always_;
        for (const std::size_t i : found_) of.push_back(slots_[i]);
      }
      reads.index_bits += rule_.index.search_bits(slots_.size(), dim) +
                          16 * dim * static_cast<std::size_t>(std::ranges::count(looked_at_, 1));
    }
  }

  std::uint64_t index_bits() const override {
    std::uint64_t bits = 0;
    for (const auto& index : indexes_)
      if (index) bits += index->bits();
    return bits;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  Rule rule_;
  CacheUnit unit_;
  std::vector<std::unique_ptr<KeyIndex>> indexes_;  ///< per lane
  std::vector<std::size_t> number_;                 ///< in the index, per position of the prompt
  std::vector<std::size_t> slots_;                  ///< of the keys in the index
  std::vector<char> removed_, looked_at_;           ///< per key in the index
  std::vector<std::size_t> always_, found_;
};

Rule rule_of(const Params& params) {
  IndexRule index{.lists = params.count("lists"),
                  .probes = params.amount("probes"),
                  .degree = params.count("degree"),
                  .beam = params.count("beam"),
                  .neighbours = params.count("neighbours")};
  for (const auto& [name, kind] : {std::pair{"flat", IndexKind::flat},
                                   {"ivf", IndexKind::ivf},
                                   {"graph", IndexKind::graph},
                                   {"query_graph", IndexKind::query_graph}})
    if (params.is("index", name)) index.kind = kind;
  return {params.amount("read"), params.count("sinks"), params.count("recent"), index,
          params.amount("queries")};
}

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = rule_of(params);
  const std::size_t keys = rule.indexed(std::min(shape.prompt, stored)),
                    count = static_cast<std::size_t>(rule.read.of(stored)),
                    group = shape.query_heads / shape.kv_heads;
  const double lanes = static_cast<double>(shape.kv_heads);
  ReadCount out = dense_reads(stored);
  if (keys > 0) out.index_bytes = lanes * static_cast<double>(rule.index.bits(keys, shape.head_dim)) / 8;
  if (count >= keys) return out;
  out.head_tokens = static_cast<double>(stored - keys + count);
  out.lane_tokens = static_cast<double>(stored - keys + std::min(keys, count * group));
  // Single keys, and before and behind them what is always read.
  out.run_tokens = out.lane_tokens / static_cast<double>(std::min(keys, count * group) + 2);
  const std::size_t looked_at = std::min(keys, group * rule.index.looked_at(keys, count));
  out.index_bytes_read =
      lanes *
      static_cast<double>(rule.index.search_bits(keys, shape.head_dim) + 16 * shape.head_dim * looked_at) / 8;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "retrieval",
      .summary = "reads the keys that an index finds for a query, beside the first and last of the prompt",
      .paper =
          "Liu, Chen, Lu, Jiang, Han, Zhang, Chen, Zhang, Ding, Zhang, Chen, Yang, Yang, Qiu, "
          "RetrievalAttention: Accelerating Long-Context LLM Inference via Vector Retrieval, arXiv 2024, "
          "https://arxiv.org/abs/2409.10516",
      .details =
          "The first 128 and the last 512 tokens of the prompt and every generated token are always read. "
          "The other keys of the prompt are in an index per KV head, in which every query head finds the "
          "`read` keys of the largest products. index=query_graph links keys that are nearest to the same "
          "query of the prompt: queries are distributed unlike keys, so that keys near each other are not "
          "those that a query looks for. A search starts at the key that is nearest to most of those queries "
          "and goes on from the best `beam` keys found. index=graph is HNSW, of keys alone; ivf looks at the "
          "lists of the centres nearest to the query; flat at all keys. What a search looks at counts as "
          "read of the index.",
      .departures =
          {{"paper: the graph's construction, beyond that the nearest keys of prefill queries make it",
            "a query's nearest key is linked with its next ones; each key keeps the `degree` links that most "
            "queries make, and has links to its neighbours in the text, so that all are reached"},
           {"MInference's code: a flat index, of which 2000 keys are read",
            "the preset retrieval_attention.minference"},
           {"MInference's code, commented out: 512 lists in 8 bits, of which 150 are probed",
            "index=ivf with 30 % of the lists, which have at least eight keys on average, in 16 bits"},
           {"paper and code: the index is searched on the processor, and both results are merged",
            "one attention over all that is read, which is the same"}},
      .params = {read_param("100"),
                 choice_param("index", "query_graph", {"query_graph", "graph", "ivf", "flat"},
                              "how keys are found"),
                 count_param("sinks", "128", {0, 1 << 20}, "first of the prompt, always read", "tokens"),
                 count_param("recent", "512", {0, 1 << 20}, "last of the prompt, always read", "tokens"),
                 count_param("lists", "512", {1, 65536}, "ivf: clusters of keys, at most", "lists"),
                 amount_param("probes", "0.3", "ivf: that a query looks at", "lists"),
                 count_param("degree", "16", {2, 256}, "graphs: of a key (HNSW's M)", "links"),
                 count_param("beam", "100", {1, 65536},
                             "graphs: best found from which a search goes on; at least `read`", "keys"),
                 count_param("neighbours", "8", {2, 1024},
                             "query_graph: nearest to a query, of which the first is linked with the others",
                             "keys"),
                 amount_param("queries", "1.0", "query_graph: last of the prompt that link keys", "tokens"),
                 dense_param(0)},
      .needs = {.keys = true, .queries = true},
      .randomised = true,
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<RetrievalSelector>(rule_of)}};
}

}  // namespace kvsim::policy::retrieval
