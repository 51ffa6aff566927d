#include "policies/parts/codes/subspace.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <utility>

#include "policies/parts/codes/calibrated_tables.hpp"
#include "policies/parts/codes/coding_cost.hpp"
#include "policies/parts/codes/float_format.hpp"
#include "policies/parts/costs/cost_terms.hpp"
#include "sim/base/error.hpp"
#include "sim/base/symmetric_matrix.hpp"

namespace kvsim::policy {
namespace {

std::size_t rank_of(double share, std::size_t width) {
  return static_cast<std::size_t>(std::llround(share * static_cast<double>(width)));
}

/// Second moments and sums of vectors.
class Moments {
 public:
  explicit Moments(std::size_t width) : width_(width), products_(width * width), sums_(width) {}

  void add(std::span<const float> vector) {
    ++n_;
    for (std::size_t a = 0; a < width_; ++a) {
      const auto x = static_cast<double>(vector[a]);
      sums_[a] += x;
      double* const row = products_.data() + a * width_;
      for (std::size_t b = a; b < width_; ++b) row[b] += x * static_cast<double>(vector[b]);
    }
  }
  std::vector<double> mean() const {
    std::vector<double> out = sums_;
    for (double& x : out) x /= static_cast<double>(n_);
    return out;
  }
  /// Around `centre`, both halves.
  std::vector<double> matrix(std::span<const double> centre) const {
    std::vector<double> out(width_ * width_);
    for (std::size_t a = 0; a < width_; ++a)
      for (std::size_t b = a; b < width_; ++b)
        out[a * width_ + b] = out[b * width_ + a] =
            products_[a * width_ + b] / static_cast<double>(n_) - centre[a] * centre[b];
    return out;
  }
  std::size_t vectors() const { return n_; }

 private:
  std::size_t width_, n_ = 0;
  std::vector<double> products_, sums_;
};

class SubspaceCalibrator final : public Calibrator {
 public:
  SubspaceCalibrator(const SubspaceRule& rule, const CacheUnit& layer, std::string where)
      : rule_(rule),
        where_(std::move(where)),
        block_(rule.block_of(static_cast<std::size_t>(layer.n_lanes), where_)),
        key_dim_(static_cast<std::size_t>(layer.head_dim)),
        value_dim_(static_cast<std::size_t>(layer.value_dim)),
        keys_(static_cast<std::size_t>(layer.n_lanes) / block_, Moments(block_ * key_dim_)),
        values_(keys_.size(), Moments(block_ * value_dim_)) {}

  void observe(const LayerTokens& tokens) override {
    std::vector<float> keys, values, key(key_dim_);
    for (std::size_t i = 0; i < tokens.keys[0].rows; ++i)
      for (std::size_t block = 0; block < keys_.size(); ++block) {
        keys.clear();
        values.clear();
        for (std::size_t head = block * block_; head < (block + 1) * block_; ++head) {
          std::ranges::copy(tokens.keys[head].row(i), key.begin());
          if (!rule_.rotated) unrotate(tokens.rotary, i, key_dim_, key);
          keys.insert(keys.end(), key.begin(), key.end());
          const std::span<const float> value = tokens.values[head].row(i);
          values.insert(values.end(), value.begin(), value.end());
        }
        keys_[block].add(keys);
        values_[block].add(values);
      }
  }

  std::vector<CalibratedTable> tables() override {
    if (keys_[0].vectors() == 0) input_error("no token to measure", where_, "Calibrate on longer runs.");
    std::vector<CalibratedTable> out;
    add_tables(out, "key", keys_, key_dim_);
    add_tables(out, "value", values_, value_dim_);
    return out;
  }

