// A vector is turned so that its numbers are alike, and each is stored as the nearest of a few levels.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/codes/orthogonal.hpp"
#include "policies/parts/codes/row_codec.hpp"
#include "policies/parts/codes/scalar_code.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"

namespace kvsim::policy::turboquant {
namespace {

constexpr std::uint64_t kScaleBits = 16;

/// The positive levels that a standard normal number is nearest to on average (Lloyd 1982; Max 1960), of 1 to
/// 4 bits.
constexpr float kLevels[4][8] = {{0.7979F},
                                 {0.4528F, 1.5104F},
                                 {0.2451F, 0.7560F, 1.3439F, 2.1519F},
                                 {0.1284F, 0.3880F, 0.6568F, 0.9423F, 1.2562F, 1.6180F, 2.0690F, 2.7326F}};

/// Puts the nearest level, divided by `root`, in the place of each number.
void to_nearest_levels(std::span<float> vector, float root, std::uint64_t bits, std::vector<int>& scratch) {
  const float* const levels = kLevels[bits - 1];
  const int n = 1 << (bits - 1);
  scratch.assign(vector.size(), 0);
  for (int level = 0; level + 1 < n; ++level) {
    const float middle = (levels[level] + levels[level + 1]) / 2;
    for (std::size_t c = 0; c < vector.size(); ++c)
      scratch[c] += std::fabs(vector[c] * root) > middle ? 1 : 0;
  }
  for (std::size_t c = 0; c < vector.size(); ++c) {
    const float level = levels[scratch[c]];
    vector[c] = (vector[c] * root < 0 ? -level : level) / root;
  }
}

enum class Form { mse, product, sign, range };

struct Rule {
  Form keys = Form::mse, values = Form::mse;
  std::uint64_t bits = 4, value_bits = 4;
  bool hadamard = false, unit_length = false;

  static Form form(const Params& params, const char* name) {
    return params.is(name, "product") ? Form::product
           : params.is(name, "sign")  ? Form::sign
           : params.is(name, "range") ? Form::range
                                      : Form::mse;
  }
  static Rule of(const Params& params) {
    return {form(params, "form"),   form(params, "value_form"),        params.count("bits"),
            params.count("values"), params.is("rotation", "hadamard"), params.flag("unit_length")};
  }
};

using Rows = std::vector<float>;

/// Rows of independent normal numbers, [dim, dim]; orthogonal and of length 1 where they turn.
Rows normal_rows(std::size_t dim, std::uint64_t seed, std::string_view use, bool orthogonal) {
  std::vector<double> rows(dim * dim);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = normal(combine({seed, key_of(use), i}));
  if (orthogonal) make_orthogonal(rows, dim, 1);
  return {rows.begin(), rows.end()};
}

/// A square matrix by its rows and by its columns, so that products with it and with its transpose go along
/// memory.
class Square {
 public:
  explicit Square(Rows rows, std::size_t dim) : rows_(std::move(rows)), columns_(rows_.size()) {
    for (std::size_t i = 0; i < dim; ++i)
      for (std::size_t c = 0; c < dim; ++c) columns_[c * dim + i] = rows_[i * dim + c];
  }
  /// out = this * x, or its transpose times x.
  void multiply(std::span<const float> x, bool transposed, Rows& out) const {
    constexpr std::size_t kTurn = 4;  // because sums are read and written at every turn
    const std::size_t dim = x.size();
    const float* from = (transposed ? rows_ : columns_).data();
    out.assign(dim, 0);
    std::size_t i = 0;
    for (; i + kTurn <= dim; i += kTurn, from += kTurn * dim)
      for (std::size_t c = 0; c < dim; ++c)
        out[c] = (((out[c] + x[i] * from[c]) + x[i + 1] * from[dim + c]) + x[i + 2] * from[2 * dim + c]) +
                 x[i + 3] * from[3 * dim + c];
    for (; i < dim; ++i, from += dim)
      for (std::size_t c = 0; c < dim; ++c) out[c] += x[i] * from[c];
  }

 private:
  Rows rows_, columns_;
};

/// One side of the cache.
class TurboCode {
 public:
  /// `seed`: of the matrices, the same in all layers and shared by all caches of a unit. Without a dimension
  /// it only counts bits.
  TurboCode(Form form, std::uint64_t bits, const Rule& rule, std::size_t dim = 0, std::uint64_t seed = 0)
      : form_(form), bits_(bits), hadamard_(rule.hadamard), unit_length_(rule.unit_length) {
    if (dim == 0 || form == Form::range) return;
    if (!hadamard_) turn_ = std::make_shared<const Square>(normal_rows(dim, seed, "turboquant", true), dim);
    if (form == Form::product)
      signs_ = std::make_shared<const Square>(normal_rows(dim, seed, "turboquant.signs", false), dim);
  }

