#include "sim/lane_group.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "policies/parts/window_importance.hpp"
#include "sim/attention_rows.hpp"
#include "sim/base/error.hpp"
#include "sim/held_outputs.hpp"
#include "sim/largest_sums.hpp"
#include "sim/prompt_pass.hpp"
#include "sim/resident_set.hpp"
#include "sim/step_oracle.hpp"
#include "sim/unit_future.hpp"

namespace kvsim::sim {
namespace {

using policy::Position;

/// Decode steps per block at most, and the floats their rows may take.
constexpr std::size_t kDecodeBlock = 32;
constexpr std::size_t kDecodeFloats = std::size_t{1} << 23;

/// Depends on the trace alone: the last bits of a GEMM depend on its shape, and the rows a cell is measured
/// against must not depend on which other cells are replayed with it.
std::size_t decode_block(const trace::Sequence& sequence) {
  const std::size_t row_floats = sequence.model().n_q_heads * sequence.length();
  return std::clamp<std::size_t>(kDecodeFloats / row_floats, 1, kDecodeBlock);
}

/// Sum of row[slot] over slots, in four fixed chains: the order never depends on anything but the slots.
double gather_sum(const float* row, std::span<const Position> slots) {
  double sum[4] = {0, 0, 0, 0};
  std::size_t i = 0;
  for (; i + 4 <= slots.size(); i += 4)
    for (std::size_t c = 0; c < 4; ++c) sum[c] += row[slots[i + c]];
  for (; i < slots.size(); ++i) sum[0] += row[slots[i]];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/// What a set of positions holds of a row, beside the row's largest entries.
struct HeldAttention {
  double sum = 0;
  double cosine = 1;  ///< of the row restricted to the set to the row restricted to the largest entries
};

HeldAttention held_attention(const float* row, std::span<const Position> slots, const LargestEntries& best) {
  double sum[4] = {0, 0, 0, 0}, squares = 0, shared = 0;
  std::size_t ties = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const float a = row[slots[i]];
    const double square = double{a} * a;
    sum[i % 4] += a;
    squares += square;
    shared += a > best.least ? square : 0.0;
    ties += a == best.least;
  }
  // Of entries that equal the least of the best, any may be among the best: the set's own come first.
  shared += static_cast<double>(std::min(ties, best.ties)) * double{best.least} * best.least;
  const double scale = std::sqrt(squares * best.squares);
  return {(sum[0] + sum[1]) + (sum[2] + sum[3]), scale > 0 ? std::min(1.0, shared / scale) : 1.0};
}

/// Rows of the metric's importance w, if the trace has them.
std::size_t importance_rows(const trace::Sequence& sequence) {
  const std::size_t prompt = sequence.prompt_length();
  const std::size_t wanted = std::min(policy::WindowImportance(1).prompt_rows(), prompt);
  return sequence.first_query() <= prompt - wanted ? wanted : 0;
}

/// One cell in one unit.
struct UnitCell {
  std::size_t cell = 0, budget = 0;
  std::size_t capacity = 0;  ///< most that a query may attend while a decoder manages the unit
  ResidentSet residents;
  std::unique_ptr<policy::Decoder> decoder;
  std::size_t own_slot = 0;
  std::vector<std::size_t> held;  ///< residents at each step of the present block
};

/// One family in one unit of the group.
struct UnitFamily {
  const Family* family = nullptr;
  std::size_t first_lane = 0, n_lanes = 1;  ///< within the group
  std::unique_ptr<policy::Eviction> eviction;
  std::vector<UnitCell> cells;

  bool covers(std::size_t lane) const { return lane >= first_lane && lane < first_lane + n_lanes; }
};

class GroupReplay {
 public:
  GroupReplay(const trace::Sequence& sequence, const Request& request, const Plan& plan, LaneGroup group,
              Outcome& outcome, Progress& progress)
      : sequence_(sequence),
        request_(request),
        plan_(plan),
        group_(group),
        outcome_(outcome),
        progress_(progress),
        model_(sequence.model()),
        shape_{model_.attn_scale, model_.layer_window[group.layer]},
        prompt_(sequence.prompt_length()),
        decode_(sequence.decode_length()),
        tensors_(sequence, group, plan.needs) {}

