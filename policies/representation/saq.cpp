// The older a token, the fewer bits it is stored in, step by step.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "sim/base/error.hpp"
#include "sim/base/split.hpp"

namespace kvsim::policy::saq {
namespace {

struct Rule {
  std::vector<ScalarCode> steps{};  ///< of the first, numbers are stored as they come
  std::size_t segment = 128, group = 32;

  static Rule of(const Params& params) {
    Rule out;
    for (const std::string_view word : split(params.word("ladder"), '/')) {
      std::uint64_t bits = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bits);
      const bool first = out.steps.empty();
      if (error != std::errc() || end != word.data() + word.size() ||
          (first ? bits != 16 : bits < 1 || bits > 8 || bits >= out.steps.back().bits))
        usage_error("'" + std::string(word) + "' is no step of a ladder", "saq(" + params.text() + ")",
                    "A ladder begins with 16 and falls, each further step from 8 bits to 1: 16/8/4/2.");
      out.steps.push_back({ScalarKind::offset, bits});
    }
    out.segment = params.count("segment");
    out.group = params.count("group");
    return out;
  }
  std::size_t last() const { return steps.size() - 1; }
  bool exact() const { return steps.size() == 1; }
};

/// Adds a segment of which `tokens` are held, in `groups` groups.
void add_segment(Ledger& ledger, const Rule& rule, const StorageShape& shape, std::size_t step,
                 std::uint64_t tokens, std::uint64_t groups) {
  const ScalarCode& code = rule.steps[step];
  ledger.codes += shape.n_lanes * tokens * (shape.key_dim + shape.value_dim) * code.bits;
  ledger.parameters +=
      shape.n_lanes * (groups * shape.key_dim + tokens * (shape.value_dim / rule.group)) * code.group_bits();
}

class SaqCodec final : public Codec {
 public:
  explicit SaqCodec(const Rule& rule) : rule_(rule) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    const std::vector<Position> joined = ascending(rows.positions());
    for (const Position position : joined) take(position, rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) {
      const Position position = rows.positions()[victim];
      const auto found = segment_of_.find(position);
      if (found == segment_of_.end()) {
        std::erase(waiting_, position);
        continue;
      }
      for (std::vector<Position>& group : segments_[found->second].groups) std::erase(group, position);
      segment_of_.erase(found);
    }
  }
  void settle(std::size_t own_slot, CacheRows& rows) override { take(rows.positions()[own_slot], rows); }

  Ledger ledger(const CacheRows& rows) const override {
    Ledger out = exact_ledger(rows.shape(), waiting_.size());
    for (const Segment& segment : segments_) {
      std::uint64_t tokens = 0, groups = 0;
      for (const std::vector<Position>& group : segment.groups) {
        tokens += group.size();
        groups += group.empty() ? 0 : 1;
      }
      add_segment(out, rule_, rows.shape(), segment.step, tokens, groups);
    }
    return out;
  }

 private:
  struct Segment {
    std::size_t step = 0;
    std::vector<std::vector<Position>> groups{};  ///< tokens held, in the order in which they joined
  };

