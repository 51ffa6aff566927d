#include "policies/parts/subspace.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "policies/parts/calibrated_tables.hpp"
#include "policies/parts/cost_terms.hpp"
#include "policies/parts/float_format.hpp"
#include "sim/base/error.hpp"

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

  std::vector<CalibratedTable> tables(const Eigenvectors& eigenvectors) override {
    if (keys_[0].vectors() == 0) input_error("no token to measure", where_, "Calibrate on longer runs.");
    std::vector<CalibratedTable> out;
    add_tables(out, "key", keys_, key_dim_, eigenvectors);
    add_tables(out, "value", values_, value_dim_, eigenvectors);
    return out;
  }

 private:
  /// Of a head: its part of each component of its block, largest first, [width, dim]; and its mean.
  void add_tables(std::vector<CalibratedTable>& out, const std::string& of,
                  const std::vector<Moments>& blocks, std::size_t dim,
                  const Eigenvectors& eigenvectors) const {
    CalibratedTable basis{of + "_components", {}}, means{of + "_means", {}};
    for (const Moments& moments : blocks) {
      const std::size_t width = block_ * dim;
      const std::vector<double> mean = rule_.centred ? moments.mean() : std::vector<double>(width);
      const std::vector<double> vectors = eigenvectors(moments.matrix(mean), width);
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
  std::vector<float> mean{};        ///< [width]; empty: 0
  std::vector<float> components{};  ///< [rank, width]
  std::vector<float> by_number{};   ///< the same, [width, rank]

  /// Replaces a vector by what its coordinates, 16-bit floats, read back as.
  void code(std::span<float> vector, std::vector<double>& coordinates, std::vector<double>& read) const {
    coordinates.assign(rank, 0);
    for (std::size_t c = 0; c < width; ++c) {
      const auto x = static_cast<double>(mean.empty() ? vector[c] : vector[c] - mean[c]);
      for (std::size_t j = 0; j < rank; ++j)
        coordinates[j] += x * static_cast<double>(by_number[c * rank + j]);
    }
    read.assign(width, 0);
    for (std::size_t j = 0; j < rank; ++j) {
      const auto a = static_cast<double>(nearest_half(static_cast<float>(coordinates[j])));
      for (std::size_t c = 0; c < width; ++c) read[c] += a * static_cast<double>(components[j * width + c]);
    }
    for (std::size_t c = 0; c < width; ++c)
      vector[c] = static_cast<float>(read[c]) + (mean.empty() ? 0.0F : mean[c]);
  }
};

struct Subspaces {
  std::size_t block = 1;
  std::vector<Subspace> keys{}, values{};  ///< per block
};

Subspaces read_subspaces(const SubspaceRule& rule, const CalibratedTables& tables, const CacheUnit& unit,
                         std::size_t block) {
  Subspaces out{.block = block};
  const auto read = [&](const std::string& of, std::size_t dim, double share) {
    std::vector<Subspace> all;
    for (std::size_t first = 0; first < static_cast<std::size_t>(unit.n_lanes); first += block) {
      Subspace& subspace = all.emplace_back();
      subspace.width = block * dim;
      subspace.rank = rank_of(share, subspace.width);
      subspace.components.resize(subspace.rank * subspace.width);
      subspace.by_number.resize(subspace.rank * subspace.width);
      for (std::size_t head = 0; head < block; ++head) {
        const auto lane = static_cast<int>(first + head);
        const std::vector<float> part = tables.lane(of + "_components", lane, subspace.width * dim);
        for (std::size_t j = 0; j < subspace.rank; ++j)
          for (std::size_t c = 0; c < dim; ++c) {
            const std::size_t number = head * dim + c;
            subspace.components[j * subspace.width + number] = part[j * dim + c];
            subspace.by_number[number * subspace.rank + j] = part[j * dim + c];
          }
        if (!rule.centred) continue;
        const std::vector<float> mean = tables.lane(of + "_means", lane, dim);
        subspace.mean.insert(subspace.mean.end(), mean.begin(), mean.end());
      }
    }
    return all;
  };
  out.keys = read("key", static_cast<std::size_t>(unit.head_dim), rule.key_share);
  out.values = read("value", static_cast<std::size_t>(unit.value_dim), rule.value_share);
  return out;
}

/// `open`: tokens of the window, which are held in both forms.
Ledger subspace_ledger(const SubspaceRule& rule, const StorageShape& shape, std::size_t block,
                       std::uint64_t tokens, std::uint64_t open) {
  const std::uint64_t blocks = shape.n_lanes / block;
  const std::size_t key_width = block * shape.key_dim, value_width = block * shape.value_dim;
  const std::size_t key_rank = rank_of(rule.key_share, key_width),
                    value_rank = rank_of(rule.value_share, value_width);
  Ledger out = exact_ledger(shape, open);
  out.codes = blocks * tokens * (key_rank + value_rank) * shape.element_bits;
  out.shared = 16 * blocks * (key_width * key_rank + value_width * value_rank);
  if (rule.centred) out.shared += 16 * shape.n_lanes * (shape.key_dim + shape.value_dim);
  return out;
}

class SubspaceCodec final : public Codec {
 public:
  SubspaceCodec(const SubspaceRule& rule, const Subspaces& subspaces) : rule_(rule), subspaces_(&subspaces) {}

  void begin(const Prompt& prompt, CacheRows& rows) override {
    rotary_ = prompt.rotary();
    std::vector<Position> joined(rows.positions().begin(), rows.positions().end());
    std::ranges::sort(joined);
    const std::size_t open = rule_.window > 0 ? joined.size() % rule_.window : 0;
    open_.assign(joined.end() - static_cast<std::ptrdiff_t>(open), joined.end());
    for (std::size_t i = 0; i < joined.size() - open; ++i) code(rows.slot_of(joined[i]), rows);
  }
  void leave(std::span<const std::size_t> victims, CacheRows& rows) override {
    for (const std::size_t victim : victims) std::erase(open_, rows.positions()[victim]);
  }
  void join(std::size_t slot, CacheRows& rows) override {
    if (rule_.window == 0) code(slot, rows);
  }
  void settle(std::size_t slot, CacheRows& rows) override {
    if (rule_.window == 0) return;
    open_.push_back(rows.positions()[slot]);
    if (open_.size() < rule_.window) return;
    for (const Position position : open_) code(rows.slot_of(position), rows);
    open_.clear();
  }
  Ledger ledger(const CacheRows& rows) const override {
    return subspace_ledger(rule_, rows.shape(), subspaces_->block, rows.slots(), open_.size());
  }

 private:
  void code(std::size_t slot, CacheRows& rows) {
    const auto position = static_cast<std::uint64_t>(rows.positions()[slot]);
    const std::size_t lanes = rows.shape().n_lanes;
    if (!rule_.rotated)
      for (std::size_t lane = 0; lane < lanes; ++lane)
        unrotate(rotary_, position, rows.shape().key_dim, rows.key(lane, slot));
    code_blocks(subspaces_->keys, [&](std::size_t lane) { return rows.key(lane, slot); });
    code_blocks(subspaces_->values, [&](std::size_t lane) { return rows.value(lane, slot); });
    if (!rule_.rotated)
      for (std::size_t lane = 0; lane < lanes; ++lane)
        rotate(rotary_, position, rows.shape().key_dim, rows.key(lane, slot));
  }
  template <class Lane>
  void code_blocks(const std::vector<Subspace>& blocks, const Lane& lane) {
    const std::size_t heads = subspaces_->block;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      vector_.clear();
      for (std::size_t head = block * heads; head < (block + 1) * heads; ++head)
        vector_.insert(vector_.end(), lane(head).begin(), lane(head).end());
      blocks[block].code(vector_, coordinates_, read_);
      auto from = vector_.begin();
      for (std::size_t head = block * heads; head < (block + 1) * heads; ++head) {
        const std::span<float> out = lane(head);
        std::copy_n(from, out.size(), out.begin());
        from += static_cast<std::ptrdiff_t>(out.size());
      }
    }
  }

  SubspaceRule rule_;
  const Subspaces* subspaces_;
  Rotary rotary_;
  std::deque<Position> open_;  ///< of the window, in the order in which they joined
  std::vector<float> vector_;  // scratch
  std::vector<double> coordinates_, read_;
};