  void run() {
    make_units();
    rank_prompt();
    stream_prompt();
    measure_importance();
    const std::size_t block = decode_block(sequence_);
    for (std::size_t first = 0; first < decode_; first += block)
      decode(first, std::min(block, decode_ - first));
    if (request_.decisions) record_decisions();
  }

 private:
  LaneOutcome& lane_outcome(const UnitCell& cell, std::size_t lane) const {
    return outcome_.cells[cell.cell].lanes[lane_index(lane)];
  }
  std::size_t lane_index(std::size_t lane) const {
    return std::size_t{group_.layer} * model_.n_kv_heads + group_.first_head + lane;
  }
  std::string where(const UnitFamily& unit) const {
    return "policy '" + unit.family->eviction->spec->name + "', layer " + std::to_string(group_.layer) +
           ", KV head " + std::to_string(group_.first_head + unit.first_lane);
  }

  void make_units() {
    for (const Family& family : plan_.families) {
      const std::size_t n_lanes = family.layer_unit ? group_.n_lanes : 1;
      for (std::size_t lane = 0; lane < group_.n_lanes; lane += n_lanes) {
        UnitFamily& unit = units_.emplace_back();
        unit.family = &family;
        unit.first_lane = lane;
        unit.n_lanes = n_lanes;
        const auto first_head = group_.first_head + static_cast<std::uint32_t>(lane);
        policy::Unit shape =
            unit_of(model_, group_.layer, first_head, static_cast<std::uint32_t>(n_lanes), request_.seed);
        shape.tables = request_.tables;
        const policy::Part& part = *family.eviction;
        if (part.spec->make_oracle) {
          auto oracle = part.spec->make_oracle(part.params, shape);
          oracle->foresee(future(lane, n_lanes));
          unit.eviction = std::move(oracle);
        } else {
          unit.eviction = part.make_eviction(shape);
        }
      }
    }
  }

  const UnitFuture& future(std::size_t first_lane, std::size_t n_lanes) {
    auto& known = futures_[{first_lane, n_lanes}];
    if (!known) known = std::make_unique<UnitFuture>(tensors_, first_lane, n_lanes, decode_block(sequence_));
    return *known;
  }

  /// Everybody who ranks the prompt at once sees it and starts.
  void rank_prompt() {
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
      importance_.emplace_back(static_cast<int>(model_.group()));
    std::vector<Watcher> watchers;
    if (const std::size_t rows = importance_rows(sequence_))
      for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
        watchers.push_back({&importance_[lane], lane, 1, rows});
    for (const UnitFamily& unit : units_)
      if (!unit.family->streams && unit.family->prompt_rows > 0)
        watchers.push_back({unit.eviction.get(), unit.first_lane, unit.n_lanes, unit.family->prompt_rows});
    show_prompt(tensors_, watchers, progress_);
    for (UnitFamily& unit : units_) {
      if (!unit.family->streams)
        unit.eviction->finish_prompt(GroupTensors::PromptView(tensors_, unit.first_lane));
      for (const std::size_t cell : unit.family->cells) start(unit, cell);
    }
    futures_.clear();
  }

  void start(UnitFamily& unit, std::size_t cell) const {
    const std::size_t budget = plan_.cells[cell].lane_budget[lane_index(unit.first_lane)];
    policy::Start start = unit.eviction->start(budget);
    check_kept(unit, start.keep, unit.family->streams ? 0 : std::min(budget, prompt_));
    const std::size_t capacity = budget + unit.family->eviction->overshoot();
    const std::size_t most =
        start.decoder ? std::min(capacity, prompt_ + decode_) : start.keep.size() + decode_;
    unit.cells.push_back({cell,
                          budget,
                          capacity,
                          ResidentSet(start.keep, most, request_.decisions),
                          std::move(start.decoder),
                          0,
                          {}});
  }