  void code(std::span<float> vector, std::size_t /*lane*/) const {
    bound(vector);
    if (form_ == Form::range) return ScalarCode{ScalarKind::offset, bits_}.code(vector.data(), vector.size());
    double squares = 0;
    for (const float x : vector) squares += static_cast<double>(x) * static_cast<double>(x);
    const float norm = static_cast<float>(std::sqrt(squares));
    if (!(norm > 0)) return;
    for (float& x : vector) x /= norm;
    const Rows unit = form_ == Form::product ? Rows(vector.begin(), vector.end()) : Rows();
    turn(vector, false);
    const float root = std::sqrt(static_cast<float>(vector.size()));
    const std::uint64_t bits = form_ == Form::mse ? bits_ : bits_ - 1;
    const bool measures = form_ != Form::mse || unit_length_;
    const Rows turned = measures ? Rows(vector.begin(), vector.end()) : Rows();
    std::vector<int> scratch;
    to_nearest_levels(vector, root, bits, scratch);
    double left = 0, length = 0;
    for (std::size_t c = 0; c < turned.size(); ++c) {
      const double error = static_cast<double>(turned[c]) - static_cast<double>(vector[c]);
      left += error * error;
      length += static_cast<double>(vector[c]) * static_cast<double>(vector[c]);
    }
    if (form_ == Form::sign) {
      const float spread =
          nearest_half(static_cast<float>(std::sqrt(left / static_cast<double>(vector.size()))));
      for (std::size_t c = 0; c < vector.size(); ++c) vector[c] += turned[c] > vector[c] ? spread : -spread;
    }
    if (unit_length_)
      for (float& x : vector) x = static_cast<float>(static_cast<double>(x) / std::sqrt(length));
    turn(vector, true);
    if (form_ == Form::product) add_signs(unit, nearest_half(static_cast<float>(std::sqrt(left))), vector);
    const float stored = nearest_half(norm);
    for (float& x : vector) x *= stored;
  }
  std::uint64_t code_bits(std::size_t dim) const { return bits_ * dim; }
  /// A norm; beside signs the residual's, and of a range its least number.
  std::uint64_t parameter_bits(std::size_t /*dim*/) const {
    return (form_ == Form::mse ? 1 : 2) * kScaleBits;
  }
  std::uint64_t shared_bits() const { return 0; }

 private:
  void turn(std::span<float> x, bool back) const {
    if (hadamard_) return hadamard(x);
    Rows out;
    turn_->multiply(x, back, out);
    std::copy(out.begin(), out.end(), x.begin());
  }
  /// sqrt(pi / 2) / d |r| S' sign(S r), with r what is left of the unit vector.
  void add_signs(Rows unit, float left, std::span<float> coded) const {
    for (std::size_t c = 0; c < unit.size(); ++c) unit[c] -= coded[c];
    Rows products, sum;
    signs_->multiply(unit, false, products);
    for (float& product : products) product = product > 0 ? 1.0F : -1.0F;
    signs_->multiply(products, true, sum);
    const float factor = std::sqrt(std::numbers::pi_v<float> / 2) / static_cast<float>(unit.size()) * left;
    for (std::size_t c = 0; c < unit.size(); ++c) coded[c] += factor * sum[c];
  }

