// Representations written in Python (kvsim.Representation).
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "policies/api/representation.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "sim/base/error.hpp"
#include "tools/python/core/owned_array.hpp"
#include "tools/python/core/python_policies.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using policy::CacheRows;
using policy::CacheUnit;
using policy::Ledger;
using policy::Params;
using policy::Position;
using policy::StorageShape;

using Numbers = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

std::uint64_t bits_from(nb::handle said, const std::string& where) {
  const double bits = nb::cast<double>(nb::module_::import_("builtins").attr("float")(said));
  if (!(bits >= 0 && bits < 0x1p53 && bits == std::floor(bits)))
    usage_error("returned " + text_of(said) + " where a number of bits is expected", where,
                "It is a whole number, not negative.");
  return static_cast<std::uint64_t>(bits);
}

/// What bits_of() says of coded tokens of one lane. With the interpreter's lock.
Ledger coded_ledger(const nb::object& object, std::uint64_t tokens, const std::string& where) {
  const std::pair<const char*, std::uint64_t Ledger::*> kParts[] = {
      {"codes", &Ledger::codes},     {"parameters", &Ledger::parameters}, {"outliers", &Ledger::outliers},
      {"indices", &Ledger::indices}, {"tables", &Ledger::tables},         {"shared", &Ledger::shared},
      {"host", &Ledger::host}};
  const nb::object said = object.attr("bits_of")(tokens);
  Ledger out;
  if (!nb::isinstance<nb::dict>(said)) {
    out.codes = bits_from(said, where);
    return out;
  }
  for (const auto [key, bits] : nb::cast<nb::dict>(said)) {
    const std::string name = text_of(key);
    const auto* const part =
        std::ranges::find_if(kParts, [&](const auto& known) { return name == known.first; });
    if (part == std::ranges::end(kParts))
      usage_error("returned bits of '" + name + "'", where,
                  "They are of codes, parameters, outliers, indices, tables, shared or host.");
    out.*(part->second) = bits_from(bits, where);
  }
  return out;
}

/// `coded` tokens of a lane in all lanes, and `exact` ones that are stored as they come.
Ledger whole_ledger(const Ledger& coded, const StorageShape& shape, std::uint64_t exact) {
  Ledger out = policy::exact_ledger(shape, exact);
  for (std::size_t lane = 0; lane < shape.n_lanes; ++lane) out += coded;
  return out;
}

/// When tokens are coded.
struct CodingRule {
  std::size_t exact = 0, block = 1;

  /// A token's own query reads its code.
  bool at_once() const { return exact == 0 && block == 1; }
  /// How many of `tokens` that are not coded are now.
  std::size_t coded_of(std::size_t tokens) const {
    return tokens > exact ? (tokens - exact) / block * block : 0;
  }
};

class PythonCodec final : public policy::Codec {
 public:
  PythonCodec(SharedDeclaration declaration, CodingRule rule, const CacheUnit& unit,
              std::shared_ptr<nb::object> object)
      : declaration_(std::move(declaration)), rule_(rule), unit_(unit), object_(std::move(object)) {}

  void begin(const policy::Prompt& /*prompt*/, CacheRows& rows) override {
    waiting_.assign(rows.positions().begin(), rows.positions().end());
    std::ranges::sort(waiting_);
    code_oldest(rule_.coded_of(waiting_.size()), rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) std::erase(waiting_, rows.positions()[victim]);
  }
  void join(std::size_t own_slot, CacheRows& rows) override {
    if (rule_.at_once()) admit(own_slot, rows);
  }
  void settle(std::size_t own_slot, CacheRows& rows) override {
    if (!rule_.at_once()) admit(own_slot, rows);
  }
  Ledger ledger(const CacheRows& rows) const override {
    const std::size_t coded = rows.slots() - waiting_.size();
    if (!counted_ || counted_->first != coded) {
      const std::string where = declaration_->place(unit_, "bits_of");
      declaration_->with_python(where, [&] { counted_ = {coded, coded_ledger(*object_, coded, where)}; });
    }
    return whole_ledger(counted_->second, rows.shape(), waiting_.size());
  }

 private:
  void admit(std::size_t own_slot, CacheRows& rows) {
    waiting_.push_back(rows.positions()[own_slot]);
    code_oldest(rule_.coded_of(waiting_.size()), rows);
  }