  /// The others take the prompt token by token, through the cache they manage.
  void stream_prompt() {
    std::vector<UnitFamily*> streaming;
    bool rows = false;
    for (UnitFamily& unit : units_) {
      if (!unit.family->streams) continue;
      streaming.push_back(&unit);
      rows = rows || unit.family->needs.decode_rows;
    }
    if (streaming.empty()) return;
    for (std::size_t first = 0, n; first < prompt_; first += n) {
      progress_.check();
      n = std::min(kPromptBlock, prompt_ - first);
      if (rows) compute_rows(first, n);
      for (std::size_t s = 0; s < n; ++s)
        for (UnitFamily* unit : streaming)
          for (UnitCell& cell : unit->cells) {
            admit(*unit, cell, static_cast<Position>(first + s), 0);
            show_step(*unit, cell, first + s, s);
          }
      for (UnitFamily* unit : streaming)
        for (UnitCell& cell : unit->cells) cell.residents.begin_history();
      progress_.advance(n * group_.n_lanes * model_.group());
    }
  }

  void check_kept(const UnitFamily& unit, const std::vector<Position>& keep, std::size_t most) const {
    if (keep.size() > most)
      bug("keeps " + std::to_string(keep.size()) + " prompt positions of at most " + std::to_string(most),
          where(unit));
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (keep[i] < 0 || static_cast<std::size_t>(keep[i]) >= prompt_ || (i > 0 && keep[i] <= keep[i - 1]))
        bug("kept positions must be distinct, ascending and in the prompt; entry " + std::to_string(i) +
                " is " + std::to_string(keep[i]),
            where(unit));
  }

  /// R of what each cell kept, and the best any choice of as many positions could reach.
  void measure_importance() {
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane) {
      std::vector<double> w;
      if (importance_rows(sequence_) > 0) {
        importance_[lane].finish_prompt(GroupTensors::PromptView(tensors_, lane));
        w = importance_[lane].values();
      }
      const std::vector<double> best = largest_sums(w);
      for_cells_of(lane, [&](const UnitFamily&, UnitCell& cell) {
        LaneOutcome& out = lane_outcome(cell, lane);
        out.budget_tokens = cell.budget;
        out.kept_tokens = out.held_at_end = cell.residents.slots().size();
        out.candidates = w.size();
        out.importance = best.back();
        for (const Position position : cell.residents.slots()) {
          if (static_cast<std::size_t>(position) >= w.size()) continue;
          out.kept_candidates += 1;
          out.importance_kept += w[static_cast<std::size_t>(position)];
        }
        out.importance_oracle = best[out.kept_candidates];
      });
    }
  }

  template <typename Body>
  void for_cells_of(std::size_t lane, const Body& body) {
    for (UnitFamily& unit : units_) {
      if (!unit.covers(lane)) continue;
      for (UnitCell& cell : unit.cells) body(unit, cell);
    }
  }

  /// True rows of the block's steps: row(lane, g, s) over positions up to the step's own.
  const float* row(std::size_t lane, std::size_t g, std::size_t s) const {
    return rows_.data() + ((lane * model_.group() + g) * block_ + s) * stride_;
  }

  /// Decode steps first .. first + n - 1, counted from 0.
  void decode(std::size_t first, std::size_t n) {
    progress_.check();
    compute_rows(prompt_ + first, n);
    for (UnitFamily& unit : units_)
      for (UnitCell& cell : unit.cells) {
        cell.residents.begin_block();
        cell.held.assign(n, 0);
      }
    for (std::size_t s = 0; s < n; ++s) {
      const std::size_t position = prompt_ + first + s;
      for (UnitFamily& unit : units_)
        for (UnitCell& cell : unit.cells) {
          admit(unit, cell, static_cast<Position>(position), static_cast<std::uint32_t>(first + s + 1));
          cell.held[s] = cell.residents.slots().size();
        }
      for (std::size_t lane = 0; lane < group_.n_lanes; ++lane) measure_attention(lane, position, s);
      for (UnitFamily& unit : units_)
        for (UnitCell& cell : unit.cells)
          if (cell.decoder) show_step(unit, cell, position, s);
    }
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane) measure_outputs(lane, first, n);
    progress_.advance(n * group_.n_lanes * model_.group());
  }

