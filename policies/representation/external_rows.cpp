// Stores the keys and values of a file in place of the run's own.
#include <algorithm>
#include <array>

#include "policies/api/spec.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::external_rows {
namespace {

/// Of a unit's lanes, by position.
struct Rows {
  std::size_t positions = 0;
  std::vector<std::vector<float>> keys{}, values{};  ///< per lane: [positions, dim]
};

class ExternalRowsCodec final : public Codec {
 public:
  ExternalRowsCodec(const Rows& stored, std::size_t prompt, std::string where)
      : stored_(&stored), prompt_(prompt), where_(std::move(where)) {}

  void begin(const Prompt& /*prompt*/, CacheRows& rows) override {
    for (std::size_t slot = 0; slot < rows.slots(); ++slot) put(slot, rows);
  }
  void join(std::size_t slot, CacheRows& rows) override {
    if (stored_->positions == prompt_) return;
    if (static_cast<std::size_t>(rows.positions()[slot]) >= stored_->positions)
      input_error("covers " + std::to_string(stored_->positions) + " positions, the run has more", where_,
                  "Cover the prompt alone, or every generated token too.");
    put(slot, rows);
  }
  Ledger ledger(const CacheRows& rows) const override { return exact_ledger(rows.shape(), rows.slots()); }

 private:
  void put(std::size_t slot, CacheRows& rows) const {
    const auto position = static_cast<std::ptrdiff_t>(rows.positions()[slot]);
    const auto copy = [&](const std::vector<float>& from, std::span<float> to) {
      const auto dim = static_cast<std::ptrdiff_t>(to.size());
      std::copy_n(from.begin() + position * dim, dim, to.begin());
    };
    for (std::size_t lane = 0; lane < rows.shape().n_lanes; ++lane) {
      copy(stored_->keys[lane], rows.key(lane, slot));
      copy(stored_->values[lane], rows.value(lane, slot));
    }
  }

  const Rows* stored_;
  std::size_t prompt_;
  std::string where_;
};

class ExternalRows final : public Representation {
 public:
  ExternalRows(const Params& params, const CacheUnit& unit)
      : file_(params.word("file")), keys_(params.word("keys")), values_(params.word("values")), unit_(unit) {}

  void finish_prompt(const Prompt& prompt) override {
    if (!unit_.tables) bug("a representation with a file parameter runs where no files can be read");
    prompt_ = prompt.first() + prompt.length();
    read(keys_, static_cast<std::size_t>(unit_.head_dim), rows_.keys);
    read(values_, static_cast<std::size_t>(unit_.value_dim), rows_.values);
    if (rows_.keys[0].size() / static_cast<std::size_t>(unit_.head_dim) != rows_.positions)
      input_error("covers another number of positions than " + values_, file_ + ":/" + keys_,
                  "A token has a key and a value.");
    if (rows_.positions < prompt_)
      input_error("covers " + std::to_string(rows_.positions) + " positions, the prompt has " +
                      std::to_string(prompt_),
                  file_ + ":/" + keys_, "It was made for another run.");
  }
  std::unique_ptr<Codec> codec() const override {
    return std::make_unique<ExternalRowsCodec>(rows_, prompt_, file_ + ":/" + keys_);
  }

 private:
  void read(const std::string& dataset, std::size_t dim, std::vector<std::vector<float>>& lanes) {
    lanes.clear();
    for (int lane = 0; lane < unit_.n_lanes; ++lane)
      lanes.push_back(unit_.tables->of_head(file_, dataset, unit_.layer, unit_.first_kv_head + lane,
                                            std::array{Tables::kPositions, dim}));
    rows_.positions = lanes[0].size() / dim;
  }

  std::string file_, keys_, values_;
  CacheUnit unit_;
  std::size_t prompt_ = 0;
  Rows rows_{};
};

}  // namespace

PolicySpec spec() {
  return {
      .name = "external_rows",
      .summary = "the keys and values of a file in place of the run's own: trained merging, or any other",
      .details =
          "A file holds, per layer, KV head and position, the key (after rotation) and the value to store: "
          "what LoCoCo's trained convolution, for one, leaves in its slots. Which positions are held is the "
          "eviction's to say, and external_mask may read it from the same file; rows of positions that are "
          "not held do not matter, so merged slots stand at any positions that the mask keeps. If the file "
          "covers the prompt alone, generated tokens stay as they come; if it covers the whole run, they are "
          "replaced as they join. Rows count as numbers of the trace's width and are not rounded to it.",
      .params = {required_param("file", "HDF5 file with the rows"),
                 word_param(
                     "keys", "keys",
                     "its dataset [n_layers, n_kv_heads, n, dim], a key per position: n is the prompt's "
                     "length, or that of prompt and generated tokens"),
                 word_param("values", "values", "the same of values")},
      .cost = [](const Params&,
                 const CostShape&) { return Cost{}; },  // that of making the rows is unknown here
      .rule = RepresentationRule{.make = made<ExternalRows>}};
}

}  // namespace kvsim::policy::external_rows
