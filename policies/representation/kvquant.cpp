// Keys before rotation in few bits per channel, values per token, at levels that other runs have taught; what
// sticks out is stored beside them.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/calibrated_tables.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::kvquant {
namespace {

constexpr std::size_t kRounds = 50;

struct Rule {
  std::size_t bits = 3, sinks = 1;
  double outliers = 0.01;
  bool whole_layer = true, norm = false;

  static Rule of(const Params& params) {
    return {params.count("bits"), params.count("sinks"), params.share("outliers"),
            params.is("values", "layer"), params.flag("qnorm")};
  }
  bool exact() const { return bits >= 16; }
  std::size_t levels() const { return std::size_t{1} << bits; }
  /// Of a vector of n numbers.
  std::size_t outliers_of(std::size_t n) const {
    return static_cast<std::size_t>(std::llround(outliers * static_cast<double>(n)));
  }
};

std::string maker(const Params& params) {
  return calibration_maker("kvquant", params, {"bits", "outliers", "sinks", "values"});
}

/// Numbers from offset - span to offset + span have codes.
struct Range {
  float offset = 0, span = 0;

  static Range from(float low, float high) {
    return {nearest_half((low + high) / 2), nearest_half((high - low) / 2)};
  }
  bool holds(float x) const { return std::fabs(x - offset) <= span; }
  /// -1 to 1; beyond the range its end.
  float normal(float x) const { return span > 0 ? std::clamp((x - offset) / span, -1.0F, 1.0F) : 0; }
};

/// A code's levels: numbers become the nearest of `levels` and are read as the same place of `reads`.
struct Levels {
  std::vector<float> levels{}, reads{};

  float coded(const Range& range, float x) const {
    return reads[nearest_level(levels, range.normal(x))] * range.span + range.offset;
  }
};

/// The range of a vector without its outliers, whose places are returned: `n` of them, the least and the
/// largest in equal numbers, an odd one at the side that is farther from the median. What is not finite is an
/// outlier, too.
Range online_range(std::span<const float> vector, std::size_t n, std::vector<std::size_t>& outliers) {
  std::vector<std::size_t> order;
  outliers.clear();
  for (std::size_t i = 0; i < vector.size(); ++i) (std::isfinite(vector[i]) ? order : outliers).push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return vector[i]; });
  const std::size_t more = std::min(order.size(), n - std::min(n, outliers.size()));
  std::size_t low = more / 2, high = more / 2;
  if (more % 2 == 1) {
    const float median = vector[order[order.size() / 2]];
    const bool below = median - vector[order[low]] > vector[order[order.size() - 1 - high]] - median;
    (below ? low : high) += 1;
  }
  outliers.insert(outliers.end(), order.begin(), order.begin() + static_cast<std::ptrdiff_t>(low));
  outliers.insert(outliers.end(), order.end() - static_cast<std::ptrdiff_t>(high), order.end());
  if (low + high == order.size()) return {};
  return Range::from(vector[order[low]], vector[order[order.size() - 1 - high]]);
}

class KvquantCalibrator final : public Calibrator {
 public:
  KvquantCalibrator(const Rule& rule, const CacheUnit& layer)
      : rule_(rule),
        key_dim_(static_cast<std::size_t>(layer.head_dim)),
        channels_(static_cast<std::size_t>(layer.n_lanes) * key_dim_) {}

  void observe(const LayerTokens& tokens) override {
    const std::size_t n = tokens.keys[0].rows;
    std::vector<float> plain(key_dim_), vector, row;
    for (std::size_t i = rule_.sinks; i < n; ++i) {
      vector.clear();
      for (std::size_t head = 0; head < tokens.keys.size(); ++head) {
        std::ranges::copy(tokens.keys[head].row(i), plain.begin());
        unrotate(tokens.rotary, i, key_dim_, plain);
        for (std::size_t c = 0; c < key_dim_; ++c) channels_[head * key_dim_ + c].push_back(plain[c]);
        const std::span<const float> value = tokens.values[head].row(i);
        vector.insert(vector.end(), value.begin(), value.end());
        if (rule_.whole_layer && head + 1 < tokens.keys.size()) continue;
        add_values(vector);
        vector.clear();
      }
    }
  }