  /// Rows of the queries at positions first .. first + n - 1.
  void compute_rows(std::size_t first, std::size_t n) {
    const std::size_t group = model_.group();
    block_ = n;
    stride_ = first + n;
    rows_.resize(group_.n_lanes * group * n * stride_);
    std::vector<float> queries(n * model_.head_dim);
    for (std::size_t head = 0; head < group_.n_lanes * group; ++head) {
      tensors_.read_queries(head, first, n, queries);
      attention_rows(shape_, {queries.data(), n, model_.head_dim, model_.head_dim}, first,
                     tensors_.keys(head / group), rows_.data() + head * n * stride_, stride_);
    }
  }

  void admit(const UnitFamily& unit, UnitCell& cell, Position position, std::uint32_t step) {
    victims_.clear();
    if (cell.decoder) {
      const std::span<const Position> slots = cell.residents.slots();
      const auto at = static_cast<std::size_t>(position);
      const std::size_t group = model_.group();
      const bool full = slots.size() >= cell.capacity;
      cell.decoder->evict({position, slots, full, tensors_.token_keys(unit.first_lane, unit.n_lanes, at),
                           tensors_.token_queries(unit.first_lane * group, unit.n_lanes * group, at),
                           tensors_.token_class(at)},
                          victims_);
      check_victims(unit, position, slots.size(), full);
    }
    cell.own_slot = cell.residents.join(victims_, position, step);
  }

  void check_victims(const UnitFamily& unit, Position position, std::size_t n_slots, bool full) {
    const auto wrong = [&](const std::string& what) {
      bug(what + " at position " + std::to_string(position), where(unit));
    };
    if (full && victims_.empty()) wrong("nobody leaves a full cache");
    for (const std::size_t slot : victims_)
      if (slot >= n_slots) wrong("evicted slot " + std::to_string(slot) + " of " + std::to_string(n_slots));
    if (victims_.size() < 2) return;
    distinct_ = victims_;
    std::sort(distinct_.begin(), distinct_.end());
    if (std::adjacent_find(distinct_.begin(), distinct_.end()) != distinct_.end())
      wrong("a slot is evicted twice");
  }

  /// Attention loss of one lane's cells at one step, and of the best set of each cell's size.
  void measure_attention(std::size_t lane, std::size_t position, std::size_t s) {
    const std::size_t group = model_.group(), seen = position + 1;
    mean_row_.assign(row(lane, 0, s), row(lane, 0, s) + seen);
    for (std::size_t g = 1; g < group; ++g) {
      const float* other = row(lane, g, s);
      for (std::size_t j = 0; j < seen; ++j) mean_row_[j] += other[j];
    }
    counts_.clear();
    for_cells_of(lane, [&](const UnitFamily&, const UnitCell& cell) { counts_.push_back(cell.held[s]); });
    std::sort(counts_.begin(), counts_.end());
    counts_.erase(std::unique(counts_.begin(), counts_.end()), counts_.end());
    best_.resize(counts_.size());
    selection_ = mean_row_;
    largest_entries(selection_, counts_, best_);

    double total = 0;
    for (const float a : mean_row_) total += a;
    for_cells_of(lane, [&](const UnitFamily&, UnitCell& cell) {
      LaneOutcome& out = lane_outcome(cell, lane);
      out.steps += 1;
      out.held_at_end = cell.held[s];
      if (cell.held[s] == seen) {  // nothing dropped: no loss, exactly
        out.oracle_cosine += 1;
        return;
      }
      const auto index = std::lower_bound(counts_.begin(), counts_.end(), cell.held[s]) - counts_.begin();
      const LargestEntries& best = best_[static_cast<std::size_t>(index)];
      const HeldAttention held = held_attention(mean_row_.data(), cell.residents.slots(), best);
      out.attention_loss += std::max(0.0, 1.0 - held.sum / total);
      out.attention_loss_oracle += std::max(0.0, 1.0 - best.share);
      out.oracle_cosine += held.cosine;
    });
  }

