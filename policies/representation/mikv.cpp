// Tokens that an eviction would drop are kept in few bits, the others in more.
#include <algorithm>
#include <cmath>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::mikv {
namespace {

struct Rule {
  ScalarCode important{}, rest{};
  std::size_t groups = 2;  ///< per vector
  double share = 0, recent = 0;
  bool balancer = true;

  static Rule of(const Params& params) {
    Rule out;
    out.important.bits = std::stoull(params.word("hi"));
    out.rest.bits = std::stoull(params.word("lo"));
    out.groups = params.count("groups");
    out.share = params.share("share");
    out.recent = params.share("recent");
    out.balancer = params.flag("balancer");
    return out;
  }
  std::size_t important_of(std::size_t tokens) const {
    return static_cast<std::size_t>(share * static_cast<double>(tokens));
  }
  std::size_t window_of(std::size_t tokens) const {
    return static_cast<std::size_t>(recent * static_cast<double>(important_of(tokens)));
  }
  /// Whether attention decides anything.
  bool scores() const { return share > 0 && share < 1 && recent < 1; }
};

/// Adds `tokens` tokens of one lane.
void add_tokens(Ledger& ledger, const ScalarCode& code, std::size_t groups, const StorageShape& shape,
                std::uint64_t tokens) {
  const std::uint64_t numbers = tokens * (shape.key_dim + shape.value_dim);
  if (code.exact()) {
    ledger.exact += numbers * shape.element_bits;
    return;
  }
  ledger.codes += numbers * code.bits;
  ledger.parameters += tokens * 2 * groups * code.group_bits();
}

/// Of one lane. A bit per token says which class it is in.
Ledger lane_ledger(const Rule& rule, const StorageShape& shape, std::uint64_t tokens,
                   std::uint64_t important) {
  Ledger out;
  add_tokens(out, rule.important, rule.groups, shape, important);
  add_tokens(out, rule.rest, rule.groups, shape, tokens - important);
  out.indices = tokens;
  if (rule.balancer) out.tables = 16 * shape.key_dim;
  return out;
}

Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  // Both classes have codes of one kind. The balancer multiplies keys; reading divides the query instead.
  const CodeOps values = scalar_code_ops(rule.rest);
  CodeOps keys = values;
  if (rule.balancer) keys.make += 1;
  Cost out = coding_cost(shape, keys, values, Coding::apart);
  if (rule.scores()) {
    out.prompt_rows = kAllRows;
    out.prompt = out.prompt + prompt_sums(shape, shape.prompt) + sorted(shape, {false, real(shape.kv_heads)});
    out.scratch_bytes = whole_bytes(real(shape.kv_heads) * real(shape.prompt) * kScoreBytes);
    out.metadata.lane_slot = kScoreBytes;
    // Every step the row of each query is added to the scores, and the least one of the important tokens is
    // found; the kernel that codes does it.
    out.decode_rows = true;
    out.step_slot = {.ops = real(shape.query_heads + shape.kv_heads),
                     .bytes = real(2 * shape.kv_heads * kScoreBytes)};
  }
  if (rule.balancer) {
    const double queries = real(shape.prompt) * real(shape.query_heads * shape.head_dim);
    out.prompt = out.prompt + over_keys(shape, shape.prompt, 1) +
                 Work{.ops = queries, .bytes = queries * real(shape.element_bytes), .launches = 1};
  }
  return out;
}

/// What the prompt says of a lane.
struct LanePrompt {
  std::vector<double> scores{};   ///< attention received, per prompt position; empty: none is needed
  std::vector<float> balancer{};  ///< factor per channel of the keys; empty: 1
};

class MikvCodec final : public Codec {
 public:
  MikvCodec(const Rule& rule, const std::vector<LanePrompt>& lanes) : rule_(rule), lanes_(&lanes) {
    for (const LanePrompt& lane : lanes) scores_.push_back(lane.scores);
  }

  void begin(const Prompt& prompt, CacheRows& rows) override {
    for (std::vector<double>& lane : scores_) lane.insert(lane.begin(), prompt.first(), 0.0);
    important_.assign(rows.shape().n_lanes, {});
    for (std::size_t lane = 0; lane < important_.size(); ++lane) {
      for (const Position p : rows.positions()) mark(lane, p, true);
      demote(lane, rows);
      for (std::size_t slot = 0; slot < rows.slots(); ++slot) code(lane, slot, rows);
    }
  }

