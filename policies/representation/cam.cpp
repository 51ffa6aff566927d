// CaM's merging: the value of what is evicted is spread over the tokens behind it, by chance.
#include <algorithm>

#include "policies/api/slots.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "policies/parts/rows/column_sums.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::cam {
namespace {

struct Rule {
  /// Attention of a token: of the latest row, summed over all rows, or their mean over those that see it.
  enum class Attention { last, sum, mean };
  /// What it is divided by: the mean over all later tokens, or over those that take the value in, or the
  /// largest of all that stay.
  enum class Against { later, next, largest };

  std::size_t tokens = 32;
  Attention attention = Attention::last;
  Against against = Against::later;
  bool sampled = true;
  bool prompt = false;  ///< what is cut from the prompt is merged, too

  static Rule of(const Params& params) {
    Rule out;
    out.tokens = params.count("tokens");
    out.attention = params.is("attention", "last")  ? Attention::last
                    : params.is("attention", "sum") ? Attention::sum
                                                    : Attention::mean;
    out.against = params.is("against", "later")  ? Against::later
                  : params.is("against", "next") ? Against::next
                                                 : Against::largest;
    out.sampled = params.is("rule", "sampled");
    out.prompt = params.is("prompt", "merge");
    return out;
  }
};

/// Attention that a token of a lane has received, summed over the query heads of the lane.
struct Received {
  double sum = 0, rows = 0;

  double amount(const Rule& rule) const {
    return rule.attention == Rule::Attention::mean ? (rows > 0 ? sum / rows : 0) : sum;
  }
};

class CamCodec final : public Codec {
 public:
  /// `prompt`: [lanes][prompt].
  CamCodec(const Rule& rule, const CacheUnit& unit, const std::vector<std::vector<Received>>& prompt)
      : rule_(rule), unit_(unit), prompt_(&prompt), n_lanes_(prompt.size()) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    received_.clear();
    for (const Position position : rows.positions())
      for (const std::vector<Received>& of_lane : *prompt_)
        received_.push_back(of_lane[static_cast<std::size_t>(position) - prompt.first()]);
    if (!rule_.prompt) return;
    std::vector<Place> staying;
    for (std::size_t slot = 0; slot < rows.slots(); ++slot) staying.push_back({rows.positions()[slot], slot});
    std::ranges::sort(staying);
    for (std::size_t row = 0; row < prompt.length(); ++row) {
      const auto position = static_cast<Position>(prompt.first() + row);
      if (rows.holds(position)) continue;
      for (std::size_t lane = 0; lane < n_lanes_; ++lane)
        spread(lane, {position, (*prompt_)[lane][row], prompt.values(static_cast<int>(lane)).row(row)},
               staying, rows);
    }
  }

  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> behind) override {
    std::vector<char> leaves(rows.slots());
    std::vector<Place> leaving, staying;
    for (const std::size_t victim : victims) leaves[victim] = 1;
    for (std::size_t slot = 0; slot < rows.slots(); ++slot)
      if (slot != behind) (leaves[slot] != 0 ? leaving : staying).push_back({rows.positions()[slot], slot});
    std::ranges::sort(leaving);
    std::ranges::sort(staying);
    for (const auto& [position, slot] : leaving)
      for (std::size_t lane = 0; lane < n_lanes_; ++lane)
        spread(lane, {position, received(lane, slot), rows.values(lane).row(slot)}, staying, rows);
    close_up(received_, victims, n_lanes_);
  }

  void join(std::size_t own_slot, CacheRows& rows) override {
    received_.resize(rows.slots() * n_lanes_);
    for (std::size_t lane = 0; lane < n_lanes_; ++lane) received(lane, own_slot) = {};
    own_ = rows.positions()[own_slot];
  }

  void observe(MatrixView weights, const CacheRows& rows) override {
    const auto group = static_cast<std::size_t>(unit_.group);
    for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
      const auto at = static_cast<std::size_t>(rows.positions()[slot]);
      for (std::size_t lane = 0; lane < n_lanes_; ++lane) {
        Received& of = received(lane, slot);
        if (rule_.attention == Rule::Attention::last) of = {};
        for (std::size_t head = lane * group; head < (lane + 1) * group; ++head)
          of.sum += static_cast<double>(weights(head, slot));
        if (unit_.sees(static_cast<std::size_t>(own_), at)) of.rows += 1;
      }
    }
  }

  Ledger ledger(const CacheRows& rows) const override { return exact_ledger(rows.shape(), rows.slots()); }

 private:
  struct Place {
    Position position = 0;
    std::size_t slot = 0;
    auto operator<=>(const Place&) const = default;
  };
  struct Leaving {
    Position position = 0;
    Received received{};
    std::span<const float> value{};
  };

  Received& received(std::size_t lane, std::size_t slot) { return received_[slot * n_lanes_ + lane]; }

  /// `staying`: in order of position.
  void spread(std::size_t lane, const Leaving& leaving, std::span<const Place> staying, CacheRows& rows) {
    const auto first = std::ranges::upper_bound(staying, leaving.position, {}, &Place::position);
    const std::span<const Place> later{first, staying.end()};
    const std::span<const Place> into = later.first(std::min(rule_.tokens, later.size()));
    if (into.empty()) return;
    const std::span<const Place> others = rule_.against == Rule::Against::later  ? later
                                          : rule_.against == Rule::Against::next ? into
                                                                                 : staying;
    const double factor = share(lane, leaving, others) / static_cast<double>(into.size());
    if (factor == 0) return;
    for (const Place& place : into) {
      const std::span<float> value = rows.value(lane, place.slot);
      for (std::size_t c = 0; c < value.size(); ++c)
        value[c] = static_cast<float>(static_cast<double>(value[c]) +
                                      factor * static_cast<double>(leaving.value[c]));
    }
  }

  /// How much of the value is passed on: the probability, or with a draw 0 or 1.
  double share(std::size_t lane, const Leaving& leaving, std::span<const Place> others) {
    double total = 0, largest = 0;
    for (const Place& place : others) {
      const double amount = received(lane, place.slot).amount(rule_);
      total += amount;
      largest = std::max(largest, amount);
    }
    const double against =
        rule_.against == Rule::Against::largest ? largest : total / static_cast<double>(others.size());
    const double own = leaving.received.amount(rule_);
    const double probability = own <= 0 ? 0 : own < against ? own / against : 1;
    if (!rule_.sampled) return probability;
    const auto head = static_cast<std::uint64_t>(unit_.first_kv_head) + lane;
    const double draw = uniform01(combine({unit_.seed, key_of("cam"), static_cast<std::uint64_t>(unit_.layer),
                                           head, static_cast<std::uint64_t>(leaving.position)}));
    return draw < probability ? 1 : 0;
  }

  Rule rule_;
  CacheUnit unit_;
  const std::vector<std::vector<Received>>* prompt_;
  std::size_t n_lanes_;
  std::vector<Received> received_{};  ///< [slots][lanes]
  Position own_ = 0;
};

