// Salient tokens in more bits than the others; all are coded again as tokens are generated.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::zipcache {
namespace {

/// What the attention that a token has received is divided by.
enum class Normaliser { probes, rows, none };

struct Rule {
  ScalarCode salient{}, regular{};
  double share = 0, recent = 0, random = 0;
  std::size_t every = 100;
  Normaliser normaliser = Normaliser::probes;
  bool separable = true;
  bool last = false;  ///< generated tokens are ranked by the latest row instead of by probes

  static Rule of(const Params& params) {
    Rule out;
    out.salient.bits = std::stoull(params.word("hi"));
    out.regular.bits = std::stoull(params.word("lo"));
    out.share = params.share("share");
    out.recent = params.share("recent");
    out.random = params.share("random");
    out.every = params.count("every");
    out.normaliser = params.is("normalise", "probes") ? Normaliser::probes
                     : params.is("normalise", "rows") ? Normaliser::rows
                                                      : Normaliser::none;
    out.separable = params.flag("separable");
    out.last = params.is("ranking", "last");
    return out;
  }
  std::size_t salient_of(std::size_t tokens) const {
    return static_cast<std::size_t>(share * static_cast<double>(tokens));
  }
  bool scores() const { return share > 0 && share < 1; }

  std::size_t last_probes(std::size_t rows) const {
    return std::max<std::size_t>(1, static_cast<std::size_t>(recent * static_cast<double>(rows)));
  }
  std::size_t drawn_probes(std::size_t rows) const {
    return last_probes(rows) == rows ? 0 : static_cast<std::size_t>(random * static_cast<double>(rows));
  }
  /// How often each of `rows` rows is a probe: the last ones once, and as many draws of the others as the
  /// rule says.
  std::vector<double> probes(std::size_t rows, std::uint64_t key) const {
    std::vector<double> out(rows);
    const std::size_t others = rows - last_probes(rows);
    std::fill(out.begin() + static_cast<std::ptrdiff_t>(others), out.end(), 1);
    for (std::size_t draw = 0; draw < drawn_probes(rows); ++draw)
      out[static_cast<std::size_t>(uniform01(combine({key, draw})) * static_cast<double>(others))] += 1;
    return out;
  }
};

/// Of the draws of a layer. `stretch`: 0 for the prompt, then one more each time that tokens are coded.
std::uint64_t draws_of(const CacheUnit& unit, std::size_t stretch) {
  return combine({unit.seed, key_of("zipcache"), static_cast<std::uint64_t>(unit.layer), stretch});
}

/// Tokens of a lane.
struct Counts {
  std::uint64_t salient = 0, regular = 0, waiting = 0;
};

Ledger lane_ledger(const Rule& rule, const StorageShape& shape, const Counts& counts) {
  const std::uint64_t numbers = shape.key_dim + shape.value_dim;
  Ledger out;
  out.exact = counts.waiting * numbers * shape.element_bits;
  std::uint64_t coded = 0;
  const auto add = [&](const ScalarCode& code, std::uint64_t tokens) {
    if (code.exact()) {
      out.exact += tokens * numbers * shape.element_bits;
      return;
    }
    coded += tokens;
    out.codes += tokens * numbers * code.bits;
    out.parameters += ((tokens > 0 ? shape.key_dim : 0) + tokens) * code.group_bits();
  };
  add(rule.salient, counts.salient);
  add(rule.regular, counts.regular);
  if (rule.separable && coded > 0) out.tables = 16 * shape.value_dim;
  out.indices = counts.salient + counts.regular;
  return out;
}

Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  const ScalarCode& code = rule.regular.exact() ? rule.salient : rule.regular;
  if (code.exact()) return {};
  // Both classes have codes of one kind. Levelled values: a comparison and a quotient, and a product.
  const CodeOps keys = scalar_code_ops(code);
  CodeOps values = keys;
  if (rule.separable) values = {values.make + 2, values.read + 1};
  Cost out = coding_cost(shape, keys, values, Coding::apart);
  if (rule.scores() && shape.prompt > 0) {
    const double prompt = real(shape.prompt);
    out.prompt_rows = std::max<std::size_t>(1, static_cast<std::size_t>(rule.recent * prompt)) +
                      static_cast<std::size_t>(rule.random * prompt);
    out.prompt =
        out.prompt + prompt_sums(shape, out.prompt_rows) + sorted(shape, {false, real(shape.kv_heads)});
    out.scratch_bytes = whole_bytes(real(shape.kv_heads) * prompt * kScoreBytes);
  }
  // Instead of a token at a time all that is held is read, coded again and written, every so many tokens.
  const double every = real(rule.every), key_numbers = real(shape.kv_heads * shape.head_dim),
               value_numbers = real(shape.kv_heads * shape.value_dim);
  const auto bits = [](const ScalarCode& of) { return real(of.exact() ? 0 : of.bits); };
  const double mean_bits = rule.share * bits(rule.salient) + (1 - rule.share) * bits(rule.regular);
  out.step = {.launches = 4 / every};  // keys and values of two classes
  out.step_slot = {
      .ops = (key_numbers * (keys.make + keys.read) + value_numbers * (values.make + values.read)) / every,
      .bytes = 2 * (key_numbers + value_numbers) * mean_bits / 8 / every};
  if (rule.scores()) {
    // Tokens that wait are ranked by probes among the rows since they wait: of those the part that falls on
    // them is written and read, and added to their sums. With w tokens waiting it has w entries, in a drawn
    // row half as many as in the last one of a stretch, on average.
    const std::size_t last = rule.last ? 1 : rule.last_probes(rule.every),
                      drawn = rule.last ? 0 : rule.drawn_probes(rule.every);
    const double entries =
        real(last) * (every - (real(last) - 1) / 2) + real(drawn) * (every - real(last) + 1) / 2;
    out.step =
        out.step +
        Work{.ops = real(shape.query_heads) * entries / every,
             .bytes = real(2 * shape.query_heads * shape.element_bytes + 2 * shape.kv_heads * kScoreBytes) *
                      entries / every,
             .launches = real(last + drawn) / every};
    out.metadata.lane = rule.every * kScoreBytes;
  }
  return out;
}