 private:
  /// Of a head: its part of each component of its block, largest first, [width, dim]; and its mean.
  void add_tables(std::vector<CalibratedTable>& out, const std::string& of,
                  const std::vector<Moments>& blocks, std::size_t dim) const {
    CalibratedTable basis{of + "_components", {}}, means{of + "_means", {}};
    for (const Moments& moments : blocks) {
      const std::size_t width = block_ * dim;
      const std::vector<double> mean = rule_.centred ? moments.mean() : std::vector<double>(width);
      const std::vector<double> vectors = eigenvectors(moments.matrix(mean), width).vectors;
      for (std::size_t head = 0; head < block_; ++head) {
        std::vector<float>&part = basis.of_head.emplace_back(), &centre = means.of_head.emplace_back();
        for (std::size_t j = 0; j < width; ++j)
          for (std::size_t c = 0; c < dim; ++c)
            part.push_back(nearest_half(static_cast<float>(vectors[j * width + head * dim + c])));
        for (std::size_t c = 0; c < dim; ++c)
          centre.push_back(nearest_half(static_cast<float>(mean[head * dim + c])));
      }
    }
    out.push_back(std::move(basis));
    if (rule_.centred) out.push_back(std::move(means));
  }

  SubspaceRule rule_;
  std::string where_;
  std::size_t block_, key_dim_, value_dim_;
  std::vector<Moments> keys_, values_;  ///< per block
};

/// The subspace of one block's keys or values.
struct Subspace {
  std::size_t width = 0, rank = 0;
  std::vector<float> mean{};  ///< [width]; empty: 0
  std::vector<float> down{};  ///< [width, rank]
  std::vector<float> up{};    ///< [rank, width]

