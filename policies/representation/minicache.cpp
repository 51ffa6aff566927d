// Two layers share the directions of their keys and values; each keeps its lengths.
#include <algorithm>
#include <cmath>
#include <limits>

#include "policies/api/slots.hpp"
#include "policies/api/spec.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/rows/norms.hpp"

namespace kvsim::policy::minicache {
namespace {

constexpr std::uint64_t kLengthBits = 16, kIndexBits = 32;

struct Rule {
  double from = 0.5;  ///< share of the layers that are before the first pair
  double t = 0.6, gamma = 0.05;
  ScalarCode code{ScalarKind::offset, 16};  ///< of a direction, and of a vector of a layer without a partner

  static Rule of(const Params& params) {
    return {params.share("from"), params.real("t"), params.real("gamma"),
            scalar_code(params, "minicache(" + params.text() + ")")};
  }
  std::optional<int> partner(int layer, int n_layers) const {
    const int begin = static_cast<int>(from * static_cast<double>(n_layers));
    if (layer < begin) return {};
    const int other = (layer - begin) % 2 == 0 ? layer + 1 : layer - 1;
    return other < n_layers ? std::optional<int>(other) : std::nullopt;
  }
};

/// The angles of a lane's keys, or of its values, that have been seen.
struct Angles {
  double least = std::numeric_limits<double>::infinity(), largest = -least;

  void add(double angle) {
    least = std::min(least, angle);
    largest = std::max(largest, angle);
  }
  /// Whether a token with this angle stays apart.
  bool apart(double angle, double gamma) const { return angle > largest - gamma * (largest - least); }
};

/// A vector and the one of the other layer.
struct Pair {
  std::span<const float> own, other;
  bool upper = false;  ///< whether `own` is of the later layer

  double angle() const {
    const double lengths = euclidean_norm(own) * euclidean_norm(other);
    if (!(lengths > 0)) return 0;  // a vector of length 0 takes any direction
    double product = 0;
    for (std::size_t c = 0; c < own.size(); ++c)
      product += static_cast<double>(own[c]) * static_cast<double>(other[c]);
    return std::acos(std::clamp(product / lengths, -1.0, 1.0));
  }

