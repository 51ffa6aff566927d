#include "policies/parts/merging/merging.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "policies/api/slots.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/norms.hpp"
#include "sim/base/dot.hpp"
#include "sim/base/order.hpp"

namespace kvsim::policy {
namespace {

constexpr std::uint64_t kCountBits = 16;
constexpr double kMostTokens = std::numeric_limits<std::uint16_t>::max();

/// Grows by equal numbers without rounding, so that equal cosines reach their mean.
double mean_of(std::span<const double> numbers) {
  double mean = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) mean += (numbers[i] - mean) / static_cast<double>(i + 1);
  return mean;
}

double own_weight(MergeRule::Weights weights, std::size_t joining) {
  switch (weights) {
    case MergeRule::Weights::exponential:
      return std::numbers::e;
    case MergeRule::Weights::pivotal:
      return 1 + static_cast<double>(joining) / 2;
    case MergeRule::Weights::equal:
    case MergeRule::Weights::cosine:
    case MergeRule::Weights::gaussian:
    case MergeRule::Weights::score:
      break;
  }
  return 1;
}

double weight_of(const MergeRule& rule, double cosine, std::span<const float> own_key,
                 std::span<const float> key) {
  switch (rule.weights) {
    case MergeRule::Weights::gaussian: {
      double squares = 0;
      for (std::size_t c = 0; c < key.size(); ++c) {
        const double difference = static_cast<double>(key[c]) - static_cast<double>(own_key[c]);
        squares += difference * difference;
      }
      return std::exp(-squares / (2 * rule.sigma * rule.sigma));
    }
    case MergeRule::Weights::cosine:
      return cosine;
    case MergeRule::Weights::exponential:
      return std::exp(cosine);
    case MergeRule::Weights::pivotal:
      return 0.5;
    case MergeRule::Weights::equal:
    case MergeRule::Weights::score:
      break;
  }
  return 1;
}

void add(std::vector<double>& sum, double weight, std::span<const float> row) {
  for (std::size_t c = 0; c < row.size(); ++c) sum[c] += weight * static_cast<double>(row[c]);
}

/// Sets `mass` and `target` of a rule.
void read_shared(const Params& params, MergeRule& rule) {
  rule.mass = params.is("mass", "none")    ? MergeRule::Mass::none
              : params.is("mass", "count") ? MergeRule::Mass::count
                                           : MergeRule::Mass::log;
  rule.target = params.is("target", "both")   ? MergeRule::Target::both
                : params.is("target", "keys") ? MergeRule::Target::keys
                                              : MergeRule::Target::values;
}

}  // namespace

ParamSpec mass_param(const char* fallback) {
  return choice_param(
      "mass", fallback, {"none", "count", "log"},
      "what replaces the weight in the softmax of c tokens that have become one: nothing, its value "
      "times c, or log c added to its logit");
}

ParamSpec target_param() {
  return choice_param("target", "both", {"both", "keys", "values"},
                      "what is merged; of the rest what stays is left as it is");
}

PolicySpec merging_spec(PolicySpec spec, MergeRule (*rule)(const Params& params)) {
  return merging_spec(
      std::move(spec), rule,
      [](const Params&, const CacheUnit&, const MergeRule& whole) -> std::unique_ptr<Representation> {
        return std::make_unique<MergingRepresentation>(whole);
      });
}

PolicySpec merging_spec(PolicySpec spec, MergeRule (*rule)(const Params& params),
                        std::unique_ptr<Representation> (*make)(const Params& params, const CacheUnit& unit,
                                                                const MergeRule& rule)) {
  const auto whole = [rule](const Params& params) {
    MergeRule out = rule(params);
    read_shared(params, out);
    return out;
  };
  spec.needs.keys = spec.needs.values = true;
  spec.cost = [whole](const Params& params, const CostShape& shape) {
    return merging_cost(whole(params), shape);
  };
  spec.rule = RepresentationRule{
      .ledger = [whole](const Params& params, const StorageShape& shape,
                        LaneTokens held) { return merging_ledger(whole(params), shape, held.all()); },
      .make = [whole, make](const Params& params,
                            const CacheUnit& unit) { return make(params, unit, whole(params)); }};
  return spec;
}

Ledger merging_ledger(const MergeRule& rule, const StorageShape& shape, std::uint64_t tokens) {
  Ledger out = exact_ledger(shape, tokens);
  if (rule.mass != MergeRule::Mass::none) out.indices = shape.n_lanes * tokens * kCountBits;
  return out;
}