  /// Coordinates are 16-bit floats. `sums`: scratch.
  void project(std::span<const float> vector, std::span<float> coordinates, std::vector<double>& sums) const {
    sums.assign(rank, 0);
    for (std::size_t c = 0; c < width; ++c) {
      const auto x = static_cast<double>(mean.empty() ? vector[c] : vector[c] - mean[c]);
      for (std::size_t j = 0; j < rank; ++j) sums[j] += x * static_cast<double>(down[c * rank + j]);
    }
    for (std::size_t j = 0; j < rank; ++j) coordinates[j] = nearest_half(static_cast<float>(sums[j]));
  }
  void read(std::span<const float> coordinates, std::span<float> vector, std::vector<double>& sums) const {
    sums.assign(width, 0);
    for (std::size_t j = 0; j < rank; ++j) {
      const auto a = static_cast<double>(coordinates[j]);
      for (std::size_t c = 0; c < width; ++c) sums[c] += a * static_cast<double>(up[j * width + c]);
    }
    for (std::size_t c = 0; c < width; ++c)
      vector[c] = static_cast<float>(sums[c]) + (mean.empty() ? 0.0F : mean[c]);
  }
};

struct Subspaces {
  std::size_t block = 1;
  std::vector<Subspace> keys{}, values{};  ///< per block
};

/// Subspaces of a unit's blocks. add(subspace, of, dim, lane, head) puts in the part of a lane, the `head`-th
/// of its block; `of` is "key" or "value".
template <class Add>
Subspaces subspaces_of(const SubspaceRule& rule, const CacheUnit& unit, std::size_t block, const Add& add) {
  const auto read = [&](const std::string& of, int dim, double share) {
    std::vector<Subspace> all;
    for (int first = 0; first < unit.n_lanes; first += static_cast<int>(block)) {
      Subspace& subspace = all.emplace_back();
      subspace.width = block * static_cast<std::size_t>(dim);
      subspace.rank = rank_of(share, subspace.width);
      subspace.up.resize(subspace.rank * subspace.width);
      subspace.down.resize(subspace.rank * subspace.width);
      for (std::size_t head = 0; head < block; ++head)
        add(subspace, of, static_cast<std::size_t>(dim), first + static_cast<int>(head), head);
    }
    return all;
  };
  return {.block = block,
          .keys = read("key", unit.head_dim, rule.key_share),
          .values = read("value", unit.value_dim, rule.value_share)};
}

Subspaces read_subspaces(const SubspaceRule& rule, const CalibratedTables& tables, const CacheUnit& unit,
                         std::size_t block) {
  return subspaces_of(
      rule, unit, block,
      [&](Subspace& subspace, const std::string& of, std::size_t dim, int lane, std::size_t head) {
        const std::vector<float> part = tables.lane(of + "_components", lane, subspace.width * dim);
        for (std::size_t j = 0; j < subspace.rank; ++j)
          for (std::size_t c = 0; c < dim; ++c) {
            const std::size_t number = head * dim + c;
            subspace.up[j * subspace.width + number] = part[j * dim + c];
            subspace.down[number * subspace.rank + j] = part[j * dim + c];
          }
        if (!rule.centred) return;
        const std::vector<float> mean = tables.lane(of + "_means", lane, dim);
        subspace.mean.insert(subspace.mean.end(), mean.begin(), mean.end());
      });
}

/// A KV head's parts of the matrices of its block, in a file: NAME_down [rank, dim], NAME_up [dim, rank], and
/// with `centred` NAME_means [dim].
Subspaces read_file(const SubspaceRule& rule, const std::string& file, const CacheUnit& unit,
                    std::size_t block) {
  return subspaces_of(
      rule, unit, block,
      [&](Subspace& subspace, const std::string& of, std::size_t dim, int lane, std::size_t head) {
        const std::size_t rank = subspace.rank;
        const auto part = [&](const char* name, std::initializer_list<std::size_t> dims) {
          return unit.tables->of_head(file, of + name, unit.layer, unit.first_kv_head + lane, dims);
        };
        if (rank > 0) {
          const std::vector<float> down = part("_down", {rank, dim}), up = part("_up", {dim, rank});
          for (std::size_t j = 0; j < rank; ++j)
            for (std::size_t c = 0; c < dim; ++c) {
              subspace.down[(head * dim + c) * rank + j] = down[j * dim + c];
              subspace.up[j * subspace.width + head * dim + c] = up[c * rank + j];
            }
        }
        if (!rule.centred) return;
        const std::vector<float> mean = part("_means", {dim});
        subspace.mean.insert(subspace.mean.end(), mean.begin(), mean.end());
      });
}

/// Coordinates of values that share a scale.
std::size_t value_group(const SubspaceRule& rule, std::size_t rank, std::size_t block,
                        const std::string& where) {
  if (rule.code.exact() || rank == 0) return std::max<std::size_t>(rank, 1);
  if (rank % block != 0)
    usage_error("the " + std::to_string(rank) + " coordinates of values do not come to the same number for " +
                    "each of " + std::to_string(block) + " KV heads",
                where, "Choose another share of values, or bits=16.");
  return rank / block;
}

/// `open`: tokens of the window, which are held in both forms. `windows`: those whose coordinates are codes,
/// as long as one of their tokens is held.
Ledger subspace_ledger(const SubspaceRule& rule, const StorageShape& shape, std::size_t block,
                       std::uint64_t tokens, std::uint64_t open, std::uint64_t windows,
                       const std::string& where) {
  const std::uint64_t blocks = shape.n_lanes / block;
  const std::size_t key_width = block * shape.key_dim, value_width = block * shape.value_dim;
  const std::size_t key_rank = rank_of(rule.key_share, key_width),
                    value_rank = rank_of(rule.value_share, value_width);
  Ledger out = exact_ledger(shape, open);
  const std::uint64_t coded = rule.code.exact() ? 0 : tokens - open;
  out.codes =
      blocks * (key_rank + value_rank) * ((tokens - coded) * shape.element_bits + coded * rule.code.bits);
  out.parameters = blocks * rule.code.group_bits() *
                   (windows * key_rank +
                    (value_rank > 0 ? coded * value_rank / value_group(rule, value_rank, block, where) : 0));
  out.shared = 16 * blocks * (key_width * key_rank + value_width * value_rank) * (rule.from_file ? 2 : 1);
  if (rule.centred) out.shared += 16 * shape.n_lanes * (shape.key_dim + shape.value_dim);
  return out;
}

class SubspaceCodec final : public Codec {
 public:
  SubspaceCodec(const SubspaceRule& rule, const Subspaces& subspaces, std::string where)
      : rule_(rule), subspaces_(&subspaces), where_(std::move(where)) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    rotary_ = prompt.rotary();
    const std::vector<Position> joined = ascending(rows.positions());
    const std::size_t open = rule_.window > 0 ? joined.size() % rule_.window : 0;
    open_.assign(joined.end() - static_cast<std::ptrdiff_t>(open), joined.end());
    const std::span<const Position> closed(joined.data(), joined.size() - open);
    const std::size_t together = rule_.window > 0 ? rule_.window : 1;
    for (std::size_t i = 0; i < closed.size(); i += together) code(closed.subspan(i, together), rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows,
             std::optional<std::size_t> /*behind*/) override {
    for (const std::size_t victim : victims) {
      const Position position = rows.positions()[victim];
      std::erase(open_, position);
      const auto found = window_of_.find(position);
      if (found == window_of_.end()) continue;
      if (--left_[found->second] == 0) --windows_;
      window_of_.erase(found);
    }
  }
  void join(std::size_t slot, CacheRows& rows) override {
    if (rule_.window == 0) code({{rows.positions()[slot]}}, rows);
  }
  void settle(std::size_t slot, CacheRows& rows) override {
    if (rule_.window == 0) return;
    open_.push_back(rows.positions()[slot]);
    if (open_.size() < rule_.window) return;
    code(open_, rows);
    open_.clear();
  }
  Ledger ledger(const CacheRows& rows) const override {
    return subspace_ledger(rule_, rows.shape(), subspaces_->block, rows.slots(), open_.size(), windows_,
                           where_);
  }