class Cam final : public Representation {
 public:
  Cam(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), unit_(unit), sums_(unit.n_query_heads(), rows_of(rule)) {}

  std::size_t prompt_rows() const override { return rows_of(rule_); }
  void observe(const PromptRows& rows) override { sums_.add(rows); }
  std::size_t rows_beside_columns() const override {
    return rule_.attention == Rule::Attention::last ? prompt_rows() : 0;
  }
  void observe_columns(const PromptColumns& columns) override {
    if (rule_.attention != Rule::Attention::last) sums_.take(columns.query_head, columns.sum);
  }

  void finish_prompt(const Prompt& prompt) override {
    const std::size_t length = prompt.length(), rows = std::min(rows_of(rule_), length);
    prompt_.assign(static_cast<std::size_t>(unit_.n_lanes), std::vector<Received>(length));
    for (std::size_t lane = 0; lane < prompt_.size(); ++lane)
      for (std::size_t position = 0; position < length; ++position) {
        Received& of = prompt_[lane][position];
        of.rows = static_cast<double>(unit_.seen_by(position, rows, length));
        const auto group = static_cast<std::size_t>(unit_.group);
        for (std::size_t head = lane * group; head < (lane + 1) * group; ++head)
          of.sum += sums_.head(head)[position];
      }
  }
  std::unique_ptr<Codec> codec() const override { return std::make_unique<CamCodec>(rule_, unit_, prompt_); }

 private:
  static std::size_t rows_of(const Rule& rule) {
    return rule.attention == Rule::Attention::last ? 1 : kAllRows;
  }

  Rule rule_;
  CacheUnit unit_;
  ColumnSums sums_;
  std::vector<std::vector<Received>> prompt_{};
};