  std::vector<CalibratedTable> tables() override {
    if (channels_[0].empty())
      input_error("no token is left to measure", "kvquant", "Calibrate on longer runs.");
    const std::size_t heads = channels_.size() / key_dim_;
    CalibratedTable ranges{"key_ranges", std::vector<std::vector<float>>(heads)};
    std::vector<float> keys;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      std::vector<float> sorted = channels_[c];
      std::ranges::sort(sorted);
      const auto cut =
          std::min(static_cast<std::size_t>(rule_.outliers / 2 * static_cast<double>(sorted.size())),
                   (sorted.size() - 1) / 2);
      const Range range = Range::from(sorted[cut], sorted[sorted.size() - 1 - cut]);
      ranges.of_head[c / key_dim_].push_back(range.offset);
      ranges.of_head[c / key_dim_].push_back(range.span);
      for (const float x : channels_[c])
        if (range.span > 0 && range.holds(x)) keys.push_back(range.normal(x));
    }
    std::vector<CalibratedTable> out{ranges};
    add_levels(out, "key", keys, heads);
    add_levels(out, "value", values_, heads);
    return out;
  }

 private:
  void add_values(std::span<const float> vector) {
    const Range range = online_range(vector, rule_.outliers_of(vector.size()), outliers_);
    std::vector<char> out(vector.size());
    for (const std::size_t i : outliers_) out[i] = 1;
    for (std::size_t i = 0; i < vector.size(); ++i)
      if (range.span > 0 && out[i] == 0) values_.push_back(range.normal(vector[i]));
  }

  /// The levels of the layer, for each of its heads, and what they are read as with qnorm: moved and
  /// stretched so that all numbers together keep their mean and deviation.
  void add_levels(std::vector<CalibratedTable>& out, const std::string& of, const std::vector<float>& numbers,
                  std::size_t heads) const {
    const std::vector<float> levels =
        level_means(numbers.empty() ? std::vector<float>{0} : numbers, rule_.levels(), kRounds);
    double sum = 0, squares = 0, coded_sum = 0, coded_squares = 0;
    for (const float number : numbers) {
      const auto x = static_cast<double>(number);
      const auto y = static_cast<double>(levels[nearest_level(levels, number)]);
      sum += x;
      squares += x * x;
      coded_sum += y;
      coded_squares += y * y;
    }
    const double n = std::max<double>(1, static_cast<double>(numbers.size()));
    const double mean = sum / n, coded_mean = coded_sum / n;
    const double variance = squares / n - mean * mean,
                 coded_variance = coded_squares / n - coded_mean * coded_mean;
    const double stretch = coded_variance > 0 ? std::sqrt(variance / coded_variance) : 1;
    std::vector<float> reads;
    for (const float level : levels)
      reads.push_back(
          nearest_half(static_cast<float>((static_cast<double>(level) - coded_mean) * stretch + mean)));
    out.push_back({of + "_levels", std::vector(heads, levels)});
    out.push_back({of + "_levels_qnorm", std::vector(heads, reads)});
  }

  Rule rule_;
  std::size_t key_dim_;
  std::vector<std::vector<float>> channels_;  ///< of the keys of all heads, before rotation, over tokens
  std::vector<float> values_;                 ///< -1 to 1, without outliers
  std::vector<std::size_t> outliers_;         // scratch
};

/// What other runs have taught of a unit.
struct Taught {
  std::vector<std::vector<Range>> keys{};  ///< per lane and channel
  Levels key_levels{}, value_levels{};

  Taught() = default;
  Taught(const Rule& rule, const CalibratedTables& tables, const CacheUnit& unit) {
    for (int lane = 0; lane < unit.n_lanes; ++lane) {
      const std::vector<float> numbers =
          tables.lane("key_ranges", lane, 2 * static_cast<std::size_t>(unit.head_dim));
      std::vector<Range>& ranges = keys.emplace_back();
      for (std::size_t i = 0; i < numbers.size(); i += 2) ranges.push_back({numbers[i], numbers[i + 1]});
    }
    const auto levels = [&](const std::string& of) {
      Levels out{tables.lane(of + "_levels", 0, rule.levels()), {}};
      if (!std::ranges::is_sorted(out.levels))
        input_error("the levels of " + of + "s do not ascend", "kvquant",
                    "Make the file anew: kvsim calibrate.");
      out.reads = rule.norm ? tables.lane(of + "_levels_qnorm", 0, rule.levels()) : out.levels;
      return out;
    };
    key_levels = levels("key");
    value_levels = levels("value");
  }
};