 private:
  /// Tokens whose coordinates become codes together; a window, or one.
  void code(std::span<const Position> tokens, CacheRows& rows) {
    const std::size_t lanes = rows.shape().n_lanes, dim = rows.shape().key_dim;
    const auto turn = [&](void (*by)(const Rotary&, std::uint64_t, std::size_t, std::span<float>)) {
      if (rule_.rotated) return;
      for (const Position token : tokens)
        for (std::size_t lane = 0; lane < lanes; ++lane)
          by(rotary_, static_cast<std::uint64_t>(token), dim, rows.key(lane, rows.slot_of(token)));
    };
    turn(unrotate);
    code_blocks(tokens, subspaces_->keys, rows, &CacheRows::key, [&](std::size_t rank) {
      for (std::size_t j = 0; j < rank; ++j) rule_.code.code(coordinates_.data() + j, tokens.size(), rank);
    });
    turn(rotate);
    code_blocks(tokens, subspaces_->values, rows, &CacheRows::value, [&](std::size_t rank) {
      const std::size_t group = value_group(rule_, rank, subspaces_->block, where_);
      for (std::size_t first = 0; first < coordinates_.size(); first += group)
        rule_.code.code(coordinates_.data() + first, group);
    });
    if (rule_.code.exact()) return;
    for (const Position token : tokens) window_of_[token] = left_.size();
    left_.push_back(tokens.size());
    ++windows_;
  }
  template <class Quantise>
  void code_blocks(std::span<const Position> tokens, const std::vector<Subspace>& blocks, CacheRows& rows,
                   std::span<float> (CacheRows::*row)(std::size_t, std::size_t), const Quantise& quantise) {
    const std::size_t heads = subspaces_->block;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      const Subspace& subspace = blocks[block];
      const std::size_t dim = subspace.width / heads, rank = subspace.rank;
      vector_.resize(subspace.width);
      coordinates_.resize(tokens.size() * rank);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        for (std::size_t head = 0; head < heads; ++head)
          std::ranges::copy((rows.*row)(block * heads + head, rows.slot_of(tokens[i])),
                            vector_.data() + head * dim);
        subspace.project(vector_, std::span(coordinates_).subspan(i * rank, rank), sums_);
      }
      if (!rule_.code.exact()) quantise(rank);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        subspace.read(std::span(coordinates_).subspan(i * rank, rank), vector_, sums_);
        for (std::size_t head = 0; head < heads; ++head)
          std::copy_n(vector_.data() + head * dim, dim,
                      (rows.*row)(block * heads + head, rows.slot_of(tokens[i])).begin());
      }
    }
  }

  SubspaceRule rule_;
  const Subspaces* subspaces_;
  std::string where_;
  Rotary rotary_;
  std::vector<Position> open_{};  ///< of the window, in the order in which they joined
  std::unordered_map<Position, std::size_t> window_of_{};  ///< of tokens whose coordinates are codes
  std::vector<std::size_t> left_{};                        ///< tokens held of each such window
  std::uint64_t windows_ = 0;                              ///< of them with a token
  std::vector<float> vector_{}, coordinates_{};            // scratch
  std::vector<double> sums_{};
};

