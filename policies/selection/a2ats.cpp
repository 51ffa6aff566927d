// A2ATS: logits from codes of whole keys before rotation, whose centres suit the queries.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "policies/parts/codes/calibrated_tables.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/index/k_means.hpp"
#include "policies/parts/index/reading.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy::a2ats {
namespace {

constexpr std::uint64_t kNumberBits = 16;

struct Rule {
  Amount read;
  std::size_t centres = 4096, offset = 2048, window = 64, sinks = 8, rounds = 300;

  static Rule of(const Params& params) {
    return {params.amount("read"),  params.count("centres"), params.count("offset"),
            params.count("window"), params.count("sinks"),   params.count("rounds")};
  }
  bool is_near(Position position, Position own) const {
    return static_cast<std::size_t>(position) < sinks || static_cast<std::size_t>(own - position) < window;
  }
  /// What the codes of so many tokens and all centres take, per lane.
  std::uint64_t lane_bits(std::size_t tokens, std::size_t size, std::size_t dim) const {
    return tokens * static_cast<std::uint64_t>(std::bit_width(size - 1)) + size * dim * kNumberBits;
  }
};

std::string maker(const Params& params) {
  return calibration_maker("a2ats", params, {"centres", "offset", "rounds"});
}

/// How one KV head's keys are coded: the nearest centre after multiplication by a factor L, in which
/// |(k - c) L|^2 is the squared error of the queries' products with k.
struct Codebook {
  std::vector<float> factor{};  ///< [dim, dim], lower triangular
  VectorCode after{};           ///< centres, multiplied by it
  VectorCode plain{};           ///< centres as queries are multiplied with them

  Codebook() = default;
  Codebook(std::vector<float> lower, VectorCode centres)
      : factor(std::move(lower)), after(std::move(centres)) {
    // c L = a, from the last component on.
    const std::size_t dim = after.dim;
    plain = after;
    std::vector<double> solved(dim);
    for (std::size_t i = 0; i < after.size(); ++i) {
      for (std::size_t c = dim; c-- > 0;) {
        auto rest = static_cast<double>(after.centre(i)[c]);
        for (std::size_t r = c + 1; r < dim; ++r)
          rest -= solved[r] * static_cast<double>(factor[r * dim + c]);
        solved[c] = rest / static_cast<double>(factor[c * dim + c]);
      }
      for (std::size_t c = 0; c < dim; ++c)
        plain.centres[i * dim + c] = nearest_half(static_cast<float>(solved[c]));
    }
  }
  void multiply(std::span<const float> key, std::span<float> out) const {
    for (std::size_t c = 0; c < key.size(); ++c) {
      float sum = 0;
      for (std::size_t r = c; r < key.size(); ++r) sum += key[r] * factor[r * key.size() + c];
      out[c] = sum;
    }
  }
};

/// What codebooks of one KV head are made of.
class Learner {
 public:
  Learner(const Rule& rule, std::size_t dim) : rule_(rule), dim_(dim), moments_(dim * dim) {}