class SubspaceRepresentation final : public Representation {
 public:
  SubspaceRepresentation(const SubspaceRule& rule, const CalibratedTables& tables, const CacheUnit& unit,
                         const std::string& where)
      : rule_(rule), readable_(tables.readable()) {
    const std::size_t block = rule.block_of(static_cast<std::size_t>(unit.n_lanes), where);
    if (readable_) subspaces_ = read_subspaces(rule, tables, unit, block);
  }
  std::unique_ptr<Codec> codec() const override {
    if (!readable_) bug("a representation with a file parameter runs where no files can be read");
    return std::make_unique<SubspaceCodec>(rule_, subspaces_);
  }

 private:
  SubspaceRule rule_;
  bool readable_;
  Subspaces subspaces_;
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

PolicySpec subspace_spec(PolicySpec spec, std::function<SubspaceRule(const Params&)> rule,
                         std::initializer_list<const char*> measured) {
  const std::string name = spec.name;
  const std::vector<const char*> names(measured);
  const auto maker = [name, names](const Params& params) { return calibration_maker(name, params, names); };
  const auto where = [name](const Params& params) { return name + "(" + params.text() + ")"; };
  spec.kind = Kind::representation;
  spec.params = with_calibration_params(std::move(spec.params));
  spec.ledger = [rule, where](const Params& params, const StorageShape& shape, std::uint64_t kept,
                              std::uint64_t appended) {
    const SubspaceRule of = rule(params);
    const std::uint64_t tokens = kept + appended;
    return subspace_ledger(of, shape, of.block_of(shape.n_lanes, where(params)), tokens,
                           of.window > 0 ? tokens % of.window : 0);
  };
  spec.cost = [rule](const Params& params, const CostShape& shape) {
    return subspace_cost(rule(params), shape);
  };
  spec.make_calibrator = [rule, maker](const Params& params, const CacheUnit& layer) {
    return std::make_unique<SubspaceCalibrator>(rule(params), layer, maker(params));
  };
  spec.calibration_maker = maker;
  spec.make_representation = [rule, maker, where](const Params& params,
                                                  const CacheUnit& unit) -> std::unique_ptr<Representation> {
    return std::make_unique<SubspaceRepresentation>(
        rule(params), CalibratedTables(maker(params), params, unit), unit, where(params));
  };
  return spec;
}

}  // namespace kvsim::policy
