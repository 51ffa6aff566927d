// InfLLM: blocks of the past whose representative tokens a query asks for.
#include <algorithm>
#include <limits>
#include <vector>

#include "policies/parts/index/reading.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rotary.hpp"

namespace kvsim::policy::infllm {
namespace {

struct Rule {
  Amount read;
  std::size_t block = 128, representatives = 4, sinks = 128, local = 4096;

  /// Blocks among `stored` tokens, the query's own included.
  std::size_t blocks(std::size_t stored) const {
    return (stored - std::min(stored, sinks + local + 1)) / block;
  }
  std::size_t chosen(std::size_t stored) const {
    const auto tokens = static_cast<std::size_t>(read.of(stored));
    return tokens == stored ? stored : tokens / block;
  }
};

class InfllmSelector final : public UnitSelector {
 public:
  InfllmSelector(const Rule& rule, const CacheUnit& unit)
      : UnitSelector(unit), rule_(rule), heads_(n_lanes_ * group_) {}

  void begin(const Prompt& prompt, const StoredTokens& /*tokens*/) override {
    rotary_ = prompt.rotary();
    inv_freq_.assign(rotary_.inv_freq.begin(), rotary_.inv_freq.end());
    rotary_.inv_freq = inv_freq_;
    row_.resize(dim_);
    const std::size_t n = prompt.length();
    reach(prompt.first() + n);
    std::vector<double> following(dim_);
    const auto add = [&](std::span<const float> query, double sign) {
      for (std::size_t c = 0; c < dim_; ++c) following[c] += sign * static_cast<double>(query[c]);
    };
    for (std::size_t head = 0; head < heads_; ++head) {
      const MatrixView queries = prompt.queries(static_cast<int>(head)),
                       keys = prompt.keys(static_cast<int>(head / group_));
      std::ranges::fill(following, 0);
      for (std::size_t row = n; row-- > 0;) {
        if (row + 1 < n) add(queries.row(row + 1), 1);
        if (row + 1 + rule_.local < n) add(queries.row(row + 1 + rule_.local), -1);
        double score = 0;
        for (std::size_t c = 0; c < dim_; ++c) score += following[c] * static_cast<double>(keys(row, c));
        scores_[(prompt.first() + row) * heads_ + head] = score;
      }
    }
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots();
    observe(asking, tokens);
    form(asking.position, tokens);
    const std::size_t chosen = rule_.chosen(slots);
    if (chosen >= blocks_) return reads.everything(slots);
    const std::vector<char> wanted = ask(asking, chosen);
    reads.index_bits += index_bits();
    std::vector<std::size_t>& first = reads.of(0);
    for (std::size_t slot = 0; slot < slots; ++slot)
      if (const std::size_t place = place_[at(tokens, slot)]; place >= kSink || wanted[place] != 0)
        first.push_back(slot);
    for (std::size_t head = 1; head < reads.heads(); ++head) reads.of(head) = first;
  }

  std::uint64_t index_bits() const override { return 16 * means_.size(); }

 private:
  static constexpr std::size_t kOpen = std::numeric_limits<std::size_t>::max(), kSink = kOpen - 1;

  static std::size_t at(const StoredTokens& tokens, std::size_t slot) {
    return static_cast<std::size_t>(tokens.positions()[slot]);
  }
  void reach(std::size_t positions) {
    place_.resize(positions, kOpen);
    scores_.resize(positions * heads_);
  }

  /// A query that comes for the first time counts for the tokens that it follows within the window.
  void observe(const Asking& asking, const StoredTokens& tokens) {
    const auto now = static_cast<std::size_t>(asking.position);
    if (now < place_.size()) return;
    reach(now + 1);
    for (std::size_t slot = 0; slot < tokens.slots(); ++slot) {
      const std::size_t token = at(tokens, slot);
      if (token >= now || token + rule_.local < now || place_[token] != kOpen) continue;
      for (std::size_t head = 0; head < heads_; ++head)
        scores_[token * heads_ + head] += static_cast<double>(
            dot(asking.queries.row(head).data(), tokens.key(head / group_, slot).data(), dim_));
    }
  }

  /// Cuts blocks from what is neither sink nor block, as far as whole ones lie before the window of the token
  /// at `now`, which counts as the first behind them.
  void form(Position now, const StoredTokens& tokens) {
    std::vector<std::size_t> open;  // slots
    for (std::size_t slot = 0; slot < tokens.slots(); ++slot)
      if (tokens.positions()[slot] < now && place_[at(tokens, slot)] == kOpen) open.push_back(slot);
    std::size_t first = rule_.sinks - sinks_;
    if (open.size() < first + rule_.block + rule_.local) return;
    std::ranges::sort(open, {}, [&](std::size_t slot) { return tokens.positions()[slot]; });
    for (std::size_t i = 0; i < first; ++i) place_[at(tokens, open[i])] = kSink;
    sinks_ = rule_.sinks;
    for (; open.size() >= first + rule_.block + rule_.local; first += rule_.block, ++blocks_) {
      const std::span<const std::size_t> block = std::span(open).subspan(first, rule_.block);
      for (const std::size_t slot : block) place_[at(tokens, slot)] = blocks_;
      for (std::size_t head = 0; head < heads_; ++head) represent(block, head, tokens);
    }
  }