  void code_oldest(std::size_t tokens, CacheRows& rows) {
    if (tokens == 0) return;
    std::vector<std::size_t> slots;
    for (std::size_t i = 0; i < tokens; ++i) slots.push_back(rows.slot_of(waiting_[i]));
    const auto key = [&rows](std::size_t lane, std::size_t slot) { return rows.key(lane, slot); };
    const auto value = [&rows](std::size_t lane, std::size_t slot) { return rows.value(lane, slot); };
    const std::size_t lanes = rows.shape().n_lanes;
    const std::string where = declaration_->place(unit_, "encode");
    declaration_->with_python(where, [&] {
      const nb::object returned =
          object_->attr("encode")(gathered(slots, lanes, rows.shape().key_dim, key),
                                  gathered(slots, lanes, rows.shape().value_dim, value));
      if (!nb::isinstance<nb::tuple>(returned) || nb::len(returned) != 2)
        usage_error("returned no pair", where, "It returns keys and values.");
      scatter(returned[0], "keys", slots, lanes, rows.shape().key_dim, key, where);
      scatter(returned[1], "values", slots, lanes, rows.shape().value_dim, value, where);
    });
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(tokens));
  }

  /// A copy, [lanes, slots, dim].
  template <class RowOf>
  static nb::object gathered(std::span<const std::size_t> slots, std::size_t lanes, std::size_t dim,
                             RowOf row_of) {
    std::vector<float> numbers;
    numbers.reserve(lanes * slots.size() * dim);
    for (std::size_t lane = 0; lane < lanes; ++lane)
      for (const std::size_t slot : slots) {
        const std::span<const float> row = row_of(lane, slot);
        numbers.insert(numbers.end(), row.begin(), row.end());
      }
    return owned_array(std::move(numbers), {lanes, slots.size(), dim});
  }

  template <class RowOf>
  static void scatter(nb::handle returned, const char* which, std::span<const std::size_t> slots,
                      std::size_t lanes, std::size_t dim, RowOf row_of, const std::string& where) {
    const nb::object floats = real_array(returned, "float32", where);
    Numbers numbers;
    const bool fits = nb::cast<std::size_t>(floats.attr("ndim")) == 3 && nb::try_cast(floats, numbers);
    if (!fits || numbers.shape(0) != lanes || numbers.shape(1) != slots.size() || numbers.shape(2) != dim)
      usage_error("returned " + std::string(which) + " of shape " + text_of(floats.attr("shape")) +
                      " where (" + std::to_string(lanes) + ", " + std::to_string(slots.size()) + ", " +
                      std::to_string(dim) + ") is expected",
                  where, "They have the shapes that encode() is given.");
    const float* from = numbers.data();
    if (!std::all_of(from, from + numbers.size(), [](float x) { return std::isfinite(x); }))
      usage_error("returned " + std::string(which) + " that are not finite", where);
    for (std::size_t lane = 0; lane < lanes; ++lane)
      for (const std::size_t slot : slots) {
        std::copy_n(from, dim, row_of(lane, slot).begin());
        from += dim;
      }
  }

  SharedDeclaration declaration_;
  CodingRule rule_;
  CacheUnit unit_;
  std::shared_ptr<nb::object> object_;
  std::deque<Position> waiting_;  ///< tokens that are not coded yet, in the order in which they joined
  mutable std::optional<std::pair<std::size_t, Ledger>> counted_;  ///< of the latest number of coded tokens
};

class PythonRepresentation final : public Recording<policy::Representation> {
 public:
  PythonRepresentation(SharedDeclaration declaration, const Params& params, CodingRule rule,
                       const CacheUnit& unit)
      : Recording(std::move(declaration), params, unit), rule_(rule), unit_(unit) {}

  void finish_prompt(const policy::Prompt& prompt) override {
    const std::string where = declaration_->place(unit_, "prepare");
    declaration_->with_python(where, [&] {
      prepared_ = held(declaration_->instance(params_, &unit_));
      if (declaration_->has_prepare) recorder_.call(*prepared_, "prepare", prompt);
    });
  }

  std::unique_ptr<policy::Codec> codec() const override {
    return declaration_->with_python(declaration_->place(unit_, "__deepcopy__"), [&] {
      // Every cache goes on from what prepare() has left in the object.
      nb::object own = prepared_ ? nb::module_::import_("copy").attr("deepcopy")(*prepared_)
                                 : declaration_->instance(params_, &unit_);
      return std::make_unique<PythonCodec>(declaration_, rule_, unit_, held(std::move(own)));
    });
  }

 private:
  CodingRule rule_;
  CacheUnit unit_;
  std::shared_ptr<nb::object> prepared_;
};

}  // namespace

void complete_representation(policy::PolicySpec& spec, const SharedDeclaration& declaration) {
  const auto rule = [declaration](const Params& params) -> CodingRule {
    return {declaration->exact.of(params), declaration->block.of(params)};
  };
  policy::RepresentationRule stored{.by_depth = true};
  spec.check = [declaration, rule](const Params& params) {
    if (rule(params).block == 0)
      usage_error("codes blocks of no tokens", declaration->name, "`block` is 1 or more.");
  };
  spec.cost = [declaration](const Params&, const policy::CostShape& shape) {
    const policy::CodeOps ops{declaration->make_ops, declaration->read_ops};
    return policy::coding_cost(shape, ops, ops, policy::Coding::appending);
  };
  stored.ledger = [declaration, rule](const Params& params, const StorageShape& shape,
                                      policy::LaneTokens held) {
    const std::uint64_t tokens = held.all(), coded = rule(params).coded_of(tokens);
    const std::string where = declaration->name + ": bits_of()";
    return declaration->with_python(where, [&] {
      nb::dict attributes;
      attributes["layer"] = shape.layer;
      attributes["n_layers"] = shape.n_layers;
      attributes["n_lanes"] = shape.n_lanes;
      attributes["head_dim"] = shape.key_dim;
      attributes["value_dim"] = shape.value_dim;
      const nb::object object = declaration->instance(params, attributes);
      return whole_ledger(coded_ledger(object, coded, where), shape, tokens - coded);
    });
  };
  stored.make = [declaration, rule](const Params& params,
                                    const CacheUnit& unit) -> std::unique_ptr<policy::Representation> {
    return std::make_unique<PythonRepresentation>(declaration, params, rule(params), unit);
  };
  spec.rule = std::move(stored);
}

}  // namespace kvsim::python