class ZipCodec final : public Codec {
 public:
  /// `scores`: per lane and prompt position; empty: none is needed.
  ZipCodec(const Rule& rule, const CacheUnit& unit, const std::vector<std::vector<double>>& scores)
      : rule_(rule), unit_(unit), scores_(&scores) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    first_ = prompt.first();
    lanes_.assign(rows.shape().n_lanes, {});
    waiting_ = ascending(rows.positions());
    code(rows);
    draw_probes();
  }

  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) {
      const Position position = rows.positions()[victim];
      std::erase(waiting_, position);
      for (Lane& lane : lanes_) {
        std::erase(lane.salient, position);
        std::erase(lane.regular, position);
      }
    }
  }

  void join(std::size_t own_slot, CacheRows& rows) override {
    waiting_.push_back(rows.positions()[own_slot]);
  }

  /// Tokens that wait are ranked by what probes among the rows since they wait pay them.
  void observe(MatrixView weights, const CacheRows& rows) override {
    const std::size_t row = generated_ % rule_.every;
    const bool newest = row + 1 == rule_.every;
    const double times = rule_.last ? (newest ? 1 : 0) : probes_[row];
    const auto group = static_cast<std::size_t>(unit_.group);
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      for (const Position position : waiting_) {
        Received& of = lanes_[lane].received[position];
        if (!unit_.sees(static_cast<std::size_t>(waiting_.back()), static_cast<std::size_t>(position)))
          continue;
        for (std::size_t head = lane * group; head < (lane + 1) * group; ++head)
          of.sum += times * static_cast<double>(weights(head, rows.slot_of(position)));
        of.rows += 1;
        of.probes += times;
      }
  }

  void settle(std::size_t /*own_slot*/, CacheRows& rows) override {
    if (++generated_ % rule_.every != 0) return;
    code(rows);
    draw_probes();
  }

  Ledger ledger(const CacheRows& rows) const override {
    Ledger out;
    for (const Lane& lane : lanes_)
      out += lane_ledger(rule_, rows.shape(), {lane.salient.size(), lane.regular.size(), waiting_.size()});
    return out;
  }

 private:
  struct Received {
    double sum = 0, rows = 0, probes = 0;  ///< from probes; rows and probes that saw the token
  };
  struct Lane {
    std::vector<Position> salient{}, regular{};  ///< tokens with a code
    std::map<Position, Received> received{};     ///< by tokens that have joined since the last code
  };

  /// Among the rows until everything is coded again.
  void draw_probes() {
    if (rule_.scores()) probes_ = rule_.probes(rule_.every, draws_of(unit_, 1 + generated_ / rule_.every));
  }

  /// Classes those that wait, among themselves, and codes everything that is held.
  void code(CacheRows& rows) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      Lane& of = lanes_[lane];
      std::vector<Position> order = waiting_;
      std::ranges::sort(order, [&](Position a, Position b) {
        const double of_a = score(lane, a), of_b = score(lane, b);
        return of_a != of_b ? of_a > of_b : a > b;
      });
      const auto regular = order.begin() + static_cast<std::ptrdiff_t>(rule_.salient_of(order.size()));
      of.salient.insert(of.salient.end(), order.begin(), regular);
      of.regular.insert(of.regular.end(), regular, order.end());

      code_keys(lane, rule_.salient, of.salient, rows);
      code_keys(lane, rule_.regular, of.regular, rows);
      const std::vector<float> factors = value_factors(lane, of, rows);
      code_values(lane, rule_.salient, of.salient, factors, rows);
      code_values(lane, rule_.regular, of.regular, factors, rows);
    }
    for (Lane& lane : lanes_) lane.received.clear();
    waiting_.clear();
  }

  double score(std::size_t lane, Position position) const {
    if (!rule_.scores()) return 0;
    const std::vector<double>& scores = (*scores_)[lane];
    if (const std::size_t row = static_cast<std::size_t>(position) - first_; row < scores.size())
      return scores[row];
    const Received& of = lanes_[lane].received.at(position);
    const double divisor = rule_.last || rule_.normaliser == Normaliser::none ? 1
                           : rule_.normaliser == Normaliser::rows             ? of.rows
                                                                              : of.probes;
    return divisor > 0 ? of.sum / divisor : 0;
  }

  void code_keys(std::size_t lane, const ScalarCode& code, const std::vector<Position>& tokens,
                 CacheRows& rows) {
    if (code.exact()) return;
    channel_.resize(tokens.size());
    for (std::size_t c = 0; c < rows.shape().key_dim; ++c) {
      for (std::size_t i = 0; i < tokens.size(); ++i)
        channel_[i] = rows.key(lane, rows.slot_of(tokens[i]))[c];
      code.code(channel_.data(), channel_.size());
      for (std::size_t i = 0; i < tokens.size(); ++i)
        rows.key(lane, rows.slot_of(tokens[i]))[c] = channel_[i];
    }
  }

  /// sqrt(largest |x|) of each channel over both classes, in 16 bits.
  std::vector<float> value_factors(std::size_t lane, const Lane& of, CacheRows& rows) const {
    std::vector<float> factors(rows.shape().value_dim, 1);
    if (!rule_.separable) return factors;
    std::vector<float> largest(factors.size());
    for (const std::vector<Position>* tokens : {&of.salient, &of.regular})
      for (const Position position : *tokens) {
        const std::span<const float> value = rows.value(lane, rows.slot_of(position));
        for (std::size_t c = 0; c < value.size(); ++c) largest[c] = std::max(largest[c], std::fabs(value[c]));
      }
    for (std::size_t c = 0; c < factors.size(); ++c)
      if (largest[c] > 0) factors[c] = nearest_half(std::max(std::sqrt(largest[c]), 0x1p-14F));
    return factors;
  }

  static void code_values(std::size_t lane, const ScalarCode& code, const std::vector<Position>& tokens,
                          const std::vector<float>& factors, CacheRows& rows) {
    if (code.exact()) return;
    for (const Position position : tokens) {
      const std::span<float> value = rows.value(lane, rows.slot_of(position));
      for (std::size_t c = 0; c < value.size(); ++c) value[c] /= factors[c];
      code.code(value.data(), value.size());
      for (std::size_t c = 0; c < value.size(); ++c) value[c] *= factors[c];
    }
  }

  Rule rule_;
  CacheUnit unit_;
  const std::vector<std::vector<double>>* scores_;
  std::size_t first_ = 0;  ///< position of the prompt's first row
  std::vector<Lane> lanes_;
  std::vector<double> probes_{};   ///< per row until everything is coded again: how often it counts
  std::vector<Position> waiting_;  ///< exact tokens, in the order in which they joined
  std::size_t generated_ = 0;
  std::vector<float> channel_;  // scratch
};

