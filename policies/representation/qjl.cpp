// Of a key, the signs of its products with random directions; of a value, a few bits per number.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_map>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/grouped_codec.hpp"
#include "policies/parts/codes/orthogonal.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/order.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::qjl {
namespace {

constexpr std::uint64_t kNormBits = 16;

struct Rule {
  std::size_t sketch = 256, outliers = 8, outlier_sketch = 128, group = 32, buffer = 128;
  bool orthogonal = true;
  GroupedRule values{};

  static Rule of(const Params& params) {
    Rule out;
    out.sketch = params.count("sketch");
    out.outliers = params.count("outliers");
    out.outlier_sketch = params.count("outlier_sketch");
    out.group = params.count("group");
    out.buffer = params.count("buffer");
    out.orthogonal = params.flag("orthogonal");
    out.values = {scalar_code(params, "qjl(" + params.text() + ")"), GroupAxis::token, out.group, out.buffer};
    return out;
  }
};

/// Adds the keys of `coded` tokens in `groups` groups.
void add_keys(Ledger& ledger, const Rule& rule, const StorageShape& shape, std::uint64_t coded,
              std::uint64_t groups) {
  const bool outliers = rule.outliers > 0;
  ledger.codes += shape.n_lanes * coded * (rule.sketch + (outliers ? rule.outlier_sketch : 0));
  ledger.parameters += shape.n_lanes * coded * (outliers ? 2 : 1) * kNormBits;
  ledger.indices += shape.n_lanes * groups * rule.outliers * (shape.key_dim > 256 ? 16 : 8);
}

/// The directions, by rows: standard normal, or in blocks of `dim` orthogonal to each other and of length
/// sqrt(dim).
std::vector<float> directions(const Rule& rule, std::size_t dim, std::uint64_t seed) {
  std::vector<double> rows(rule.sketch * dim);
  for (std::size_t i = 0; i < rule.sketch; ++i)
    for (std::size_t c = 0; c < dim; ++c) rows[i * dim + c] = normal(combine({seed, key_of("qjl"), i, c}));
  if (rule.orthogonal) make_orthogonal(rows, dim, static_cast<double>(dim));
  return {rows.begin(), rows.end()};
}

class QjlCodec final : public Codec {
 public:
  QjlCodec(const Rule& rule, const std::vector<float>& rows)
      : rule_(rule), directions_(&rows), values_(GroupedSide::values, rule.values) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    waiting_ = ascending(rows.positions());
    values_.begin(waiting_, rows);
    code_oldest(waiting_.size() / rule_.buffer * rule_.buffer, rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) {
      const Position position = rows.positions()[victim];
      values_.leave(position);
      const auto found = group_of_.find(position);
      if (found == group_of_.end()) {
        std::erase(waiting_, position);
        continue;
      }
      --left_[found->second];
      group_of_.erase(found);
    }
  }
  /// Keys are coded before the query attends, as in the authors' code.
  void join(std::size_t own_slot, CacheRows& rows) override {
    waiting_.push_back(rows.positions()[own_slot]);
    if (waiting_.size() >= rule_.buffer) code_oldest(rule_.buffer, rows);
  }
  void settle(std::size_t own_slot, CacheRows& rows) override {
    values_.settle(rows.positions()[own_slot], rows);
  }

  Ledger ledger(const CacheRows& rows) const override {
    const StorageShape& shape = rows.shape();
    Ledger out;
    values_.add_to(out, rows);
    out.exact += shape.n_lanes * waiting_.size() * shape.key_dim * shape.element_bits;
    add_keys(out, rule_, shape, rows.slots() - waiting_.size(),
             static_cast<std::uint64_t>(std::ranges::count_if(left_, [](std::size_t n) { return n > 0; })));
    return out;
  }