  /// What `own` reads back as: its length in 16 bits, in the direction at share t of the way to the later
  /// layer's, as that one's code reads back.
  void share(double t, const ScalarCode& code, std::span<float> out) const {
    const double length = euclidean_norm(own), length_of_other = euclidean_norm(other);
    const double angle = this->angle(), sine = std::sin(angle);
    double of_own = upper ? t : 1 - t, of_other = 1 - of_own;
    if (!(length > 0 && length_of_other > 0)) {
      of_own = length > 0 ? 1 : 0;
      of_other = 0;
    } else if (sine > 1e-6) {
      of_own = std::sin(of_own * angle) / sine;
      of_other = std::sin(of_other * angle) / sine;
    }
    const auto stored = static_cast<double>(nearest_half(static_cast<float>(length)));
    const double before = code.exact() ? stored : 1;
    of_own = length > 0 ? before * of_own / length : 0;
    of_other = length_of_other > 0 ? before * of_other / length_of_other : 0;
    for (std::size_t c = 0; c < own.size(); ++c)
      out[c] =
          static_cast<float>(of_own * static_cast<double>(own[c]) + of_other * static_cast<double>(other[c]));
    if (code.exact()) return;
    code.code(out.data(), out.size());
    for (float& x : out) x *= static_cast<float>(stored);
  }
};

/// A layer's half of what the pair takes. `apart`: keys and values that stay apart.
Ledger pair_ledger(const ScalarCode& code, const StorageShape& shape, std::uint64_t tokens,
                   std::uint64_t keys_apart, std::uint64_t values_apart) {
  const std::uint64_t vectors = shape.n_lanes * tokens, numbers = vectors * (shape.key_dim + shape.value_dim);
  Ledger out;
  out.codes = (numbers * (code.exact() ? shape.element_bits : code.bits) + 1) / 2;
  out.parameters = 2 * vectors * kLengthBits + vectors * code.group_bits();
  out.outliers = (keys_apart * shape.key_dim + values_apart * shape.value_dim) * shape.element_bits;
  out.indices = (keys_apart + values_apart) * kIndexBits / 2;
  return out;
}

/// Of a layer without a partner.
Ledger lone_ledger(const ScalarCode& code, const StorageShape& shape, std::uint64_t tokens) {
  if (code.exact()) return exact_ledger(shape, tokens);
  const std::uint64_t vectors = shape.n_lanes * tokens;
  Ledger out;
  out.codes = vectors * (shape.key_dim + shape.value_dim) * code.bits;
  out.parameters = 2 * vectors * code.group_bits();
  return out;
}

enum Side { kKeys, kValues };

/// What the prompt of a pair says of a lane's keys, or of its values.
struct SidePrompt {
  std::vector<float> shared{};  ///< [prompt][dim]
  std::vector<char> apart{};    ///< [prompt]
  Angles angles{};
};
struct LanePrompt {
  SidePrompt sides[2]{};
};

class MiniCodec final : public Codec {
 public:
  /// `prompt`: empty where the layer has no partner.
  MiniCodec(const Rule& rule, bool upper, const std::vector<LanePrompt>& prompt)
      : rule_(rule), upper_(upper), prompt_(&prompt) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    if (prompt_->empty())
      for (std::size_t slot = 0; slot < rows.slots(); ++slot) settle(slot, rows);
    for (const LanePrompt& lane : *prompt_)
      for (const Side side : {kKeys, kValues}) angles_.push_back(lane.sides[side].angles);
    apart_.assign(rows.slots() * angles_.size(), 0);
    for (std::size_t lane = 0; lane < prompt_->size(); ++lane)
      for (const Side side : {kKeys, kValues}) {
        const SidePrompt& of = (*prompt_)[lane].sides[side];
        for (std::size_t slot = 0; slot < rows.slots(); ++slot) {
          const std::size_t row_of_prompt = static_cast<std::size_t>(rows.positions()[slot]) - prompt.first();
          const std::span<float> row = vector(rows, lane, slot, side);
          apart(lane, slot, side) = of.apart[row_of_prompt];
          if (!of.apart[row_of_prompt])
            std::copy_n(of.shared.begin() + static_cast<std::ptrdiff_t>(row_of_prompt * row.size()),
                        row.size(), row.begin());
        }
      }
  }
  void leave(std::span<const std::size_t> victims, CacheRows& /*rows*/,
             std::optional<std::size_t> /*behind*/) override {
    if (!angles_.empty()) close_up(apart_, victims, angles_.size());
  }
  void join(std::size_t own_slot, CacheRows& rows) override {
    apart_.resize(rows.slots() * angles_.size());
    std::fill_n(apart_.begin() + static_cast<std::ptrdiff_t>(own_slot * angles_.size()), angles_.size(), 0);
  }
  void settle(std::size_t own_slot, CacheRows& rows) override {
    if (!prompt_->empty()) return;
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane)
      for (const Side side : {kKeys, kValues}) {
        const std::span<float> row = vector(rows, lane, own_slot, side);
        rule_.code.code(row.data(), row.size());
      }
  }
  void pair(std::size_t own_slot, MatrixView keys, MatrixView values, CacheRows& rows) override {
    for (std::size_t lane = 0; lane < prompt_->size(); ++lane)
      for (const Side side : {kKeys, kValues}) {
        const std::span<float> row = vector(rows, lane, own_slot, side);
        const Pair pair{row, (side == kKeys ? keys : values).row(lane), upper_};
        Angles& angles = angles_[2 * lane + side];
        const double angle = pair.angle();
        angles.add(angle);
        apart(lane, own_slot, side) = angles.apart(angle, rule_.gamma) ? 1 : 0;
        if (!apart(lane, own_slot, side)) pair.share(rule_.t, rule_.code, row);
      }
  }
  Ledger ledger(const CacheRows& rows) const override {
    if (prompt_->empty()) return lone_ledger(rule_.code, rows.shape(), rows.slots());
    std::uint64_t apart[2] = {0, 0};
    for (std::size_t i = 0; i < apart_.size(); ++i) apart[i % 2] += apart_[i] != 0 ? 1 : 0;
    return pair_ledger(rule_.code, rows.shape(), rows.slots(), apart[kKeys], apart[kValues]);
  }

 private:
  static std::span<float> vector(CacheRows& rows, std::size_t lane, std::size_t slot, Side side) {
    return side == kKeys ? rows.key(lane, slot) : rows.value(lane, slot);
  }
  char& apart(std::size_t lane, std::size_t slot, Side side) {
    return apart_[slot * angles_.size() + 2 * lane + side];
  }

  Rule rule_;
  bool upper_;
  const std::vector<LanePrompt>* prompt_;
  std::vector<Angles> angles_{};  ///< [lanes][sides]
  std::vector<char> apart_{};     ///< [slots][lanes][sides]
};

class MiniCache final : public Representation {
 public:
  MiniCache(const Rule& rule, const CacheUnit& unit)
      : rule_(rule), unit_(unit), partner_(rule.partner(unit.layer, unit.n_layers)) {}