class SubspaceRepresentation final : public Representation {
 public:
  /// `subspaces`: none where files cannot be read, and only the shape of the unit is looked at.
  SubspaceRepresentation(const SubspaceRule& rule, std::optional<Subspaces> subspaces, std::string where)
      : rule_(rule), subspaces_(std::move(subspaces)), where_(std::move(where)) {}
  std::unique_ptr<Codec> codec() const override {
    if (!subspaces_) bug("a representation with a file parameter runs where no files can be read");
    return std::make_unique<SubspaceCodec>(rule_, *subspaces_, where_);
  }

 private:
  SubspaceRule rule_;
  std::optional<Subspaces> subspaces_;
  std::string where_;
};

/// Coordinates are products with the components. Rotated keys and values need no way back: the query becomes
/// coordinates, and what it reads becomes a vector once. Keys before rotation are made anew and rotated.
Cost subspace_cost(const SubspaceRule& rule, const CostShape& shape) {
  const double block = real(rule.block == 0 ? shape.kv_heads : rule.block);
  const double keys = real(shape.kv_heads * shape.head_dim), values = real(shape.kv_heads * shape.value_dim);
  const double key_rank = std::round(rule.key_share * block * real(shape.head_dim)),
               value_rank = std::round(rule.value_share * block * real(shape.value_dim));
  const auto coordinates = [&](double tokens) {
    return Work{.flops = 2 * tokens * (keys * key_rank + values * value_rank),
                .bytes = tokens * (keys + values) * real(shape.element_bytes),
                .launches = 2};
  };
  Cost out;
  out.prompt = coordinates(real(std::min(shape.prompt, shape.budget)));
  out.step = coordinates(1);
  out.step.flops += 2 * real(shape.query_heads * shape.value_dim) * value_rank;
  out.step.launches += 1;
  if (rule.rotated) {
    out.step.flops += 2 * real(shape.query_heads * shape.head_dim) * key_rank;
  } else {
    const double of_keys = keys / (keys + values);
    out.read_number = {.flops = 2 * key_rank * of_keys, .ops = kRotationOps * of_keys};
  }
  // Codes of coordinates: a full window at once, and for every one that is read.
  const CodeOps ops = scalar_code_ops(rule.code);
  const double ranks = (key_rank + value_rank) * real(shape.kv_heads) / block;
  out.prompt.ops += real(std::min(shape.prompt, shape.budget)) * ranks * ops.make;
  out.step.ops += ranks * ops.make;
  out.read_number.ops += ops.read * ranks / (keys + values);
  return out;
}

}  // namespace