/// Adds what `tokens` coded tokens and their outliers take. `vectors`: of a token's values in the unit.
Ledger kvquant_ledger(const Rule& rule, const StorageShape& shape, std::uint64_t exact, std::uint64_t coded,
                      std::uint64_t outliers) {
  const std::uint64_t vectors = rule.whole_layer ? 1 : shape.n_lanes;
  Ledger out = exact_ledger(shape, exact);
  out.codes = shape.n_lanes * coded * (shape.key_dim + shape.value_dim) * rule.bits;
  out.parameters = coded * vectors * 32;
  out.outliers = 32 * outliers;
  if (rule.outliers > 0) out.indices = coded * vectors * 2 * 32;
  out.shared = shape.n_lanes * shape.key_dim * 32 + (rule.norm ? 4 : 2) * 16 * rule.levels();
  return out;
}

class KvquantCodec final : public Codec {
 public:
  KvquantCodec(const Rule& rule, const Taught& taught) : rule_(rule), taught_(&taught) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    rotary_ = prompt.rotary();
    for (std::size_t slot = 0; slot < rows.slots(); ++slot) join(slot, rows);
  }
  void join(std::size_t slot, CacheRows& rows) override {
    const auto position = static_cast<std::size_t>(rows.positions()[slot]);
    if (rule_.exact() || position < rule_.sinks) return;
    if (outliers_.size() <= position) outliers_.resize(position + 1);
    outliers_[position] = 0;
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
      code_key(lane, position, rows.key(lane, slot));
      const std::span<const float> value = rows.value(lane, slot);
      vector_.insert(vector_.end(), value.begin(), value.end());
      if (rule_.whole_layer && lane + 1 < rows.shape().n_lanes) continue;
      code_values(position);
      for (std::size_t i = vector_.size(), of = lane + 1; i > 0; i -= value.size())
        std::copy_n(vector_.begin() + static_cast<std::ptrdiff_t>(i - value.size()), value.size(),
                    rows.value(--of, slot).begin());
      vector_.clear();
    }
  }
  Ledger ledger(const CacheRows& rows) const override {
    if (rule_.exact()) return exact_ledger(rows.shape(), rows.slots());
    std::uint64_t exact = 0, outliers = 0;
    for (const Position position : rows.positions()) {
      const auto at = static_cast<std::size_t>(position);
      if (at < rule_.sinks)
        ++exact;
      else
        outliers += outliers_[at];
    }
    return kvquant_ledger(rule_, rows.shape(), exact, rows.slots() - exact, outliers);
  }

 private:
  void code_key(std::size_t lane, std::size_t position, std::span<float> key) {
    unrotate(rotary_, position, key.size(), key);
    for (std::size_t c = 0; c < key.size(); ++c) {
      const Range& range = taught_->keys[lane][c];
      if (rule_.outliers > 0 && !range.holds(key[c])) {
        key[c] = nearest_half(key[c]);
        ++outliers_[position];
      } else {
        key[c] = taught_->key_levels.coded(range, key[c]);
      }
    }
    rotate(rotary_, position, key.size(), key);
  }
  void code_values(std::size_t position) {
    const Range range = online_range(vector_, rule_.outliers_of(vector_.size()), places_);
    if (rule_.outliers == 0) places_.clear();
    outliers_[position] += places_.size();
    std::vector<float> beside;
    for (const std::size_t i : places_) beside.push_back(nearest_half(vector_[i]));
    for (float& x : vector_) x = taught_->value_levels.coded(range, x);
    for (std::size_t i = 0; i < places_.size(); ++i) vector_[places_[i]] = beside[i];
  }

  Rule rule_;
  const Taught* taught_;
  Rotary rotary_;
  std::vector<std::uint64_t> outliers_;  ///< by position, of keys and values
  std::vector<float> vector_;            // scratch
  std::vector<std::size_t> places_;
};

class Kvquant final : public Representation {
 public:
  Kvquant(const Rule& rule, const CalibratedTables& tables, const CacheUnit& unit)
      : rule_(rule), readable_(rule.exact() || tables.readable()) {
    if (!rule.exact() && tables.readable()) taught_ = Taught(rule, tables, unit);
  }
  std::unique_ptr<Codec> codec() const override {
    if (!readable_) bug("a representation with a file parameter runs where no files can be read", "kvquant");
    return std::make_unique<KvquantCodec>(rule_, taught_);
  }