/// Every token that leaves adds a part of its value to those of the tokens behind it.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  const double lanes = real(shape.kv_heads), numbers = lanes * real(shape.value_dim),
               taken = real(rule.tokens);
  const Work merged{.ops = (1 + taken) * numbers,
                    .bytes = (1 + 2 * taken) * numbers * real(shape.element_bytes),
                    .launches = 2};
  Cost out;
  out.decode_rows = true;
  if (rule.attention != Rule::Attention::last) {
    out.prompt_rows = kAllRows;
    out.prompt = prompt_sums(shape, shape.prompt);
    out.metadata.lane_slot = kScoreBytes;
    out.step_slot = {.ops = lanes, .bytes = 2 * lanes * real(kScoreBytes)};
  }
  out.leaving = merged;
  // The mean, or the largest, of the attention of what stays.
  out.leaving_slot = {.ops = lanes, .bytes = lanes * real(kScoreBytes)};
  if (rule.prompt && shape.prompt > shape.budget) {
    Work cut = real(shape.prompt - shape.budget) * merged;
    cut.launches = 2;
    out.prompt = out.prompt + cut;
  }
  return out;
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "cam",
      .summary =
          "the value of what is evicted is added to the tokens behind it, with the chance that its "
          "attention gives it",
      .paper =
          "Zhang, Du, Luo, Zhong, Zhang, Liu, Ji, CaM: Cache Merging for Memory-efficient LLMs "
          "Inference, ICML 2024, https://proceedings.mlr.press/v235/zhang24n.html",
      .details =
          "When a token leaves, its attention is divided by the mean over tokens that stay. That, at most 1, "
          "is the probability with which its value, divided by the number m of the next tokens that stay, is "
          "added to the value of each of them. Otherwise it is dropped. Keys stay as they are, and so do "
          "bytes. KV heads decide alone, by the attention of all their query heads. Draws follow from the "
          "seed, the layer, the head and the position. What is cut from the prompt is dropped. Added numbers "
          "are not rounded to the format of the trace.",
      .departures =
          {{"authors' code for summarisation (LLaMA): the latest row decides, m=32, against the mean over "
            "the rest of the window",
            "the default"},
           {"authors' code for generation: accumulated attention, m=16, against the mean over these 16",
            "attention=sum,tokens=16,against=next; the preset cam.generation"},
           {"authors' code for question answering: mean attention, m as long as the recent window, against "
            "the largest of start and window, whenever the window moves over the prompt",
            "attention=mean,against=largest with as many tokens; the prompt is cut once, and only tokens "
            "that stay take values in"},
           {"authors' code for summarisation: what the prompt loses when it is cut is dropped, and later "
            "tokens that leave are merged one by one",
            "the default; prompt=merge merges what the cut drops at once, into tokens that stay, which adds "
            "up where many leave in a row"},
           {"authors' code for summarisation (GPT-NeoX, OPT): no draw, merged where the attention is above "
            "the mean",
            "not here; rule=expected does without a draw"},
           {"authors' code: on the windows of StreamingLLM, where m tokens follow",
            "on any eviction; where fewer follow, m is their number"},
           {"authors' code: one draw per query head, which is a KV head of its models", "one per KV head"}},
      .params =
          {count_param("tokens", "32", {1, 1 << 20}, "m, the next tokens that take the value in", "tokens"),
           choice_param("attention", "last", {"last", "sum", "mean"},
                        "that decides: of the latest row, summed over all rows, or the mean of the rows "
                        "that see the token"),
           choice_param("against", "later", {"later", "next", "largest"},
                        "what it is divided by: the mean over all later tokens that stay, or over the m "
                        "next, or the largest of all that stay"),
           choice_param("prompt", "drop", {"drop", "merge"},
                        "what becomes of the tokens that the prompt loses when it is cut"),
           choice_param("rule", "sampled", {"sampled", "expected"},
                        "a draw decides, or the value is multiplied by the probability")},
      .needs_of =
          [](const Params& params) {
            return Needs{.prompt_rows = params.is("attention", "last") ? RowNeed::window : RowNeed::all,
                         .decode_rows = true,
                         .values = true};
          },
      .randomised = true,
      .cost = cost_of,
      .rule = RepresentationRule{.make = made<Cam, Rule>}};
}

}  // namespace kvsim::policy::cam