  std::optional<int> partner() const override { return partner_; }
  void finish_pair(const Prompt& own, const Prompt& other) override {
    prompt_.assign(static_cast<std::size_t>(unit_.n_lanes), LanePrompt{});
    for (int lane = 0; lane < unit_.n_lanes; ++lane) {
      LanePrompt& out = prompt_[static_cast<std::size_t>(lane)];
      merge(own.keys(lane), other.keys(lane), out.sides[kKeys]);
      merge(own.values(lane), other.values(lane), out.sides[kValues]);
    }
  }
  std::unique_ptr<Codec> codec() const override {
    return std::make_unique<MiniCodec>(rule_, upper(), prompt_);
  }

 private:
  bool upper() const { return partner_ && *partner_ < unit_.layer; }

  void merge(MatrixView own, MatrixView other, SidePrompt& out) const {
    std::vector<double> angles(own.rows);
    for (std::size_t row = 0; row < own.rows; ++row) {
      angles[row] = Pair{own.row(row), other.row(row), upper()}.angle();
      out.angles.add(angles[row]);
    }
    out.shared.resize(own.rows * own.cols);
    out.apart.resize(own.rows);
    for (std::size_t row = 0; row < own.rows; ++row) {
      out.apart[row] = out.angles.apart(angles[row], rule_.gamma) ? 1 : 0;
      Pair{own.row(row), other.row(row), upper()}.share(
          rule_.t, rule_.code, std::span(out.shared).subspan(row * own.cols, own.cols));
    }
  }

  Rule rule_;
  CacheUnit unit_;
  std::optional<int> partner_;
  std::vector<LanePrompt> prompt_{};
};

/// Of a number: a product and a square for the angle, two products and a sum for the direction; times the
/// length when it is read. Every layer counts as one of a pair.
Cost pair_cost(const ScalarCode& code, const CostShape& shape) {
  const CodeOps coded = scalar_code_ops(code), ops{5 + coded.make, 1 + coded.read};
  return coding_cost(shape, ops, ops, Coding::apart);
}

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  // A shape that is of no model in particular is of a paired layer.
  const bool alone =
      shape.n_layers > 1 && !rule.partner(static_cast<int>(shape.layer), static_cast<int>(shape.n_layers));
  return alone ? lone_ledger(rule.code, shape, held.all()) : pair_ledger(rule.code, shape, held.all(), 0, 0);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "minicache",
      .summary =
          "two neighbouring layers share the directions of their keys and values, and each keeps its lengths",
      .paper =
          "Liu, Liu, Pan, He, Haffari, Zhuang, MiniCache: KV Cache Compression in Depth Dimension for "
          "Large Language Models, NeurIPS 2024, https://arxiv.org/abs/2405.14366",
      .details =
          "Behind the first share `from` of the layers, layers are paired; the layers before, and a last one "
          "without a partner, stay as they are. In each KV head, of a token's keys both layers store one "
          "direction, on the arc between their own at share t of the way to the later layer's, and each its "
          "length in 16 bits; of its values likewise. A vector whose angle between the layers is nearly the "
          "largest seen so far stays apart, in both layers, beside the shared direction and with an index of "
          "32 bits. A generated token is stored so once both layers have processed it. Layers of a pair must "
          "hold the same tokens: it goes with `full` alone, and each layer counts half of what the pair "
          "takes. Directions are not rounded to the format of the trace. With `bits`, a direction becomes "
          "codes with one scale and its least number, and so does each vector of a layer without a partner, "
          "as soon as its token's query has attended; what stays apart stays as it is. The bytes that are "
          "known before a run are those without what stays apart.",
      .departures = {{"paper: when an angle is nearly the largest is not known to us in its exact form",
                      "an angle above largest - gamma * (largest - least), over the tokens seen so far"},
                     {"paper: which layers its main results pair is not known to us; pairs from the middle "
                      "of the depth on take 1.33 times less at most, where 1.53 is reported",
                      "from the middle on; from= says otherwise"},
                     {"paper: the groups of its 4-bit codes are not known to us",
                      "bits=4: a direction is a group"}},
      .params = {share_param("from", "0.5", "of the layers, so many before the first pair stay as they are"),
                 real_param("t", "0.6", {0, 1},
                            "of the way from the earlier layer's direction to the later one's"),
                 real_param("gamma", "0.05", {0, 1},
                            "of the range of angles that stays apart at its upper end; 0: no token does"),
                 bits_param("16")},
      .needs = {.keys = true, .values = true},
      .cost = [](const Params& params,
                 const CostShape& shape) { return pair_cost(Rule::of(params).code, shape); },
      .rule = RepresentationRule{.by_depth = true, .ledger = ledger_of, .make = made<MiniCache, Rule>}};
}

}  // namespace kvsim::policy::minicache