  /// Appends the mean key, before rotation, of the tokens that stand for the block.
  void represent(std::span<const std::size_t> block, std::size_t head, const StoredTokens& tokens) {
    std::vector<float> scores;
    for (const std::size_t slot : block)
      scores.push_back(static_cast<float>(scores_[at(tokens, slot) * heads_ + head]));
    std::vector<std::size_t> best;
    highest_scores(scores, rule_.representatives, best);
    std::vector<double> sum(dim_);
    for (const std::size_t i : best) {
      unrotated(tokens.key(head / group_, block[i]), tokens.positions()[block[i]]);
      for (std::size_t c = 0; c < dim_; ++c) sum[c] += static_cast<double>(row_[c]);
    }
    for (const double x : sum) means_.push_back(static_cast<float>(x / static_cast<double>(best.size())));
  }

  /// Which blocks the queries of all heads together ask for, as if all were as far away as the window
  /// reaches.
  std::vector<char> ask(const Asking& asking, std::size_t chosen) {
    std::vector<float> scores;
    std::vector<double> sums(blocks_);
    for (std::size_t head = 0; head < heads_; ++head) {
      unrotated(asking.queries.row(head), asking.position);
      rotate(rotary_, rule_.local - 1, dim_, row_);
      for (std::size_t block = 0; block < blocks_; ++block)
        for (std::size_t c = 0; c < dim_; ++c)
          sums[block] +=
              static_cast<double>(row_[c]) * static_cast<double>(means_[(block * heads_ + head) * dim_ + c]);
    }
    for (const double sum : sums) scores.push_back(static_cast<float>(sum));
    std::vector<std::size_t> best;
    highest_scores(scores, chosen, best);
    std::vector<char> out(blocks_);
    for (const std::size_t block : best) out[block] = 1;
    return out;
  }

  void unrotated(std::span<const float> row, Position position) {
    std::ranges::copy(row, row_.begin());
    unrotate(rotary_, static_cast<std::uint64_t>(position), dim_, row_);
  }

  Rule rule_;
  std::size_t heads_;
  Rotary rotary_;
  std::vector<float> inv_freq_;
  std::vector<std::size_t> place_;  ///< per position: its block, kSink or kOpen
  /// Per position and query head: the sum of the logits that the following queries within the window give it.
  std::vector<double> scores_;
  std::size_t sinks_ = 0, blocks_ = 0;
  std::vector<float> means_;  ///< [blocks][heads][dim]
  std::vector<float> row_;
};

Rule rule_of(const Params& params) {
  return {params.amount("read"), params.count("block"), params.count("representatives"),
          params.count("sinks"), params.count("local")};
}

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = rule_of(params);
  const std::size_t blocks = rule.blocks(stored), chosen = rule.chosen(stored);
  ReadCount out = dense_reads(chosen >= blocks ? stored : stored - (blocks - chosen) * rule.block);
  out.run_tokens = static_cast<double>(rule.block);
  out.index_bytes = static_cast<double>(blocks * shape.query_heads * shape.head_dim * 2);
  if (chosen < blocks) out.index_bytes_read = out.index_bytes;
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "infllm",
      .summary = "reads a window and the blocks before it whose representative tokens the query asks for",
      .paper =
          "Xiao, Zhang, Han, Xiao, Lin, Zhang, Liu, Sun, InfLLM: Training-Free Long-Context Extrapolation for "
          "LLMs with an Efficient Context Memory, NeurIPS 2024, https://arxiv.org/abs/2402.04617",
      .details =
          "Always read are the first `sinks` tokens and the `local` newest. What lies between is cut into blocks as "
          "it leaves the window. For each query head those tokens stand for a block whose keys have the largest "
          "mean product with the `local` queries behind them. All heads of a layer read the read / block blocks "
          "with the largest products of the query and the mean key of these tokens, over all heads; keys are "
          "taken before rotation, the query as if they were as far away as the window reaches. What has left the "
          "window and fills no block is read, too.",
      .departures =
          {{"paper: the prompt passes through the window, and 512 of its queries together look blocks up",
            "the prompt is read whole, and only what follows the cut looks up"},
           {"authors' code: the tokens that stand for a block are those of the most attention within the window",
            "the paper's products before the softmax"},
           {"authors' code: all that is read beyond the window attends as if it were as far away as the window",
            "at the positions of the text"},
           {"authors' code: blocks beside the GPU, which caches 32",
            "not priced: --offload prices host memory"}},
      .params = {read_param("2048"), count_param("block", "128", {1, 1 << 20}, "tokens of a block", "tokens"),
                 count_param("representatives", "4", {1, 1 << 20}, "tokens that stand for a block", "tokens"),
                 count_param("sinks", "128", {0, 1 << 20}, "first tokens, always read", "tokens"),
                 count_param("local", "4096", {1, 1 << 20}, "newest tokens, always read", "tokens"),
                 dense_param(0)},
      .needs = {.keys = true, .queries = true},
      .layer_unit = [](const Params&) { return true; },
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selects<InfllmSelector>(rule_of)}};
}

}  // namespace kvsim::policy::infllm