  void observe(MatrixView weights, const CacheRows& rows) override {
    const std::size_t group = weights.rows / scores_.size();
    for (std::size_t lane = 0; lane < scores_.size(); ++lane)
      for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
        const auto at = static_cast<std::size_t>(rows.positions()[slot]);
        if (scores_[lane].size() <= at) scores_[lane].resize(at + 1);
        for (std::size_t head = lane * group; head < (lane + 1) * group; ++head)
          scores_[lane][at] += static_cast<double>(weights(head, slot));
      }
  }

  /// The new token is important until others are more so. What was coded in more bits is coded again.
  void settle(std::size_t own_slot, CacheRows& rows) override {
    const Position own = rows.positions()[own_slot];
    for (std::size_t lane = 0; lane < important_.size(); ++lane) {
      mark(lane, own, true);
      for (const std::size_t slot : demote(lane, rows))
        if (slot != own_slot) code(lane, slot, rows);
      code(lane, own_slot, rows);
    }
  }

  Ledger ledger(const CacheRows& rows) const override {
    Ledger out;
    for (std::size_t lane = 0; lane < important_.size(); ++lane) {
      const auto n = std::ranges::count_if(rows.positions(), [&](Position p) { return important(lane, p); });
      out += lane_ledger(rule_, rows.shape(), rows.slots(), static_cast<std::uint64_t>(n));
    }
    return out;
  }

 private:
  bool important(std::size_t lane, Position position) const {
    return important_[lane][static_cast<std::size_t>(position)] != 0;
  }
  void mark(std::size_t lane, Position position, bool important) {
    const auto at = static_cast<std::size_t>(position);
    if (important_[lane].size() <= at) important_[lane].resize(at + 1);
    important_[lane][at] = important ? 1 : 0;
  }
  double score(std::size_t lane, Position position) const {
    return rule_.scores() ? scores_[lane][static_cast<std::size_t>(position)] : 0;
  }

  /// Demotes the lowest scores outside the window until there are as few important tokens as the rule says;
  /// of equal scores the oldest. Returns their slots.
  std::vector<std::size_t> demote(std::size_t lane, const CacheRows& rows) {
    const std::size_t window = rule_.window_of(rows.slots());
    std::vector<Position> order(rows.positions().begin(), rows.positions().end());
    const auto oldest_of_window = order.end() - static_cast<std::ptrdiff_t>(window);
    if (window > 0) std::nth_element(order.begin(), oldest_of_window, order.end());
    std::vector<Position> old(order.begin(), oldest_of_window);
    std::erase_if(old, [&](Position p) { return !important(lane, p); });
    const auto all = static_cast<std::size_t>(
        std::ranges::count_if(rows.positions(), [&](Position p) { return important(lane, p); }));
    const std::size_t most = rule_.important_of(rows.slots());
    const std::size_t n = all > most ? all - most : 0;
    std::partial_sort(old.begin(), old.begin() + static_cast<std::ptrdiff_t>(n), old.end(),
                      [&](Position a, Position b) {
                        const double of_a = score(lane, a), of_b = score(lane, b);
                        return of_a != of_b ? of_a < of_b : a < b;
                      });
    std::vector<std::size_t> demoted;
    for (std::size_t i = 0; i < n; ++i) {
      mark(lane, old[i], false);
      demoted.push_back(rows.slot_of(old[i]));
    }
    return demoted;
  }

  void code(std::size_t lane, std::size_t slot, CacheRows& rows) const {
    const ScalarCode& code = important(lane, rows.positions()[slot]) ? rule_.important : rule_.rest;
    if (code.exact()) return;
    const std::span<float> key = rows.key(lane, slot);
    const std::vector<float>& balancer = (*lanes_)[lane].balancer;
    for (std::size_t c = 0; c < balancer.size(); ++c) key[c] *= balancer[c];
    code_groups(code, key);
    for (std::size_t c = 0; c < balancer.size(); ++c) key[c] /= balancer[c];
    code_groups(code, rows.value(lane, slot));
  }
  void code_groups(const ScalarCode& code, std::span<float> vector) const {
    const std::size_t group = vector.size() / rule_.groups;
    for (std::size_t first = 0; first < vector.size(); first += group)
      code.code(vector.data() + first, group);
  }

  Rule rule_;
  const std::vector<LanePrompt>* lanes_;
  std::vector<std::vector<char>> important_{};  ///< per lane and position
  std::vector<std::vector<double>> scores_{};   ///< the same, attention received so far
};

class Mikv final : public Representation {
 public:
  Mikv(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), unit_(unit), sums_(unit.n_query_heads(), kAllRows) {}

  std::size_t prompt_rows() const override { return rule_.scores() ? kAllRows : 0; }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  std::size_t rows_beside_columns() const override { return 0; }
  void observe_columns(const PromptColumns& columns) override { sums_.take(columns.query_head, columns.sum); }