Cost merging_cost(const MergeRule& rule, const CostShape& shape) {
  const double lanes = real(shape.kv_heads), key = real(shape.head_dim), value = real(shape.value_dim),
               element = real(shape.element_bytes);
  const bool cosines =
      rule.nearest == MergeRule::Nearest::cosine || rule.gate != MergeRule::Gate::everything ||
      rule.weights == MergeRule::Weights::cosine || rule.weights == MergeRule::Weights::exponential;
  // What a token that leaves asks of one that stays: its product and norm, or where it stands.
  const bool compared = rule.nearest == MergeRule::Nearest::cosine;
  const double flops = compared ? 2 * lanes * key : 0, ops = lanes;
  // What it takes to merge one: both vectors weighted and added, read and written.
  double numbers = 0;
  if (rule.target != MergeRule::Target::values) numbers += lanes * key;
  if (rule.target != MergeRule::Target::keys) numbers += lanes * value;
  Work merged{.ops = 2 * numbers, .bytes = 3 * numbers * element};
  if (cosines && !compared) merged.flops += 2 * lanes * key;
  if (rule.weights == MergeRule::Weights::gaussian) merged.ops += 3 * lanes * key;
  Cost out;
  if (rule.mass != MergeRule::Mass::none) out.step_slot.ops += real(shape.query_heads);
  if (shape.prompt > shape.budget) {
    const double stay = real(shape.budget), leave = real(shape.prompt - shape.budget);
    out.prompt =
        leave * merged +
        Work{.flops = leave * stay * flops, .ops = leave * ops * (compared ? stay : 1), .launches = 3};
    // Norms, and in runs the cosine of each key with the one before it.
    if (cosines || rule.nearest == MergeRule::Nearest::run)
      out.prompt = out.prompt + over_keys(shape, shape.prompt, 2);
    if (rule.nearest == MergeRule::Nearest::run) out.prompt.flops += 2 * real(shape.prompt) * lanes * key;
  }
  if (rule.decode) {
    out.leaving = merged;
    out.leaving.launches = 2;  // the nearest, the means
    // Every key is read once more, with its norm.
    out.leaving_slot = {.flops = 2 * flops, .ops = ops, .bytes = compared ? lanes * key * element : 0};
  }
  return out;
}

void MergingCodec::begin(const Prompt& prompt, CacheRows& rows) {
  stands_for_.assign(rows.slots() * rows.shape().n_lanes, 1);
  first_ = prompt.first();
  std::vector<std::size_t> leaving, staying(rows.slots());
  std::vector<Position> positions;
  for (std::size_t row = 0; row < prompt.length(); ++row)
    if (const auto position = static_cast<Position>(first_ + row); !rows.holds(position)) {
      leaving.push_back(row);
      positions.push_back(position);
    }
  for (std::size_t slot = 0; slot < staying.size(); ++slot) staying[slot] = slot;
  std::vector<Lane> lanes;
  for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane)
    lanes.push_back(
        {.keys = prompt.keys(static_cast<int>(lane)), .values = prompt.values(static_cast<int>(lane))});
  merge(lanes, leaving, positions, staying, rows);
}

void MergingCodec::leave(std::span<const std::size_t> victims, CacheRows& rows,
                         std::optional<std::size_t> behind) {
  if (rule_.decode) {
    std::vector<char> leaves(rows.slots());
    std::vector<std::size_t> merged;
    std::vector<Position> positions;
    for (const std::size_t victim : victims) {
      leaves[victim] = 1;
      if (victim == behind) continue;
      merged.push_back(victim);
      positions.push_back(rows.positions()[victim]);
    }
    std::vector<std::size_t> staying;
    for (std::size_t slot = 0; slot < rows.slots(); ++slot)
      if (!leaves[slot]) staying.push_back(slot);
    std::vector<Lane> lanes;
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane)
      lanes.push_back(
          {rows.keys(lane), rows.values(lane), std::span(stands_for_).subspan(lane), rows.shape().n_lanes});
    merge(lanes, merged, positions, staying, rows);
  }
  close_up(stands_for_, victims, rows.shape().n_lanes);
}

void MergingCodec::join(std::size_t own_slot, CacheRows& rows) {
  const std::size_t lanes = rows.shape().n_lanes;
  stands_for_.resize(rows.slots() * lanes);
  std::fill_n(stands_for_.begin() + static_cast<std::ptrdiff_t>(own_slot * lanes), lanes, std::uint16_t{1});
}

bool MergingCodec::passes(double cosine, double own, double mean) const {
  switch (rule_.gate) {
    case MergeRule::Gate::lane:
      return own >= rule_.tau;
    case MergeRule::Gate::fixed:
      return cosine >= rule_.tau;
    case MergeRule::Gate::mean:
      return cosine >= mean;
    case MergeRule::Gate::moving:
      return cosine >= tau_;
    case MergeRule::Gate::everything:
      break;
  }
  return true;
}