  /// Row r stands at position `first` + r.
  void add(std::span<const MatrixView> queries, const MatrixView& keys, const Rotary& rotary,
           std::size_t first = 0) {
    std::vector<float> row(dim_);
    for (std::size_t i = 0; i < keys.rows; ++i) {
      std::ranges::copy(keys.row(i), row.begin());
      unrotate(rotary, first + i, dim_, row);
      keys_.insert(keys_.end(), row.begin(), row.end());
      for (const MatrixView& head : queries) {
        std::ranges::copy(head.row(i), row.begin());
        unrotate(rotary, first + i, dim_, row);
        rotate(rotary, rule_.offset, dim_, row);
        for (std::size_t a = 0; a < dim_; ++a)
          for (std::size_t b = 0; b <= a; ++b)
            moments_[a * dim_ + b] += static_cast<double>(row[a]) * static_cast<double>(row[b]);
      }
    }
  }
  std::size_t tokens() const { return keys_.size() / dim_; }
  /// size <= tokens().
  Codebook learn(std::size_t size, std::uint64_t key) const {
    std::vector<double> h(dim_ * dim_);
    double squares = 0;
    for (std::size_t a = 0; a < dim_; ++a)
      for (std::size_t b = 0; b < dim_; ++b) {
        h[a * dim_ + b] = moments_[std::max(a, b) * dim_ + std::min(a, b)];
        squares += h[a * dim_ + b] * h[a * dim_ + b];
      }
    const double rms = std::sqrt(squares / static_cast<double>(h.size()));
    for (std::size_t i = 0; i < h.size(); ++i) {
      if (rms > 0) h[i] /= rms;
      if (i % (dim_ + 1) == 0) h[i] += 1e-6;
    }
    Codebook out;
    for (const double x : cholesky_factor(h, dim_, 1e-12)) out.factor.push_back(static_cast<float>(x));
    std::vector<float> points(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); i += dim_)
      out.multiply(std::span(keys_).subspan(i, dim_), std::span(points).subspan(i, dim_));
    return {
        out.factor,
        {dim_, k_means({points.data(), tokens(), dim_, dim_}, size, key, rule_.rounds, KMeansStart::plus_plus)
                   .centres}};
  }

 private:
  Rule rule_;
  std::size_t dim_;
  std::vector<double> moments_;  ///< sums of q q^T of the turned queries, lower triangle
  std::vector<float> keys_;      ///< before rotation
};

class CodebookCalibrator final : public Calibrator {
 public:
  CodebookCalibrator(const Rule& rule, const CacheUnit& layer)
      : rule_(rule),
        layer_(layer),
        lanes_(static_cast<std::size_t>(layer.n_lanes),
               Learner(rule, static_cast<std::size_t>(layer.head_dim))) {}

  bool needs_queries() const override { return true; }
  void observe(const LayerTokens& tokens) override {
    const auto group = static_cast<std::size_t>(layer_.group);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      lanes_[lane].add(std::span(tokens.queries).subspan(lane * group, group), tokens.keys[lane],
                       tokens.rotary);
  }
  std::vector<CalibratedTable> tables() override {
    if (lanes_[0].tokens() < rule_.centres)
      input_error(std::to_string(lanes_[0].tokens()) + " tokens have no " + std::to_string(rule_.centres) +
                      " centres",
                  "a2ats", "Calibrate on longer runs, or with fewer centres=.");
    CalibratedTable factor{"factor", {}}, centres{"centres", {}};
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      Codebook book = lanes_[lane].learn(
          rule_.centres, combine({key_of("a2ats"), static_cast<std::uint64_t>(layer_.layer), lane}));
      factor.of_head.push_back(std::move(book.factor));
      centres.of_head.push_back(std::move(book.after.centres));
    }
    return {std::move(factor), std::move(centres)};
  }

 private:
  Rule rule_;
  CacheUnit layer_;
  std::vector<Learner> lanes_;
};

class CodeSelector final : public UnitSelector {
 public:
  CodeSelector(const Rule& rule, const CacheUnit& unit, const std::vector<Codebook>& codebooks)
      : UnitSelector(unit),
        rule_(rule),
        codebooks_(codebooks),
        codes_(codebooks.size()),
        row_(dim_),
        after_(dim_) {}

  void begin(const Prompt& prompt, const StoredTokens& tokens) override {
    rotary_ = prompt.rotary();
    joined(0, 0, tokens);
  }
  void joined(std::size_t own_slot, std::size_t moved_from, const StoredTokens& tokens) override {
    for (auto& lane : codes_) lane.resize(tokens.slots());
    for_changed(own_slot, moved_from, tokens, [&](std::size_t slot) { code(slot, tokens); });
  }