std::size_t SubspaceRule::block_of(std::size_t lanes, const std::string& where) const {
  const std::size_t heads = block == 0 ? lanes : block;
  if (lanes % heads != 0)
    usage_error(
        "blocks of " + std::to_string(heads) + " KV heads do not divide the layer's " + std::to_string(lanes),
        where, "Choose a number that does.");
  return heads;
}

ParamSpec coordinate_bits_param() {
  ParamSpec out = bits_param("16");
  out.help = "of a coordinate, 1 to 8, once its window is full; 16: as they come";
  return out;
}

ScalarCode coordinate_code(const Params& params, const std::string& where) {
  ScalarCode code = scalar_code(params, where);
  code.kind = ScalarKind::integer;
  if (!code.exact() && params.count("window") == 0)
    usage_error("codes of keys' coordinates are of a window of tokens, which wait for each other", where,
                "Say window=, or bits=16.");
  return code;
}

namespace {

std::string where_of(const std::string& name, const Params& params) {
  return name + "(" + params.text() + ")";
}

/// What both kinds of specification have; the factory's subspaces come from `read`, where files can be read.
PolicySpec stored_spec(
    PolicySpec spec, std::function<SubspaceRule(const Params&)> rule,
    std::function<Subspaces(const SubspaceRule&, const Params&, const CacheUnit&, std::size_t block)> read) {
  RepresentationRule stored;
  stored.ledger = [rule, name = spec.name](const Params& params, const StorageShape& shape, LaneTokens held) {
    const SubspaceRule of = rule(params);
    const std::string where = where_of(name, params);
    const std::uint64_t tokens = held.all(), open = of.window > 0 ? tokens % of.window : 0;
    return subspace_ledger(of, shape, of.block_of(shape.n_lanes, where), tokens, open,
                           of.code.exact() ? 0 : tokens / of.window, where);
  };
  spec.cost = [rule](const Params& params, const CostShape& shape) {
    return subspace_cost(rule(params), shape);
  };
  stored.make = [rule, read, name = spec.name](const Params& params,
                                               const CacheUnit& unit) -> std::unique_ptr<Representation> {
    const SubspaceRule of = rule(params);
    const std::string where = where_of(name, params);
    const std::size_t block = of.block_of(static_cast<std::size_t>(unit.n_lanes), where);
    value_group(of, rank_of(of.value_share, block * static_cast<std::size_t>(unit.value_dim)), block, where);
    std::optional<Subspaces> subspaces;
    if (unit.tables != nullptr) subspaces = read(of, params, unit, block);
    return std::make_unique<SubspaceRepresentation>(of, std::move(subspaces), where);
  };
  spec.rule = std::move(stored);
  return spec;
}

}  // namespace

PolicySpec external_subspace_spec(PolicySpec spec, std::function<SubspaceRule(const Params&)> rule) {
  return stored_spec(std::move(spec), std::move(rule),
                     [](const SubspaceRule& of, const Params& params, const CacheUnit& unit,
                        std::size_t block) { return read_file(of, params.word("file"), unit, block); });
}

PolicySpec subspace_spec(PolicySpec spec, std::function<SubspaceRule(const Params&)> rule,
                         std::initializer_list<const char*> measured) {
  const std::vector<const char*> names(measured);
  const auto maker = [name = spec.name, names](const Params& params) {
    return calibration_maker(name, params, names);
  };
  spec.params = with_calibration_params(std::move(spec.params));
  spec.make_calibrator = [rule, maker](const Params& params, const CacheUnit& layer) {
    return std::make_unique<SubspaceCalibrator>(rule(params), layer, maker(params));
  };
  spec.calibration_maker = maker;
  return stored_spec(
      std::move(spec), rule,
      [maker](const SubspaceRule& of, const Params& params, const CacheUnit& unit, std::size_t block) {
        return read_subspaces(of, CalibratedTables(maker(params), params, unit), unit, block);
      });
}

}  // namespace kvsim::policy