 private:
  Rule rule_;
  bool readable_;
  Taught taught_;
};

Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  if (rule.exact()) return {};
  // Minus the offset, over the span, a search among the levels, into its byte; out of it, looked up, times,
  // plus.
  CodeOps keys{3 + real(rule.bits), 4};
  if (rule.outliers > 0) {
    keys.make += 2;  // within the range?
    keys.read += rule.outliers;
  }
  CodeOps values = keys;
  // The range of a token is found when it comes: by sorting, where outliers are left out of it.
  const double width = real(shape.value_dim * (rule.whole_layer ? shape.kv_heads : 1));
  values.make += rule.outliers > 0 ? std::log2(width) : 2;
  keys.read += kRotationOps;
  return coding_cost(shape, keys, values, Coding::apart);
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t tokens = held.all(), exact = std::min<std::uint64_t>(tokens, rule.sinks),
                      coded = tokens - exact;
  if (rule.exact()) return exact_ledger(shape, tokens);
  const std::uint64_t of_keys = rule.outliers_of(shape.n_lanes * shape.key_dim);
  const std::uint64_t of_values = rule.whole_layer ? rule.outliers_of(shape.n_lanes * shape.value_dim)
                                                   : shape.n_lanes * rule.outliers_of(shape.value_dim);
  return kvquant_ledger(rule, shape, exact, coded, coded * (of_keys + of_values));
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  return std::make_unique<Kvquant>(Rule::of(params), CalibratedTables(maker(params), params, unit), unit);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "kvquant",
      .summary = "keys before rotation per channel, values per token, at levels that other runs have taught",
      .paper =
          "Hooper, Kim, Mohammadzadeh, Mahoney, Shao, Keutzer, Gholami, KVQuant: Towards 10 Million Context "
          "Length LLM Inference with KV Cache Quantization, NeurIPS 2024, https://arxiv.org/abs/2401.18079",
      .details =
          "KVQuant without Fisher weights. Keys are coded before rotation and rotated when they are read. A "
          "channel of the keys has a range that a calibration found on other runs; numbers beyond it are "
          "outliers, 16-bit floats beside the codes. Of a token's values the outliers are found as it joins, "
          "half of them the least and half the largest, and the others span the range. Codes are the nearest "
          "of 2^bits levels, one table for a layer's keys and one for its values: the centres of clusters of "
          "the calibration's numbers. qnorm reads levels that keep mean and deviation of those numbers. The "
          "first token is exact. A token's own query reads its code. The ledger known beforehand takes "
          "`outliers` of the keys, too; a run has as many as lie beyond the ranges, and what is counted of "
          "it are those.",
      .departures =
          {{"paper: clusters weight each number by the squared gradient of the loss (Fisher information)",
            "a trace has no gradients: every number weighs the same, which the authors' code allows, too"},
           {"paper: outliers of a token's values are those beyond two percentiles",
            "as many numbers as the share of the vector comes to, rounded; of an odd number the last is at "
            "the side that is farther from the median"},
           {"authors' code: key outliers of a token may be limited to 21 on each side",
            "they are not limited"}},
      .params = with_calibration_params(
          {bits_param("3"),
           share_param("outliers", "0.01",
                       "of the numbers that are stored beside the codes; 0: none, and numbers beyond a range "
                       "become its end"),
           count_param("sinks", "1", {0, 1 << 10}, "first ones of the sequence that stay exact", "tokens"),
           choice_param(
               "values", "layer", {"layer", "head"},
               "whose values of a token share a range and outliers: all KV heads of the layer, or one"),
           flag_param("qnorm", "false",
                      "read levels keep the mean and deviation of the calibration's numbers")}),
      .layer_unit = [](const Params& params) { return params.is("values", "layer"); },
      .cost = cost_of,
      .check = [](const Params& params) { scalar_code(params, "kvquant(" + params.text() + ")"); },
      .calibration_maker = maker,
      .make_calibrator = [](const Params& params, const CacheUnit& layer) -> std::unique_ptr<Calibrator> {
        const Rule rule = Rule::of(params);
        if (rule.exact())
          usage_error("numbers that are stored as they come need no calibration", maker(params));
        return std::make_unique<KvquantCalibrator>(rule, layer);
      },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::kvquant