  void select(const Asking& asking, const StoredTokens& tokens, Reads& reads) override {
    const std::size_t slots = tokens.slots(), count = rule_.read.of(slots);
    if (count >= slots) return reads.everything(slots);
    candidates_.clear();
    for (std::size_t slot = 0; slot < slots; ++slot)
      if (!rule_.is_near(tokens.positions()[slot], asking.position)) candidates_.push_back(slot);
    for (std::size_t lane = 0; lane < codebooks_.size(); ++lane) {
      is_read_.assign(slots, 1);
      for (const std::size_t slot : candidates_) is_read_[slot] = 0;
      for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head) {
        score(asking, tokens, lane, head);
        highest_scores(scores_, count, chosen_);
        for (const std::size_t i : chosen_) is_read_[candidates_[i]] = 1;
      }
      for (std::size_t head = lane * group_; head < (lane + 1) * group_; ++head)
        for (std::size_t slot = 0; slot < slots; ++slot)
          if (is_read_[slot]) reads.of(head).push_back(slot);
      reads.index_bits += rule_.lane_bits(candidates_.size(), codebooks_[lane].plain.size(), dim_);
    }
  }

  std::uint64_t index_bits() const override {
    std::uint64_t bits = 0;
    for (std::size_t lane = 0; lane < codebooks_.size(); ++lane)
      bits += rule_.lane_bits(codes_[lane].size(), codebooks_[lane].plain.size(), dim_) +
              dim_ * dim_ * kNumberBits;
    return bits;
  }

 private:
  /// Of the candidates, by the query turned to the one offset from all keys.
  void score(const Asking& asking, const StoredTokens& tokens, std::size_t lane, std::size_t head) {
    const VectorCode& centres = codebooks_[lane].plain;
    std::ranges::copy(asking.queries.row(head), row_.begin());
    unrotate(rotary_, static_cast<std::uint64_t>(asking.position), dim_, row_);
    rotate(rotary_, rule_.offset, dim_, row_);
    products_.resize(centres.size());
    for (std::size_t i = 0; i < centres.size(); ++i)
      products_[i] = static_cast<float>(asking.scale) * dot(row_.data(), centres.centre(i).data(), dim_);
    scores_.clear();
    for (const std::size_t slot : candidates_)
      scores_.push_back(products_[codes_[lane][slot]] + tokens.bias(lane, slot));
  }

  void code(std::size_t slot, const StoredTokens& tokens) {
    for (std::size_t lane = 0; lane < codes_.size(); ++lane) {
      std::ranges::copy(tokens.key(lane, slot), row_.begin());
      unrotate(rotary_, static_cast<std::uint64_t>(tokens.positions()[slot]), dim_, row_);
      codebooks_[lane].multiply(row_, after_);
      codes_[lane][slot] = static_cast<std::uint32_t>(codebooks_[lane].after.nearest(after_));
    }
  }

  Rule rule_;
  const std::vector<Codebook>& codebooks_;
  Rotary rotary_{};
  std::vector<std::vector<std::uint32_t>> codes_;       ///< per lane and slot
  std::vector<float> row_, after_, products_, scores_;  // scratch
  std::vector<std::size_t> candidates_, chosen_;
  std::vector<char> is_read_;
};

class A2ats final : public Selection {
 public:
  A2ats(const Params& params, const CacheUnit& unit)
      : rule_(Rule::of(params)), unit_(unit), from_prompt_(measures_prompt(params)) {
    const CalibratedTables tables(maker(params), params, unit);
    if (from_prompt_ || !tables.readable()) return;
    const auto dim = static_cast<std::size_t>(unit.head_dim);
    for (int lane = 0; lane < unit.n_lanes; ++lane) {
      std::vector<float> factor = tables.lane("factor", lane, dim * dim);
      for (std::size_t c = 0; c < dim; ++c)
        if (!(factor[c * (dim + 1)] > 0))
          input_error("has a factor that cannot be undone", params.word("file"),
                      "Make it anew: kvsim calibrate.");
      codebooks_.emplace_back(std::move(factor),
                              VectorCode{dim, tables.lane("centres", lane, rule_.centres * dim)});
    }
  }