 private:
  void code_oldest(std::size_t tokens, CacheRows& rows) {
    for (std::size_t first = 0; first < tokens; first += rule_.group) {
      const std::span<const Position> group(waiting_.data() + first, rule_.group);
      for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) code_group(lane, group, rows);
      for (const Position position : group) group_of_[position] = left_.size();
      left_.push_back(rule_.group);
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(tokens));
  }

  void code_group(std::size_t lane, std::span<const Position> group, CacheRows& rows) {
    const std::size_t dim = rows.shape().key_dim;
    std::vector<double> squares(dim);
    for (const Position position : group) {
      const std::span<float> key = rows.key(lane, rows.slot_of(position));
      bound(key);
      for (std::size_t c = 0; c < dim; ++c)
        squares[c] += static_cast<double>(key[c]) * static_cast<double>(key[c]);
    }
    const std::vector<std::size_t> order = largest_first(squares);
    const std::span<const std::size_t> outliers(order.data(), rule_.outliers),
        others(order.data() + rule_.outliers, dim - rule_.outliers);
    for (const Position position : group) {
      const std::span<float> key = rows.key(lane, rows.slot_of(position));
      // Stored are the norm of the whole key and that of its outliers.
      const double outlier_norm = norm(key, outliers), whole = norm(key, order);
      code(key, outliers, outlier_norm, rule_.outlier_sketch);
      code(key, others, std::sqrt(std::max(0.0, whole * whole - outlier_norm * outlier_norm)), rule_.sketch);
    }
  }

  static double norm(std::span<const float> key, std::span<const std::size_t> channels) {
    double squares = 0;
    for (const std::size_t c : channels) squares += static_cast<double>(key[c]) * static_cast<double>(key[c]);
    return static_cast<double>(nearest_half(static_cast<float>(std::sqrt(squares))));
  }

  /// What the signs of the products of some channels with the first directions read back as: sqrt(pi / 2) /
  /// (number of directions) times the norm times the sum of the directions with those signs.
  void code(std::span<float> key, std::span<const std::size_t> channels, double norm, std::size_t sketch) {
    if (channels.empty()) return;
    sums_.assign(channels.size(), 0);
    for (std::size_t i = 0; i < sketch; ++i) {
      const float* const direction = directions_->data() + i * key.size();
      double product = 0;
      for (const std::size_t c : channels)
        product += static_cast<double>(direction[c]) * static_cast<double>(key[c]);
      for (std::size_t j = 0; j < channels.size(); ++j)
        sums_[j] += static_cast<double>(product > 0 ? direction[channels[j]] : -direction[channels[j]]);
    }
    const double factor = std::sqrt(std::numbers::pi / 2) / static_cast<double>(sketch) * norm;
    for (std::size_t j = 0; j < channels.size(); ++j)
      key[channels[j]] = static_cast<float>(factor * sums_[j]);
  }

  Rule rule_;
  const std::vector<float>* directions_;  ///< [sketch, key_dim]
  GroupedSide values_;
  std::vector<Position> waiting_;  ///< with exact keys, in the order in which they joined
  std::unordered_map<Position, std::size_t> group_of_;  ///< of tokens with coded keys
  std::vector<std::size_t> left_;                       ///< tokens held of each group
  std::vector<double> sums_;                            // scratch
};

class Qjl final : public Representation {
 public:
  Qjl(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), directions_(directions(rule, static_cast<std::size_t>(unit.head_dim), unit.seed)) {}
  std::unique_ptr<Codec> codec() const override { return std::make_unique<QjlCodec>(rule_, directions_); }

 private:
  Rule rule_;
  std::vector<float> directions_;
};

ParamSpec value_bits_param() {
  ParamSpec out = bits_param("2");
  out.help = "of a value's code, 1 to 8; 16: values are stored as they come";
  return out;
}