void MergingCodec::drop_worst(std::size_t lane, std::span<const Position> positions, std::size_t staying,
                              std::vector<Nearest>& nearest) const {
  const std::vector<std::size_t> order =
      largest_first(positions.size(), [&](std::size_t i) { return score(lane, positions[i]); });
  const auto all = static_cast<std::size_t>(rule_.candidates * static_cast<double>(staying));
  const std::size_t merged = all > staying ? all - staying : 0;
  for (std::size_t i = merged; i < order.size(); ++i) nearest[order[i]].index = kNowhere;
}

void MergingCodec::merge(std::span<const Lane> lanes, std::span<const std::size_t> leaving,
                         std::span<const Position> positions, std::span<const std::size_t> staying,
                         CacheRows& rows) {
  if (leaving.empty() || staying.empty()) return;
  std::vector<Position> stay_at;
  for (const std::size_t slot : staying) stay_at.push_back(rows.positions()[slot]);
  std::vector<std::vector<Nearest>> nearest;
  std::vector<double> cosines(leaving.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    const UnitRows from(lanes[lane].keys, leaving), to(rows.keys(lane), staying);
    if (rule_.nearest == MergeRule::Nearest::cosine) {
      nearest.push_back(nearest_by_cosine(from, to));
    } else if (rule_.nearest == MergeRule::Nearest::product) {
      nearest.push_back(nearest_by_product(from, to, UnitRows(lanes[lane].values, leaving),
                                           UnitRows(rows.values(lane), staying)));
    } else {
      const std::vector<std::size_t> index =
          rule_.nearest == MergeRule::Nearest::run
              ? nearest_in_run(positions, stay_at, runs_of(lanes[lane].keys, rule_.run_above))
              : nearest_by_position(positions, stay_at);
      std::vector<Nearest>& of_lane = nearest.emplace_back();
      for (std::size_t i = 0; i < index.size(); ++i)
        of_lane.push_back({index[i], index[i] == kNowhere ? 0 : from.cosine(i, to, index[i])});
    }
    if (rule_.candidates > 0) drop_worst(lane, positions, staying.size(), nearest[lane]);
    for (std::size_t i = 0; i < leaving.size(); ++i)
      cosines[i] += (nearest[lane][i].cosine - cosines[i]) / static_cast<double>(lane + 1);
  }
  const double mean = mean_of(cosines);
  tau_ = begun_ ? tau_ + rule_.rate * (mean - tau_) : mean;
  begun_ = true;

  std::vector<std::vector<Joining>> joining(staying.size());
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    for (std::vector<Joining>& of_slot : joining) of_slot.clear();
    for (std::size_t i = 0; i < leaving.size(); ++i)
      if (nearest[lane][i].index != kNowhere && passes(cosines[i], nearest[lane][i].cosine, mean))
        joining[nearest[lane][i].index].push_back(
            {leaving[i], nearest[lane][i].cosine, scores_ ? score(lane, positions[i]) : 0});
    for (std::size_t i = 0; i < staying.size(); ++i)
      if (!joining[i].empty()) write(lane, staying[i], lanes[lane], joining[i], rows);
  }
}

void MergingCodec::write(std::size_t lane, std::size_t slot, const Lane& from,
                         std::span<const Joining> joining, CacheRows& rows) {
  const bool multiplied = rule_.mass == MergeRule::Mass::count;
  const std::span<float> key = rows.key(lane, slot), value = rows.value(lane, slot);
  std::vector<double> key_sum(key.size()), value_sum(value.size());
  std::uint16_t& stands_for = this->stands_for(lane, slot, rows);
  double tokens = stands_for, weights = 0;
  const auto take = [&](double weight, double count, std::span<const float> k, std::span<const float> v) {
    add(key_sum, weight * count, k);
    // With Mass::count a value is stored times its number of tokens.
    add(value_sum, multiplied ? weight : weight * count, v);
    weights += weight * count;
  };
  const bool by_score = rule_.weights == MergeRule::Weights::score;
  take(by_score ? score(lane, rows.positions()[slot]) : own_weight(rule_.weights, joining.size()), tokens,
       key, value);
  for (const Joining& other : joining) {
    const double count = from.stand.empty() ? 1 : from.stand[other.row * from.stand_stride];
    const std::span<const float> other_key = from.keys.row(other.row);
    take(by_score ? other.score : weight_of(rule_, other.cosine, key, other_key), count, other_key,
         from.values.row(other.row));
    tokens += count;
  }
  const double divisor = rule_.weights == MergeRule::Weights::cosine ? tokens : weights;
  if (divisor == 0) return;
  double factor = 1;
  if (rule_.mass != MergeRule::Mass::none) {
    tokens = std::min(tokens, kMostTokens);
    if (multiplied) factor = tokens;
    const double before = stands_for;
    stands_for = static_cast<std::uint16_t>(tokens);
    if (rule_.mass == MergeRule::Mass::log) rows.bias(lane, slot) = static_cast<float>(std::log(tokens));
    if (multiplied && rule_.target == MergeRule::Target::keys)
      for (float& x : value) x = static_cast<float>(static_cast<double>(x) / before * tokens);
  }
  if (rule_.target != MergeRule::Target::values)
    for (std::size_t c = 0; c < key.size(); ++c) key[c] = static_cast<float>(key_sum[c] / divisor);
  if (rule_.target != MergeRule::Target::keys)
    for (std::size_t c = 0; c < value.size(); ++c)
      value[c] = static_cast<float>(value_sum[c] / divisor * factor);
}