  /// The latest token. Once a segment is full, it and all older ones go a step down.
  void take(Position position, CacheRows& rows) {
    waiting_.push_back(position);
    if (rule_.exact() || waiting_.size() < rule_.segment) return;
    Segment& segment = segments_.emplace_back();
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (i % rule_.group == 0) segment.groups.emplace_back();
      segment.groups.back().push_back(waiting_[i]);
      segment_of_[waiting_[i]] = segments_.size() - 1;
    }
    waiting_.clear();
    for (Segment& older : segments_)
      if (older.step < rule_.last()) {
        ++older.step;
        code(older, rows);
      }
  }

  void code(const Segment& segment, CacheRows& rows) {
    const ScalarCode& code = rule_.steps[segment.step];
    const std::size_t keys = rows.shape().key_dim, values = rows.shape().value_dim;
    for (const std::vector<Position>& group : segment.groups)
      for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
        channels_.resize(group.size() * keys);
        for (std::size_t i = 0; i < group.size(); ++i)
          std::ranges::copy(rows.key(lane, rows.slot_of(group[i])), channels_.data() + i * keys);
        for (std::size_t c = 0; c < keys; ++c) code.code(channels_.data() + c, group.size(), keys);
        for (std::size_t i = 0; i < group.size(); ++i) {
          const std::size_t slot = rows.slot_of(group[i]);
          std::copy_n(channels_.data() + i * keys, keys, rows.key(lane, slot).begin());
          for (std::size_t first = 0; first < values; first += rule_.group)
            code.code(rows.value(lane, slot).data() + first, rule_.group);
        }
      }
  }

  Rule rule_;
  std::vector<Position> waiting_;                         ///< exact tokens, in the order in which they joined
  std::vector<Segment> segments_;                         ///< oldest first
  std::unordered_map<Position, std::size_t> segment_of_;  ///< of coded tokens
  std::vector<float> channels_;                           // scratch
};

/// A number is coded once per step of the ladder, from the second step on from what it has become. Most
/// numbers are read at the last step.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  if (rule.exact()) return {};
  CodeOps ops;
  for (std::size_t step = 1; step < rule.steps.size(); ++step) {
    const CodeOps of_step = scalar_code_ops(rule.steps[step]);
    ops.make += of_step.make + (step > 1 ? ops.read : 0);
    ops.read = of_step.read;
  }
  const double every = static_cast<double>(rule.segment);
  return coding_cost(shape, ops, ops, Coding::apart, every, every);
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  const std::uint64_t tokens = held.all();
  if (rule.exact()) return exact_ledger(shape, tokens);
  Ledger out = exact_ledger(shape, tokens % rule.segment);
  for (std::uint64_t age = 0; age < tokens / rule.segment; ++age)
    add_segment(out, rule, shape, std::min<std::uint64_t>(age + 1, rule.last()), rule.segment,
                rule.segment / rule.group);
  return out;
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  const Rule rule = Rule::of(params);
  if (!rule.exact() && static_cast<std::size_t>(unit.value_dim) % rule.group != 0)
    usage_error("groups of " + std::to_string(rule.group) + " do not divide a vector of " +
                    std::to_string(unit.value_dim) + " numbers",
                "saq(" + params.text() + ")", "Choose a group that does.");
  return std::make_unique<PlainRepresentation<SaqCodec, Rule>>(rule);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "saq",
      .summary = "a ladder of fewer and fewer bits, down which tokens go as they age",
      .paper = "Staircase Adaptive Quantization, 2024, https://arxiv.org/abs/2410.18441",
      .details =
          "The latest tokens wait exactly until a segment is full. Then it is coded in the bits of the "
          "ladder's second step, and each older segment is decoded and coded again one step lower, until it "
          "is at the last. Keys: each channel of `group` successive tokens shares a scale and a least "
          "number. Values: `group` channels of a token do, as in KIVI. The prompt's tokens go down the "
          "ladder as if they had come one by one.",
      .departures = {{"paper: the figure gives the rule; its ladder, segment and group are not known here",
                      "16/8/4/2, 128 and 32 are ours, and so is what becomes of the prompt"},
                     {"paper: multi-query attention, one KV head", "every KV head by itself"},
                     {"paper: nothing is evicted",
                      "a coded token that leaves is missing from its group when that is coded again; the "
                      "group's scale lives as long as one of its tokens"}},
      .params = {word_param("ladder", "16/8/4/2",
                            "per step; 16: as numbers come; 16 alone stores everything so", "bits"),
                 count_param("segment", "128", {1, 1 << 20}, "that go down together; a multiple of the group",
                             "tokens"),
                 count_param("group", "32", {1, 1 << 20}, "tokens of a key's group, channels of a value's")},
      .cost = cost_of,
      .check =
          [](const Params& params) {
            const Rule rule = Rule::of(params);
            if (rule.segment % rule.group != 0)
              usage_error("the segment must be a multiple of the group", "saq(" + params.text() + ")");
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::saq