class ZipCache final : public Representation {
 public:
  ZipCache(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), unit_(unit), sums_(static_cast<std::size_t>(unit.n_query_heads())) {}

  /// Probes are drawn from all rows.
  std::size_t prompt_rows() const override { return rule_.scores() ? kAllRows : 0; }

  void observe(const PromptRows& rows) override {
    if (probes_.empty()) probes_ = rule_.probes(rows.prompt_length, draws_of(unit_, 0));
    std::vector<double>& sums = sums_[static_cast<std::size_t>(rows.query_head)];
    sums.resize(rows.prompt_length);
    for (std::size_t i = 0; i < rows.p.rows; ++i) {
      const double times = probes_[rows.first_query + i];
      if (times == 0) continue;
      for (std::size_t j = 0; j < rows.p.cols; ++j) sums[j] += times * static_cast<double>(rows.p(i, j));
    }
  }

  void finish_prompt(const Prompt& prompt) override {
    scores_.assign(static_cast<std::size_t>(unit_.n_lanes), {});
    if (!rule_.scores()) return;
    const std::vector<double> divisors = this->divisors(prompt.length());
    for (std::size_t lane = 0; lane < scores_.size(); ++lane) {
      const auto group = static_cast<std::size_t>(unit_.group);
      scores_[lane].assign(prompt.length(), 0);
      for (std::size_t head = lane * group; head < (lane + 1) * group; ++head)
        for (std::size_t j = 0; j < sums_[head].size(); ++j)
          if (divisors[j] > 0) scores_[lane][j] += sums_[head][j] / divisors[j];
    }
  }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<ZipCodec>(rule_, unit_, scores_); }

 private:
  std::vector<double> divisors(std::size_t prompt) const {
    std::vector<double> out(prompt, 1);
    if (rule_.normaliser == Normaliser::none) return out;
    for (std::size_t j = 0; j < prompt; ++j) {
      if (rule_.normaliser == Normaliser::rows) {
        out[j] = static_cast<double>(unit_.seen_by(j, prompt, prompt));
        continue;
      }
      const auto first = probes_.begin() + static_cast<std::ptrdiff_t>(j);
      out[j] =
          std::accumulate(first, first + static_cast<std::ptrdiff_t>(unit_.seen_by(j, prompt, prompt)), 0.0);
    }
    return out;
  }

  Rule rule_;
  CacheUnit unit_;
  std::vector<double> probes_;               ///< per prompt row: how often it counts
  std::vector<std::vector<double>> sums_;    ///< per query head and prompt position
  std::vector<std::vector<double>> scores_;  ///< per lane and prompt position
};

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t times = held.appended / rule.every, coded = held.kept + times * rule.every;
  const std::uint64_t salient = rule.salient_of(held.kept) + times * rule.salient_of(rule.every);
  Ledger out;
  for (std::size_t lane = 0; lane < shape.n_lanes; ++lane)
    out += lane_ledger(rule, shape, {salient, coded - salient, held.all() - coded});
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "zipcache",
      .summary =
          "salient tokens in more bits, by the attention of a few probe rows; coded again every so often",
      .paper =
          "He, Zhang, Wu, Liu, Zhou, Zhuang, ZipCache: Accurate and Efficient KV Cache Quantization with "
          "Salient Token Identification, NeurIPS 2024, https://arxiv.org/abs/2405.14256",
      .details =
          "A token's saliency is the attention that probe rows of the prompt pay to it, divided by how many "
          "of them see it; probes are the last rows and random others, drawn with replacement. Generated "
          "tokens are ranked among themselves by probes among the rows since everything was last coded. The "
          "most salient tokens of each KV head have codes of more bits than the others. Keys: one scale and "
          "least number per channel and class. Values: each channel is divided by sqrt(largest |x|) first, "
          "then a token's whole vector has one of each. Every so many generated tokens everything is coded "
          "again, from what it had become.",
      .departures =
          {{"authors' code: sums over probe rows are divided by the number of all rows that see the token",
            "by the number of probes; normalise=rows is the code's"},
           {"authors' code: generated tokens are ranked among themselves by the query at which everything is "
            "coded again",
            "among themselves, too, but by probes of the rows since then, as in the prompt; ranking=last is "
            "the code's"},
           {"authors' code: values of all KV heads share a token's scale, although each head has its own "
            "salient tokens",
            "a KV head's part of a value has its own"},
           {"authors' code: one set of channel parameters for a whole batch; the paper counts no classes",
            "a set per sequence, and a bit per token and KV head for its class"}},
      .params =
          {choice_param("hi", "4", {"4", "8", "16"}, "of salient tokens; 16: as they come", "bits"),
           choice_param("lo", "2", {"2", "3", "4", "16"}, "of the other tokens", "bits"),
           share_param("share", "0.6", "of the tokens that are salient"),
           share_param("recent", "0.05", "of the rows, the last ones, that are probes; at least one"),
           share_param("random", "0.05", "of the rows, so many draws from the others are probes, too"),
           choice_param(
               "normalise", "probes", {"probes", "rows", "none"},
               "saliency is divided by the probes that see a token, by the rows that do, or not at all"),
           count_param("every", "100", {1, 1 << 20},
                       "generated tokens wait exactly until there are so many; then all are coded", "tokens"),
           choice_param("ranking", "probes", {"probes", "last"},
                        "of generated tokens: by probes as in the prompt, or by the latest row alone"),
           flag_param("separable", "true", "levels the channels of the values before they are coded")},
      .needs_of =
          [](const Params& params) {
            const bool scores = Rule::of(params).scores();
            return Needs{.prompt_rows = scores ? RowNeed::all : RowNeed::none, .decode_rows = scores};
          },
      .randomised = true,
      .cost = cost_of,
      .rule = RepresentationRule{.ledger = ledger_of, .make = made<ZipCache, Rule>}};
}

}  // namespace kvsim::policy::zipcache