UnitRows::UnitRows(MatrixView keys, std::span<const std::size_t> rows) : dim_(keys.cols) {
  numbers_.reserve(rows.size() * dim_);
  for (const std::size_t row : rows) {
    const double norm = euclidean_norm(keys.row(row));
    for (const float x : keys.row(row))
      numbers_.push_back(norm > 0 ? static_cast<float>(static_cast<double>(x) / norm) : 0);
  }
}

double UnitRows::cosine(std::size_t row, const UnitRows& other, std::size_t other_row) const {
  const float product = dot(numbers_.data() + row * dim_, other.numbers_.data() + other_row * dim_, dim_);
  return std::clamp(static_cast<double>(product), -1.0, 1.0);
}

std::vector<Nearest> nearest_by_cosine(const UnitRows& leaving, const UnitRows& staying) {
  std::vector<Nearest> out(leaving.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = {0, leaving.cosine(i, staying, 0)};
    for (std::size_t j = 1; j < staying.size(); ++j)
      if (const double cosine = leaving.cosine(i, staying, j); cosine > out[i].cosine) out[i] = {j, cosine};
  }
  return out;
}

std::vector<Nearest> nearest_by_product(const UnitRows& leaving_keys, const UnitRows& staying_keys,
                                        const UnitRows& leaving_values, const UnitRows& staying_values) {
  std::vector<Nearest> out(leaving_keys.size(), Nearest{kNowhere, 0});
  for (std::size_t i = 0; i < out.size(); ++i)
    for (std::size_t j = 0; j < staying_keys.size(); ++j) {
      const double of_keys = leaving_keys.cosine(i, staying_keys, j);
      if (!(of_keys > 0)) continue;
      const double product = of_keys * leaving_values.cosine(i, staying_values, j);
      if (out[i].index == kNowhere || product > out[i].cosine) out[i] = {j, product};
    }
  return out;
}

std::vector<std::size_t> nearest_by_position(std::span<const Position> leaving,
                                             std::span<const Position> staying) {
  return nearest_in_run(leaving, staying, {});
}

std::vector<std::size_t> nearest_in_run(std::span<const Position> leaving, std::span<const Position> staying,
                                        std::span<const std::size_t> run_of) {
  const std::vector<std::size_t> order = least_first(staying);
  const auto together = [&](Position a, Position b) {
    return run_of.empty() || run_of[static_cast<std::size_t>(a)] == run_of[static_cast<std::size_t>(b)];
  };
  std::vector<std::size_t> out;
  for (const Position position : leaving) {
    const auto after = std::lower_bound(order.begin(), order.end(), position,
                                        [&](std::size_t i, Position p) { return staying[i] < p; });
    std::size_t nearest = kNowhere;
    if (after != order.begin() && together(staying[*(after - 1)], position)) nearest = *(after - 1);
    if (after != order.end() && together(staying[*after], position) &&
        (nearest == kNowhere || staying[*after] - position < position - staying[nearest]))
      nearest = *after;
    out.push_back(nearest);
  }
  return out;
}

std::vector<std::size_t> runs_of(MatrixView keys, double above) {
  std::vector<std::size_t> out(keys.rows), every(keys.rows);
  std::iota(every.begin(), every.end(), std::size_t{0});
  const UnitRows rows(keys, every);
  for (std::size_t row = 1; row < out.size(); ++row)
    out[row] = out[row - 1] + (rows.cosine(row - 1, rows, row) > above ? 0 : 1);
  return out;
}

}  // namespace kvsim::policy