  void finish_prompt(const Prompt& prompt) override {
    lanes_.assign(static_cast<std::size_t>(unit_.n_lanes), {});
    for (int lane = 0; lane < unit_.n_lanes; ++lane) {
      LanePrompt& out = lanes_[static_cast<std::size_t>(lane)];
      if (rule_.scores()) {
        out.scores.assign(prompt.length(), 0);
        for (int head = lane * unit_.group; head < (lane + 1) * unit_.group; ++head) {
          const std::span<const double> sums = sums_.head(static_cast<std::size_t>(head));
          for (std::size_t j = 0; j < sums.size(); ++j) out.scores[j] += sums[j];
        }
      }
      if (rule_.balancer) out.balancer = balancer(prompt, lane);
    }
  }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<MikvCodec>(rule_, lanes_); }

 private:
  std::vector<float> balancer(const Prompt& prompt, int lane) const {
    const auto dim = static_cast<std::size_t>(unit_.head_dim);
    std::vector<float> keys(dim), queries(dim), out(dim, 1);
    const auto widen_to = [](std::vector<float>& largest, MatrixView rows) {
      for (std::size_t i = 0; i < rows.rows; ++i)
        for (std::size_t c = 0; c < largest.size(); ++c)
          largest[c] = std::max(largest[c], std::fabs(rows(i, c)));
    };
    widen_to(keys, prompt.keys(lane));
    for (int head = lane * unit_.group; head < (lane + 1) * unit_.group; ++head)
      widen_to(queries, prompt.queries(head));
    for (std::size_t c = 0; c < dim; ++c) {
      if (keys[c] <= 0 || queries[c] <= 0) continue;
      out[c] = nearest_half(std::max(std::sqrt(queries[c] / keys[c]), 0x1p-14F));
    }
    return out;
  }

  Rule rule_;
  CacheUnit unit_;
  ColumnSums sums_;
  std::vector<LanePrompt> lanes_;
};

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t tokens = held.all();
  Ledger out;
  for (std::size_t lane = 0; lane < shape.n_lanes; ++lane)
    out += lane_ledger(rule, shape, tokens, rule.important_of(tokens));
  return out;
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  const Rule rule = Rule::of(params);
  for (const int dim : {unit.head_dim, unit.value_dim})
    if (static_cast<std::size_t>(dim) % rule.groups != 0)
      usage_error(std::to_string(rule.groups) + " groups do not divide a vector of " + std::to_string(dim) +
                      " numbers",
                  "mikv(" + params.text() + ")", "Choose a number of groups that does.");
  return std::make_unique<Mikv>(rule, unit);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "mikv",
      .summary = "important tokens in many bits, all others in few instead of evicted",
      .paper =
          "Yang, Kim, Bae, Kwon, Park, Yang, Kwon, Lee, No Token Left Behind: Reliable KV Cache Compression "
          "via Importance-Aware Mixed Precision Quantization, 2024, https://arxiv.org/abs/2402.18096",
      .details =
          "Each KV head has its own important tokens, a share of what is held: the newest of them because "
          "they are new, the others for the attention that all queries of the head's group have paid to them "
          "so far, those of the prompt to everything, later ones to what is stored. Both classes have codes "
          "per token. A token that stops being important is coded again in fewer bits, from what it had "
          "become, and never becomes important again. The balancer multiplies each channel of the keys by "
          "sqrt(largest |q| / largest |k|) of the prompt before coding and divides by it when reading, which "
          "is the same as dividing the query.",
      .departures = {{"paper: the size of a cache counts codes and their scales",
                      "a bit per token and KV head for its class, and the balancer, are counted, too"}},
      .params = {choice_param("hi", "16", {"16", "8", "4"}, "of important tokens; 16: as they come", "bits"),
                 choice_param("lo", "2", {"2", "3", "4"}, "of the other tokens", "bits"),
                 share_param("share", "0.2", "of the tokens held that is important"),
                 share_param("recent", "0.5", "of the important ones that are the newest tokens"),
                 count_param("groups", "2", {1, 1 << 10}, "of a vector that have a scale each"),
                 flag_param("balancer", "true", "levels the channels of the keys before they are coded")},
      .needs_of =
          [](const Params& params) {
            const Rule rule = Rule::of(params);
            return Needs{.prompt_rows = rule.scores() ? RowNeed::all : RowNeed::none,
                         .decode_rows = rule.scores(),
                         .keys = rule.balancer,
                         .queries = rule.balancer};
          },
      .cost = cost_of,
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::mikv
