#include "sim/loop/chunked_prompt.hpp"

#include <algorithm>

#include "traces/format/memory_trace.hpp"

namespace kvsim::sim {
namespace {

/// The residents of one unit as a trace: a prompt of its own.
class ResidentSource final : public trace::Source {
 public:
  ResidentSource(const trace::Sequence& sequence, const OwnRows& own,
                 std::span<const policy::Position> residents)
      : sequence_(&sequence),
        own_(&own),
        residents_(residents),
        header_(trace::plain_header(sequence.model(), residents.size(), 0)) {
    header_.flags_known = sequence.flags_known();
    header_.output_elem = sequence.source().header().output_elem;
    for (std::size_t i = 0; i < residents.size(); ++i)
      header_.token_flags[i] = sequence.flags(static_cast<std::uint64_t>(residents[i]));
  }

  const trace::Header& header() const override { return header_; }
  std::string name() const override { return sequence_->source().name(); }
  std::string content_sha256() const override { return {}; }
  void read(trace::Tensor tensor, std::uint32_t /*layer*/, std::uint32_t head, std::uint64_t first_row,
            std::uint64_t n_rows, std::span<float> out) const override {
    const TokenRows& rows = tensor == trace::Tensor::query ? own_->queries
                            : tensor == trace::Tensor::key ? own_->keys
                                                           : own_->values;
    const std::size_t dim = out.size() / n_rows;
    for (std::uint64_t i = 0; i < n_rows; ++i)
      std::copy_n(rows.row(head, static_cast<std::size_t>(residents_[first_row + i])), dim,
                  out.data() + i * dim);
  }
  void read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                           std::span<float> out) const override {
    sequence_->source().read_output_weights(layer, query_head, out);
  }
  void read_column_statistics(std::uint32_t, std::uint32_t, std::span<float>,
                              std::span<float>) const override {}

 private:
  const trace::Sequence* sequence_;
  const OwnRows* own_;
  std::span<const policy::Position> residents_;
  trace::Header header_;
};

bool reads_files(const policy::Part& part) {
  return std::any_of(part.params.entries.begin(), part.params.entries.end(),
                     [](const ParamValue& value) { return value.name == "file" && !value.text.empty(); }) ||
         std::any_of(part.params.parts.begin(), part.params.parts.end(),
                     [](const auto& wrapped) { return reads_files(*wrapped.second); });
}

}  // namespace

std::string chunk_refusal(const policy::Part& eviction, const trace::Sequence& sequence, std::size_t length) {
  const std::string name = eviction.spec->name + ": ";
  if (eviction.needs().queries)
    return name +
           "undoes the rotation of a prompt whose positions are 0, 1, 2, ...; what is left of a "
           "prompt in chunks has gaps";
  if (reads_files(eviction)) return name + "reads numbers of a whole prompt from a file, not of chunks";
  for (const std::int32_t window : sequence.model().layer_window)
    if (window >= 0 && static_cast<std::size_t>(window) < length)
      return name + "the model's sliding window of " + std::to_string(window) +
             " tokens is shorter than prompt and answer, and what is left of a prompt in chunks is numbered "
             "without gaps";
  return {};
}

struct RankedResidents::State {
  State(const trace::Sequence& sequence, const OwnRows& own, const ChunkedUnit& unit,
        const policy::Part& eviction, const Request& request)
      : residents(unit.residents),
        source(sequence, own, residents),
        prompt(source),
        eviction_group(make_eviction_group(prompt, eviction, eviction.layer_unit(), request.seed)),
        tensors(prompt,
                {static_cast<std::uint32_t>(unit.layer), static_cast<std::uint32_t>(unit.first_lane),
                 static_cast<std::uint32_t>(unit.n_lanes)},
                eviction_group.needs) {}

  std::vector<policy::Position> residents;
  ResidentSource source;
  trace::Sequence prompt;
  EvictionGroup eviction_group;
  GroupTensors tensors;
  std::vector<ReplayUnit> units;
};

RankedResidents::RankedResidents(const trace::Sequence& sequence, const OwnRows& own, const ChunkedUnit& at,
                                 const policy::Part& eviction, std::size_t budget, std::size_t length,
                                 const Request& request, std::size_t cell, bool log)
    : state_(std::make_unique<State>(sequence, own, at, eviction, request)) {
  state_->units =
      replay_units(state_->eviction_group, state_->tensors, request.seed, request.tables, {}, length);
  const Subscription subscription = state_->units.front().subscription();
  Progress unseen;
  replay_prompt(state_->tensors, {&subscription, 1}, unseen);
  state_->units.front().start(cell, budget, log);
}

RankedResidents::~RankedResidents() = default;

std::vector<policy::Position> RankedResidents::kept() const {
  std::vector<policy::Position> kept;
  for (const policy::Position position : state_->units.front().caches().front().residents.slots())
    kept.push_back(state_->residents[static_cast<std::size_t>(position)]);
  std::sort(kept.begin(), kept.end());
  return kept;
}

LoopUnit RankedResidents::unit() const {
  ReplayUnit& unit = state_->units.front();
  const LaneGroup group = state_->tensors.group();
  return {&unit, group.first_head, group.n_lanes, state_->residents, {}};
}

}  // namespace kvsim::sim