  /// The cell's own view of the step: attention on its residents and the mass of it.
  void show_step(const UnitFamily& unit, UnitCell& cell, std::size_t position, std::size_t s) {
    const std::span<const Position> slots = cell.residents.slots();
    policy::Step step;
    step.position = static_cast<Position>(position);
    step.slots = slots;
    step.own_slot = cell.own_slot;
    step.keys = tensors_.token_keys(unit.first_lane, unit.n_lanes, position);
    step.values = tensors_.token_values(unit.first_lane, unit.n_lanes, position);
    if (unit.family->needs.decode_rows) {
      const std::size_t heads = unit.n_lanes * model_.group();
      seen_.resize(heads * slots.size());
      mass_.resize(heads);
      for (std::size_t head = 0; head < heads; ++head) {
        const float* from = row(unit.first_lane + head / model_.group(), head % model_.group(), s);
        float* to = seen_.data() + head * slots.size();
        for (std::size_t i = 0; i < slots.size(); ++i) to[i] = from[slots[i]];
        mass_[head] = gather_sum(from, slots);
      }
      step.attention = {seen_.data(), heads, slots.size(), slots.size()};
      step.mass = mass_;
    }
    cell.decoder->observe(step);
  }

  /// What the block's outputs lose: o - sum over held positions of a v, against o.
  void measure_outputs(std::size_t lane, std::size_t first, std::size_t n) {
    const std::size_t group = model_.group(), dim = model_.v_head_dim, rows = group * n;
    const MatrixView attended{row(lane, 0, 0), rows, stride_, stride_};
    const MatrixView values{tensors_.values(lane).data, stride_, dim, dim};
    output_.resize(rows * dim);
    multiply(attended, values, output_.data());
    by_position_.resize(rows * stride_);
    transpose(attended, by_position_.data());
    const AttendedBlock block{{by_position_.data(), stride_, rows, rows},
                              values,
                              static_cast<std::uint32_t>(first + 1),
                              static_cast<std::uint32_t>(n)};
    for (UnitFamily& unit : units_) {
      if (!unit.covers(lane)) continue;
      stays_.clear();
      dropping_.clear();
      for (UnitCell& cell : unit.cells) {
        // A cell that holds everything at its first and last step of the block dropped nothing in between.
        if (cell.held[0] == prompt_ + first + 1 && cell.held[n - 1] == prompt_ + first + n) continue;
        dropping_.push_back(&cell);
        stays_.push_back(cell.residents.stays());
      }
      if (dropping_.empty()) continue;
      held_outputs_.compute(block, stays_, kept_output_);
      for (std::size_t c = 0; c < dropping_.size(); ++c) {
        double& sum = lane_outcome(*dropping_[c], lane).output_error;
        for (std::size_t s = 0; s < n; ++s) {
          if (dropping_[c]->held[s] == prompt_ + first + s + 1) continue;
          double errors = 0;
          for (std::size_t g = 0; g < group; ++g)
            errors += relative_error(kept_output_[c], (g * n + s) * dim, dim);
          sum += errors / static_cast<double>(group);
        }
      }
    }
  }