  void finish_prompt(const Prompt& prompt) override {
    if (!from_prompt_) return;
    for (int lane = 0; lane < unit_.n_lanes; ++lane) {
      Learner learner(rule_, static_cast<std::size_t>(unit_.head_dim));
      std::vector<MatrixView> queries;
      for (int g = 0; g < unit_.group; ++g) queries.push_back(prompt.queries(lane * unit_.group + g));
      learner.add(queries, prompt.keys(lane), prompt.rotary(), prompt.first());
      codebooks_.push_back(
          learner.learn(std::min(rule_.centres, learner.tokens()),
                        combine({unit_.seed, key_of("a2ats"), static_cast<std::uint64_t>(unit_.layer),
                                 static_cast<std::uint64_t>(unit_.first_kv_head + lane)})));
    }
  }
  std::unique_ptr<Selector> selector() const override {
    return std::make_unique<CodeSelector>(rule_, unit_, codebooks_);
  }

 private:
  Rule rule_;
  CacheUnit unit_;
  bool from_prompt_;
  std::vector<Codebook> codebooks_;  ///< per lane
};

ReadCount reads_of(const Params& params, const CostShape& shape, std::size_t stored) {
  const Rule rule = Rule::of(params);
  const std::size_t near = std::min(stored, rule.sinks + rule.window), count = rule.read.of(stored);
  ReadCount out = dense_reads(std::min(stored, near + shape.query_heads / shape.kv_heads * count));
  const auto bytes = [&](std::uint64_t lane_bits) {
    return static_cast<double>(shape.kv_heads * lane_bits) / 8;
  };
  const std::uint64_t factor = shape.head_dim * shape.head_dim * kNumberBits;
  out.index_bytes = bytes(rule.lane_bits(stored, rule.centres, shape.head_dim) + factor);
  if (count < stored)
    out.index_bytes_read = bytes(rule.lane_bits(stored - near, rule.centres, shape.head_dim));
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "a2ats",
      .summary =
          "reads the tokens of the highest logits by codes of keys before rotation, learned with the queries",
      .paper =
          "He, Xing, Xu, Wu, Huo, Lu, Yu, Wang, A2ATS: Retrieval-Based KV Cache Reduction via Windowed "
          "Rotary Position Embedding and Query-Aware Vector Quantization, ACL 2025, arXiv 2502.12665",
      .details =
          "A query is turned as if it stood 2048 positions behind every key, so that keys before rotation "
          "are what it is multiplied with. These are coded as the nearest of 4096 centres per KV head, in "
          "the metric of the queries: with H the sum of q q^T of the turned queries and H = L L^T, |(k - c) "
          "L|^2 is the squared error of logits, and k-means (k-means++, at most 300 rounds) clusters k L. "
          "Each query head names the 3 % of the tokens with the highest coded logits that are neither among "
          "the first 8 nor the newest 64; all heads of a KV head read what any of them names, and those. "
          "What is said of a cost is the most: no two heads name the same.",
      .departures = {{"paper: centres are learned of other texts",
                      "that is file=, made by kvsim calibrate; the default, file=prompt, clusters the "
                      "prompt's own keys and "
                      "stands in for it, with as many centres as it has tokens where these are fewer"},
                     {"authors' code: texts of 64K tokens and 16K random ones",
                      "the traces that kvsim calibrate is given"},
                     {"the factor L codes every new key",
                      "its 16-bit numbers count as part of the index, not as read"}},
      .params = with_optional_calibration(
          {read_param("3%"), count_param("centres", "4096", {2, 65536}, "of a KV head's keys"),
           count_param("offset", "2048", {0, 1 << 20},
                       "between the query and every key, as the query is turned", "tokens"),
           count_param("window", "64", {0, 1 << 20}, "newest that are always read", "tokens"),
           count_param("sinks", "8", {0, 65536}, "first of the sequence that are always read", "tokens"),
           count_param("rounds", "300", {1, 10000}, "of k-means at most"), dense_param(0)}),
      .needs_of =
          [](const Params& params) { return Needs{.keys = true, .queries = measures_prompt(params)}; },
      .randomised = true,
      .calibration_maker = maker,
      .make_calibrator = [](const Params& params, const CacheUnit& layer) -> std::unique_ptr<Calibrator> {
        return std::make_unique<CodebookCalibrator>(Rule::of(params), layer);
      },
      .rule = SelectionRule{.reads = behind_dense<reads_of>, .make = selected<A2ats>}};
}

}  // namespace kvsim::policy::a2ats