  Form form_;
  std::uint64_t bits_;
  bool hadamard_, unit_length_;
  std::shared_ptr<const Square> turn_{}, signs_{};
};

Ledger ledger_of(const Params& params, const StorageShape& shape, LaneTokens held) {
  const Rule rule = Rule::of(params);
  return row_ledger(TurboCode(rule.keys, rule.bits, rule), TurboCode(rule.values, rule.value_bits, rule),
                    shape, held.all());
}

std::unique_ptr<Representation> make(const Params& params, const CacheUnit& unit) {
  const Rule rule = Rule::of(params);
  const auto keys = static_cast<std::size_t>(unit.head_dim),
             values = static_cast<std::size_t>(unit.value_dim);
  for (const std::size_t dim : {keys, values})
    if (rule.hadamard && !std::has_single_bit(dim))
      usage_error("a vector of " + std::to_string(dim) +
                      " numbers has no Walsh-Hadamard transform, whose size is a power of two",
                  "turboquant(" + params.text() + ")", "Say rotation=random.");
  return std::make_unique<RowRepresentation<TurboCode>>(
      TurboCode(rule.keys, rule.bits, rule, keys, unit.seed),
      TurboCode(rule.values, rule.value_bits, rule, values, unit.seed));
}

/// Queries are turned as keys are, and outputs back as values are; with signs queries meet S, too.
Cost cost_of(const Params& params, const CostShape& shape) {
  const Rule rule = Rule::of(params);
  const auto ops = [&](Form form, std::uint64_t bits, std::size_t dim) {
    if (form == Form::range) return scalar_code_ops({ScalarKind::offset, bits});
    // The norm, a division, a comparison per bit, packing; unpacking, a look-up, the norm, and with signs an
    // addition.
    return CodeOps{4 + real(bits) + (rule.hadamard ? hadamard_ops(dim) : 0), form == Form::mse ? 3.0 : 4.0};
  };
  Cost out = coding_cost(shape, ops(rule.keys, rule.bits, shape.head_dim),
                         ops(rule.values, rule.value_bits, shape.value_dim), Coding::appending);
  if (rule.hadamard && rule.keys != Form::product) return out;
  const std::size_t columns = (rule.hadamard ? 0 : shape.head_dim) +
                              (rule.keys == Form::product ? shape.head_dim : 0),
                    tokens = std::min(shape.prompt, shape.budget);
  out.prompt = out.prompt + projected_keys(shape, tokens, columns);
  out.step =
      out.step + projected_keys(shape, 1, columns) + projected_queries(shape, shape.query_heads, columns);
  if (!rule.hadamard && rule.values != Form::range) {  // values in, outputs out
    out.prompt = out.prompt + projected_keys(shape, tokens, shape.value_dim);
    out.step = out.step + projected_keys(shape, 1, shape.value_dim) +
               projected_queries(shape, shape.query_heads, shape.value_dim);
  }
  return out;
}

ParamSpec form_param(const char* name, std::vector<std::string> forms, const char* help) {
  return choice_param(name, "mse", std::move(forms), help);
}

}  // namespace

PolicySpec spec() {
  return {
      .name = "turboquant",
      .summary =
          "numbers of a randomly turned vector at the best levels for normal ones; keys perhaps with signs",
      .paper =
          "Zandieh, Daliri, Hadian, Mirrokni, TurboQuant: Online Vector Quantization with Near-optimal Distortion Rate, 2025, "
          "https://arxiv.org/abs/2504.19874",
      .details =
          "A vector is stored as its norm, in 16 bits, and the direction: turned by a random orthogonal matrix its d numbers are "
          "about normal with variance 1/d, and each becomes the nearest of the 2^bits levels of least mean squared error for "
          "those. form=product spends one of the bits on the signs of S r, with r what is left of the direction and S normal numbers, "
          "and stores |r|: a key then reads with sqrt(pi/2) / d |r| S' sign(S r) more, so that its product with a query is right "
          "in the mean over S. form=sign spends it on the signs of what is left of each turned number, and stores their root mean square. "
          "value_form=range has 2^bits equal steps from the least to the largest number of a value, which is not turned. With "
          "unit_length the turned levels are divided by their length before they are turned back. A token's own query reads its code. "
          "The matrices follow from the seed, are the same in all layers and are not counted.",
      .departures = {{"paper: levels for the exact density on the sphere",
                      "those for normal numbers, which it approaches"},
                     {"lmdeploy, vLLM: a Hadamard transform without random signs",
                      "rotation=hadamard; presets turboquant.lmdeploy and turboquant.vllm"},
                     {"vLLM: leaves the first and last two layers as they are", "codes every layer"}},
      .params = {count_param("bits", "4", {1, 4},
                             "of a number of a key, the sign of the other forms included"),
                 form_param("form", {"mse", "product", "sign"}, "of keys"),
                 count_param("values", "4", {1, 4}, "bits of a number of a value"),
                 form_param("value_form", {"mse", "range"}, "of values"),
                 choice_param("rotation", "random", {"random", "hadamard"}, "what turns a vector"),
                 flag_param("unit_length", "false", "divides the levels of a vector by their length")},
      .randomised = true,
      .cost = cost_of,
      .check =
          [](const Params& params) {
            if (!params.is("form", "mse") && params.count("bits") < 2)
              usage_error("one bit is the sign, and at least one is a level",
                          "turboquant(" + params.text() + ")", "Say bits=2 or more.");
          },
      .rule = RepresentationRule{.ledger = ledger_of, .make = make}};
}

}  // namespace kvsim::policy::turboquant