  double relative_error(const std::vector<float>& kept, std::size_t offset, std::size_t dim) const {
    double dropped = 0, whole = 0;
    for (std::size_t c = offset; c < offset + dim; ++c) {
      const double difference = static_cast<double>(output_[c]) - kept[c];
      dropped += difference * difference;
      whole += static_cast<double>(output_[c]) * output_[c];
    }
    if (whole == 0) return dropped == 0 ? 0 : 1;
    return std::sqrt(dropped / whole);
  }

  void record_decisions() {
    for (std::size_t lane = 0; lane < group_.n_lanes; ++lane)
      for_cells_of(lane, [&](const UnitFamily&, const UnitCell& cell) {
        outcome_.cells[cell.cell].residency[lane_index(lane)] =
            cell.residents.history(static_cast<std::uint32_t>(decode_ + 1));
      });
  }

  const trace::Sequence& sequence_;
  const Request& request_;
  const Plan& plan_;
  const LaneGroup group_;
  Outcome& outcome_;
  Progress& progress_;
  const trace::Model& model_;
  const AttentionShape shape_;
  const std::size_t prompt_, decode_;
  const GroupTensors tensors_;
  std::vector<UnitFamily> units_;

  std::vector<policy::WindowImportance> importance_;  ///< per lane
  std::map<std::pair<std::size_t, std::size_t>, std::unique_ptr<UnitFuture>> futures_;

  // The present block of steps.
  std::size_t block_ = 0, stride_ = 0;
  std::vector<float> rows_, by_position_, output_;
  std::vector<std::vector<float>> kept_output_;
  std::vector<UnitCell*> dropping_;
  std::vector<std::span<const Residency>> stays_;
  HeldOutputs held_outputs_;
  // The present step.
  std::vector<float> mean_row_, selection_, seen_;
  std::vector<double> mass_;
  std::vector<LargestEntries> best_;
  std::vector<std::size_t> counts_, victims_, distinct_;
};

}  // namespace

void replay_lane_group(const trace::Sequence& sequence, const Request& request, const Plan& plan,
                       LaneGroup group, Outcome& outcome, Progress& progress) {
  progress.check();
  GroupReplay(sequence, request, plan, group, outcome, progress).run();
}

namespace {

/// An oracle's rows, and what it derives from them in double.
constexpr std::uint64_t kFutureFloats = 3;

}  // namespace

std::uint64_t group_work(const trace::Sequence& sequence, const Plan& plan, LaneGroup group) {
  std::size_t ranked = importance_rows(sequence), streamed = 0;
  for (const Family& family : plan.families) {
    if (family.streams)
      streamed = sequence.prompt_length();
    else
      ranked = std::max(ranked, family.prompt_rows);
  }
  const std::uint64_t rows = sequence.length() - first_prompt_row(sequence, ranked) + streamed;
  return std::uint64_t{group.n_lanes} * sequence.model().group() * rows;
}

std::uint64_t group_bytes(const trace::Sequence& sequence, const Plan& plan, std::uint32_t n_lanes) {
  const trace::Model& model = sequence.model();
  const std::uint64_t length = sequence.length(), heads = std::uint64_t{n_lanes} * model.group();
  std::uint64_t tensors = n_lanes * length * (model.head_dim + model.v_head_dim);
  if (plan.needs.queries) tensors += heads * length * model.head_dim;
  if (plan.needs.output_weights) tensors += heads * model.v_head_dim * model.hidden_size;
  std::uint64_t prompt_rows = kPromptBlock * sequence.prompt_length(), futures = 0;
  for (const Family& family : plan.families) {
    if (family.streams && family.needs.decode_rows) prompt_rows = kPromptBlock * length * heads;
    if (family.eviction->spec->make_oracle)
      futures += length * sequence.decode_length() * (family.layer_unit ? 1 : n_lanes) * kFutureFloats;
  }
  // Decode rows of all heads, and a copy of one lane's.
  const std::uint64_t decode_rows = decode_block(sequence) * length * (heads + model.group());
  return (tensors + std::max({prompt_rows + futures, decode_rows})) * sizeof(float);
}

}  // namespace kvsim::sim