/// Keys and queries meet the same random directions. Reading adds or subtracts a number of the query's
/// products for each sign of the key.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  const std::size_t signs = rule.sketch + (rule.outliers > 0 ? rule.outlier_sketch : 0);
  const CodeOps values = scalar_code_ops(rule.values.code);
  const double buffer = real(rule.buffer);
  // Of a number of a key: its square for the norm, and for the choice of a group's outlier channels.
  const CodeOps keys{rule.outliers > 0 ? 4.0 : 2.0, real(signs) / real(shape.head_dim)};
  Cost out = coding_cost(shape, keys, values, Coding::apart, buffer);
  Work token = projected_keys(shape, 1, signs);
  token.launches /= buffer;
  out.prompt = out.prompt + projected_keys(shape, std::min(shape.prompt, shape.budget), signs);
  out.step = out.step + token + projected_queries(shape, shape.query_heads, signs);
  return out;
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t tokens = held.all(), waiting = tokens % rule.buffer,
                      window = std::min<std::uint64_t>(tokens, rule.buffer);
  const std::uint64_t coded_values = rule.values.code.exact() ? 0 : tokens - window;
  Ledger out;
  out.exact = shape.n_lanes * shape.element_bits *
              (waiting * shape.key_dim + (tokens - coded_values) * shape.value_dim);
  out.codes = shape.n_lanes * coded_values * shape.value_dim * rule.values.code.bits;
  out.parameters =
      shape.n_lanes * coded_values * (shape.value_dim / rule.group) * rule.values.code.group_bits();
  add_keys(out, rule, shape, tokens - waiting, (tokens - waiting) / rule.group);
  return out;
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  const Rule rule = Rule::of(params);
  const std::string where = "qjl(" + params.text() + ")";
  check_grouped_rule(rule.values, static_cast<std::size_t>(unit.value_dim), where);
  if (rule.outliers > static_cast<std::size_t>(unit.head_dim))
    usage_error(
        "a key has no " + std::to_string(rule.outliers) + " channels, but " + std::to_string(unit.head_dim),
        where, "Choose outliers= up to that.");
  return std::make_unique<Qjl>(rule, unit);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "qjl",
      .summary = "signs of a key's products with random directions and its norm; values in few bits",
      .paper =
          "Zandieh, Daliri, Han, QJL: 1-Bit Quantized JL Transform for KV Cache Quantization with Zero "
          "Overhead, 2024, https://arxiv.org/abs/2406.03482",
      .details =
          "A key k is stored as the signs of S k, with `sketch` random directions as rows of S, and its "
          "norm; it reads as sqrt(pi/2) / sketch * norm * S' sign(S k), whose product with a query is that "
          "of the paper's estimate, which leaves the query as it is. Of each group of tokens the `outliers` "
          "channels of largest norm have signs, by the first `outlier_sketch` directions, and a norm of "
          "their own. Keys wait exactly until a buffer is full; the query of the token that fills it reads "
          "codes. Values: a scale and a least number per `group` channels of a token, the latest exact, as "
          "in KIVI. With independent directions the mean over seeds of a product is exact; orthogonal ones "
          "of length sqrt(d) spread less and make it 1 + 1/(4 d) too large. The directions are the same in "
          "all layers, follow from the seed and are not counted.",
      .departures =
          {{"authors' code: 512 signs in the first 15 layers, 256 after them, and as many for outliers in "
            "its script",
            "256 and 128 in every layer, with which keys and values take 3 bits"},
           {"authors' code: values of generated tokens are never coded",
            "they are coded as they leave the exact window"},
           {"authors' code: nothing is evicted",
            "a coded token that leaves takes its signs and norms with it; the list of its group's outlier "
            "channels lives as long as one of its tokens"}},
      .params = {count_param("sketch", "256", {1, 1 << 16}, "signs of a key", "bits"),
                 count_param("outliers", "8", {0, 1 << 16}, "of a group's keys that are coded apart",
                             "channels"),
                 count_param("outlier_sketch", "128", {1, 1 << 16},
                             "signs of a key's outlier channels, at most as many as of the others", "bits"),
                 count_param("group", "32", {1, 1 << 20}, "tokens of a key's group, channels of a value's"),
                 count_param(
                     "buffer", "128", {1, 1 << 20},
                     "keys that wait exactly and are coded at once; values that are exact; a multiple of "
                     "the group",
                     "tokens"),
                 flag_param("orthogonal", "true",
                            "makes the directions orthogonal in blocks of as many as a key has channels"),
                 value_bits_param()},
      .randomised = true,
      .cost = cost_of,
      .check =
          [](const Params& params) {
            const Rule rule = Rule::of(params);
            const std::string where = "qjl(" + params.text() + ")";
            if (rule.buffer % rule.group != 0)
              usage_error("the buffer must be a multiple of the group", where);
            if (rule.outliers > 0 && rule.outlier_sketch > rule.sketch)
              usage_error("outliers have no more directions than there are", where,
                          "Choose outlier_sketch= up to sketch=.");
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::qjl
