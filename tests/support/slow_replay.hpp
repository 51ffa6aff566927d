#pragma once
/// Replay written straight from the definitions, in double, one cell and one lane at a time, with sets
/// instead of slots and no shared work: the reference for sim/replay/replay.hpp.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include "policies/api/composition.hpp"
#include "sim/replay/replay.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::test {

using Rows = std::vector<std::vector<double>>;

inline Rows read_all(const trace::Sequence& sequence, trace::Tensor tensor, std::uint32_t layer,
                     std::uint32_t head) {
  const std::size_t dim =
      tensor == trace::Tensor::value ? sequence.model().v_head_dim : sequence.model().head_dim;
  std::vector<float> flat(sequence.length() * dim);
  sequence.read(tensor, layer, head, 0, sequence.length(), flat);
  Rows rows(sequence.length());
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i].assign(flat.begin() + static_cast<std::ptrdiff_t>(i * dim),
                   flat.begin() + static_cast<std::ptrdiff_t>((i + 1) * dim));
  return rows;
}

/// What the softmax takes of a query and a key.
inline double logit(const trace::Model& model, const std::vector<double>& q, const std::vector<double>& k) {
  const double x = model.attn_scale * std::inner_product(q.begin(), q.end(), k.begin(), 0.0);
  return model.logit_softcap == 0 ? x : model.logit_softcap * std::tanh(x / model.logit_softcap);
}

/// Returns a[t][j] of one query head, the whole triangle.
inline Rows attention(const trace::Sequence& sequence, std::uint32_t layer, std::uint32_t query_head) {
  const trace::Model& model = sequence.model();
  const Rows q = read_all(sequence, trace::Tensor::query, layer, query_head);
  const Rows k = read_all(sequence, trace::Tensor::key, layer, query_head / model.group());
  const std::int32_t window = model.layer_window[layer];
  Rows a(q.size());
  for (std::size_t t = 0; t < q.size(); ++t) {
    a[t].assign(q.size(), 0.0);
    double sum = std::exp(static_cast<double>(model.sink(layer, query_head)));
    for (std::size_t j = 0; j <= t; ++j) {
      const auto w = static_cast<std::size_t>(window);
      if (window >= 0 && (model.chunked ? j / w != t / w : j + w <= t)) continue;
      a[t][j] = std::exp(logit(model, q[t], k[j]));
      sum += a[t][j];
    }
    for (double& p : a[t]) p /= sum;
  }
  return a;
}

/// What the sink has of a row: what the keys leave of 1.
inline double slow_sink(const trace::Model& model, const std::vector<double>& row) {
  return model.sinks.empty() ? 0 : 1 - std::accumulate(row.begin(), row.end(), 0.0);
}

/// Returns the first position that a layer still holds when `n` tokens have come: W of them at most, or those
/// of the last one's chunk.
inline std::size_t slow_first_held(const trace::Sequence& sequence, std::uint32_t layer, std::size_t n) {
  const std::int32_t window = sequence.model().layer_window[layer];
  if (window >= 0 && sequence.model().chunked) {
    const auto w = static_cast<std::size_t>(window);
    return (n - 1) / w * w;
  }
  return window >= 0 && n > static_cast<std::size_t>(window) ? n - static_cast<std::size_t>(window) : 0;
}

/// The prompt that the feeder passes to policies: the same rows as floats, in the policies' types. In a layer
/// with a window it begins with the first token that the layer holds.
class SlowPrompt final : public policy::Prompt {
 public:
  SlowPrompt(const trace::Sequence& sequence, std::uint32_t layer, std::uint32_t first_head,
             std::uint32_t n_lanes) {
    for (std::uint32_t lane = 0; lane < n_lanes; ++lane) {
      keys_.push_back(flat(read_all(sequence, trace::Tensor::key, layer, first_head + lane)));
      values_.push_back(flat(read_all(sequence, trace::Tensor::value, layer, first_head + lane)));
    }
    const trace::Model& model = sequence.model();
    for (std::uint32_t head = first_head * model.group(); head < (first_head + n_lanes) * model.group();
         ++head) {
      queries_.push_back(flat(read_all(sequence, trace::Tensor::query, layer, head)));
      if (!sequence.source().has_output_weights()) continue;
      output_weights_.emplace_back(model.v_head_dim * model.hidden_size);
      sequence.source().read_output_weights(layer, head, output_weights_.back());
    }
    model_ = &model;
    layer_ = layer;
    first_query_head_ = first_head * model.group();
    first_ = slow_first_held(sequence, layer, sequence.prompt_length());
    prompt_ = sequence.prompt_length() - first_;
    const std::vector<float>& logprob = sequence.source().header().token_logprob;
    for (std::size_t t = first_; t < first_ + prompt_ && !logprob.empty(); ++t)
      surprises_.push_back(-logprob[sequence.token(t)]);
    key_dim_ = sequence.model().head_dim;
    value_dim_ = sequence.model().v_head_dim;
  }
  std::size_t length() const override { return prompt_; }
  std::size_t first() const override { return first_; }
  MatrixView keys(int lane) const override { return rows(keys_, lane, key_dim_); }
  MatrixView values(int lane) const override { return rows(values_, lane, value_dim_); }
  MatrixView queries(int head) const override { return rows(queries_, head, key_dim_); }
  Rotary rotary() const override { return model_->rotary(layer_); }
  double scale() const override { return model_->attn_scale; }
  double cap() const override { return model_->logit_softcap; }
  float sink(int head) const override {
    return model_->sink(layer_, first_query_head_ + static_cast<std::size_t>(head));
  }
  std::span<const float> surprises() const override { return surprises_; }
  MatrixView output_weights(int head) const override {
    return {output_weights_[static_cast<std::size_t>(head)].data(), value_dim_, model_->hidden_size,
            model_->hidden_size};
  }
  std::span<const float> key(std::size_t lane, std::size_t t) const {
    return std::span(keys_[lane]).subspan(t * key_dim_, key_dim_);
  }
  std::span<const float> value(std::size_t lane, std::size_t t) const {
    return std::span(values_[lane]).subspan(t * value_dim_, value_dim_);
  }

 private:
  static std::vector<float> flat(const Rows& rows) {
    std::vector<float> out;
    for (const auto& row : rows) out.insert(out.end(), row.begin(), row.end());
    return out;
  }
  MatrixView rows(const std::vector<std::vector<float>>& all, int head, std::size_t dim) const {
    return {all[static_cast<std::size_t>(head)].data() + first_ * dim, prompt_, dim, dim};
  }
  std::vector<std::vector<float>> keys_, values_, queries_, output_weights_;
  std::vector<float> surprises_;
  std::uint32_t layer_ = 0, first_query_head_ = 0;
  const trace::Model* model_ = nullptr;
  std::size_t first_ = 0, prompt_ = 0, key_dim_ = 0, value_dim_ = 0;
};

/// Shows an eviction the prompt of its unit, row by row from the first that is held on. `a`: per query head.
inline void show_slowly(policy::Eviction& eviction, const std::vector<Rows>& a, const SlowPrompt& view) {
  const std::size_t first = view.first(), prompt = view.length();
  if (eviction.prompt_rows() > 0)
    for (std::size_t head = 0; head < a.size(); ++head)
      for (std::size_t i = 0; i < prompt; ++i) {
        const auto from = a[head][first + i].begin() + static_cast<std::ptrdiff_t>(first);
        const std::vector<float> row(from, from + static_cast<std::ptrdiff_t>(i + 1));
        eviction.observe({static_cast<int>(head), i, prompt, {row.data(), 1, i + 1, i + 1}, first});
      }
  eviction.finish_prompt(view);
}

/// The positions that a unit starts with.
inline std::vector<policy::Position> started(const policy::Start& start, const SlowPrompt& view) {
  std::vector<policy::Position> slots = start.keep;
  for (policy::Position& slot : slots) slot += static_cast<policy::Position>(view.first());
  return slots;
}

/// A token arrives: the one that the window leaves behind and those that the decoder names give way. Returns
/// what has left.
inline std::set<policy::Position> arrive_slowly(policy::Decoder* decoder, policy::Arrival arrival,
                                                std::size_t capacity, std::size_t first_held,
                                                std::vector<policy::Position>& slots) {
  arrival.slots = slots;
  std::set<policy::Position> gone;
  std::vector<std::size_t> leaving;
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    if (static_cast<std::size_t>(slots[slot]) < first_held) leaving.push_back(slot);
  if (!leaving.empty()) arrival.leaving = leaving.front();
  arrival.full = leaving.empty() && slots.size() >= capacity;
  std::vector<std::size_t> victims;
  if (decoder) decoder->evict(arrival, victims);
  for (const std::size_t victim : victims) gone.insert(slots[victim]);
  std::erase_if(leaving, [&](std::size_t slot) { return !gone.insert(slots[slot]).second; });
  if (!leaving.empty()) {
    std::vector<std::size_t> places = leaving;
    if (!victims.empty()) places.insert(places.begin(), victims[0]);
    // The decoder has closed up behind its own victims: it hears of slots by their numbers there.
    std::vector<policy::Position> left;
    for (const policy::Position slot : slots)
      if (!gone.count(slot) || std::ranges::any_of(places, [&](std::size_t at) { return slots[at] == slot; }))
        left.push_back(slot);
    std::vector<std::size_t> closing;
    for (const std::size_t at : places)
      closing.push_back(
          static_cast<std::size_t>(std::find(left.begin(), left.end(), slots[at]) - left.begin()));
    if (decoder && closing.size() > 1) decoder->close_slots(closing);
    victims.insert(victims.end(), leaving.begin(), leaving.end());
  }
  if (victims.empty()) {
    slots.push_back(arrival.position);
    return gone;
  }
  const policy::Position replaced = slots[victims[0]];
  slots[victims[0]] = arrival.position;
  std::erase_if(slots, [&](policy::Position p) { return p != replaced && gone.count(p) > 0; });
  return gone;
}

/// Returns XKV's w of positions from `first` on, from the triangle of rows of the lane's query heads: the
/// last `rows`, averages of 2 * reach + 1.
inline std::vector<double> slow_importance(const std::vector<Rows>& heads, std::size_t prompt,
                                           std::size_t first = 0, std::size_t rows = 8,
                                           std::ptrdiff_t reach = 3) {
  if (prompt <= first + rows) return {};
  const auto m = static_cast<std::ptrdiff_t>(prompt - first - rows);
  std::vector<double> mean(static_cast<std::size_t>(m), 0.0), w(static_cast<std::size_t>(m), 0.0);
  for (std::ptrdiff_t j = 0; j < m; ++j)
    for (const Rows& a : heads)
      for (std::size_t t = prompt - rows; t < prompt; ++t)
        mean[static_cast<std::size_t>(j)] += a[t][first + static_cast<std::size_t>(j)] /
                                             static_cast<double>(rows) / static_cast<double>(heads.size());
  for (std::ptrdiff_t j = 0; j < m; ++j)
    for (std::ptrdiff_t i = j - reach; i <= j + reach; ++i)
      if (i >= 0 && i < m)
        w[static_cast<std::size_t>(j)] +=
            mean[static_cast<std::size_t>(i)] / static_cast<double>(2 * reach + 1);
  return w;
}

inline double top(std::vector<double> values, std::size_t n) {
  std::sort(values.begin(), values.end(), std::greater<>());
  return std::accumulate(values.begin(),
                         values.begin() + static_cast<std::ptrdiff_t>(std::min(n, values.size())), 0.0);
}

/// Returns the cosine between a row with all but `held` set to zero and the row with all but its |held|
/// largest set to zero.
inline double cosine_to_best(const std::vector<double>& row, const std::set<policy::Position>& held) {
  std::vector<std::size_t> order(row.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return row[a] > row[b]; });
  std::vector<double> a(row.size(), 0.0), b(row.size(), 0.0);
  for (const policy::Position p : held) a[static_cast<std::size_t>(p)] = row[static_cast<std::size_t>(p)];
  for (std::size_t i = 0; i < held.size(); ++i) b[order[i]] = row[order[i]];
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

inline double norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}
inline double cosine(const std::vector<double>& x, const std::vector<double>& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0) / (norm(x) * norm(y));
}
inline double distance(std::vector<double> x, const std::vector<double>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] -= y[i];
  return norm(x);
}

/// Outputs of a lane's query heads at each measured step, [step][head][component].
using Outputs = std::vector<Rows>;
struct SlowLane : sim::LaneOutcome {
  Outputs whole, held;
};

/// sum over j of weight(j) a(j) v_j / sum of the same without v_j, and the sink's share.
template <class Weight>
std::vector<double> attended_output(const std::vector<double>& a, double sink, std::size_t seen,
                                    const SlowPrompt& view, std::size_t lane, std::size_t dim,
                                    Weight weight) {
  std::vector<double> out(dim, 0.0);
  double mass = sink;
  for (std::size_t j = 0; j < seen; ++j) {
    if (!weight(j)) continue;
    mass += a[j];
    for (std::size_t c = 0; c < dim; ++c) out[c] += a[j] * view.value(lane, j)[c];
  }
  for (double& x : out) x = mass > 0 ? x / mass : 0;
  return out;
}

/// Adds the peaks of one query head's row at a step.
inline void add_peaks(const std::vector<double>& row, std::size_t seen, std::size_t prompt,
                      const std::set<policy::Position>& resident, const sim::PeakRule& rule, std::size_t g,
                      double error, sim::PeakOutcome& out) {
  const auto is_far = [&](std::size_t j) { return j >= rule.sinks && j + rule.recent < prompt && j < seen; };
  double best = 0;
  for (std::size_t j = 0; j < seen; ++j)
    if (is_far(j)) best = std::max(best, row[j]);
  if (best < rule.low) return;
  sim::PaidAttention paid;
  for (std::size_t j = 0; j < seen; ++j) {
    if (!is_far(j) || row[j] < rule.share * best) continue;
    paid.paid += row[j];
    if (!resident.count(static_cast<policy::Position>(j))) paid.dropped += row[j];
  }
  out.low += paid;
  if (best < rule.threshold) return;
  out.plain += paid;
  out.heads[g] += paid;
  out.weighted += {best * paid.paid, best * paid.dropped};
  out.dropped_times_error += paid.dropped * error;
}

/// Adds a row that gives the share `m` of its attention to `v_e`, and the rest to `v_k`. One that has lost
/// less than 1 % counts as much less.
inline void add_direction(double m, const std::vector<double>& v_e, const std::vector<double>& v_k,
                          const std::vector<double>& o, sim::DirectionOutcome& out) {
  if (m == 0) return;
  const double weight = m < 0.01 ? 100 * m : 1;
  out.weight += weight;
  out.error += weight * distance(v_e, v_k) / norm(o);
  out.cosine += weight * cosine(v_e, v_k);
}

/// Replays one unit under one cell: lanes [first_head, first_head + n_lanes) of a layer, each with the budget
/// given.
inline std::vector<SlowLane> slow_unit(const trace::Sequence& sequence, const policy::Part& part,
                                       std::uint32_t layer, std::uint32_t first_head, std::uint32_t n_lanes,
                                       std::size_t budget, std::uint64_t seed,
                                       const sim::PeakRule& peak = {}) {
  const trace::Model& model = sequence.model();
  const std::size_t prompt = sequence.prompt_length(), group = model.group();
  policy::CacheUnit unit;
  unit.layer = static_cast<int>(layer);
  unit.n_layers = static_cast<int>(model.n_layers);
  unit.first_kv_head = static_cast<int>(first_head);
  unit.n_lanes = static_cast<int>(n_lanes);
  unit.group = static_cast<int>(group);
  unit.head_dim = static_cast<int>(model.head_dim);
  unit.value_dim = static_cast<int>(model.v_head_dim);
  (model.chunked ? unit.chunk : unit.span) = static_cast<std::size_t>(std::max(model.layer_window[layer], 0));
  unit.seed = seed;
  const auto eviction = part.make_eviction(unit);

  std::vector<Rows> a;  // per query head of the unit
  for (std::uint32_t lane = 0; lane < n_lanes; ++lane)
    for (std::uint32_t g = 0; g < group; ++g)
      a.push_back(attention(sequence, layer, static_cast<std::uint32_t>((first_head + lane) * group + g)));
  const bool streams = eviction->streams_prompt();
  const SlowPrompt view(sequence, layer, first_head, n_lanes);
  if (!streams) show_slowly(*eviction, a, view);
  policy::Start start = eviction->start(budget);
  std::vector<policy::Position> slots = started(start, view);
  policy::Decoder* const decoder = start.decoder.get();
  const std::size_t capacity = budget + part.overshoot();
  std::vector<Rows> q;
  for (std::uint32_t head = 0; head < n_lanes * group; ++head)
    q.push_back(read_all(sequence, trace::Tensor::query, layer,
                         static_cast<std::uint32_t>(first_head * group + head)));

  const auto arrive = [&](std::size_t t) {
    std::vector<float> keys, values, queries;
    for (std::uint32_t lane = 0; lane < n_lanes; ++lane) {
      keys.insert(keys.end(), view.key(lane, t).begin(), view.key(lane, t).end());
      values.insert(values.end(), view.value(lane, t).begin(), view.value(lane, t).end());
    }
    for (const Rows& rows : q) queries.insert(queries.end(), rows[t].begin(), rows[t].end());
    const MatrixView own_keys{keys.data(), n_lanes, model.head_dim, model.head_dim};
    const auto position = static_cast<policy::Position>(t);
    arrive_slowly(decoder,
                  {.position = position,
                   .slots = {},
                   .keys = own_keys,
                   .queries = {queries.data(), q.size(), model.head_dim, model.head_dim}},
                  capacity, slow_first_held(sequence, layer, t + 1), slots);
    if (!decoder) return;
    std::vector<float> seen;
    std::vector<double> mass;
    for (const Rows& rows : a) {
      double sum = slow_sink(model, rows[t]);
      for (const policy::Position p : slots) {
        seen.push_back(static_cast<float>(rows[t][static_cast<std::size_t>(p)]));
        sum += rows[t][static_cast<std::size_t>(p)];
      }
      mass.push_back(sum);
    }
    const auto own_slot =
        static_cast<std::size_t>(std::find(slots.begin(), slots.end(), position) - slots.begin());
    decoder->observe({position,
                      slots,
                      own_slot,
                      {seen.data(), a.size(), slots.size(), slots.size()},
                      mass,
                      own_keys,
                      {values.data(), n_lanes, model.v_head_dim, model.v_head_dim},
                      {queries.data(), q.size(), model.head_dim, model.head_dim},
                      sequence.surprise(t)});
  };
  if (streams)
    for (std::size_t t = 0; t < prompt; ++t) arrive(t);

  std::vector<policy::Position> evidence;
  for (std::size_t t = 0; t < sequence.length(); ++t)
    if (sequence.flags(t) & trace::kFlagEvidence) evidence.push_back(static_cast<policy::Position>(t));
  std::vector<SlowLane> out(n_lanes);
  for (std::uint32_t lane = 0; lane < n_lanes; ++lane) {
    const std::vector<Rows> own(a.begin() + static_cast<std::ptrdiff_t>(lane * group),
                                a.begin() + static_cast<std::ptrdiff_t>((lane + 1) * group));
    const std::size_t first = slow_first_held(sequence, layer, prompt);
    const std::vector<double> w = slow_importance(own, prompt, first);
    out[lane].budget_tokens = budget;
    out[lane].kept_tokens = slots.size();
    out[lane].whole_at_end = sequence.length() - slow_first_held(sequence, layer, sequence.length());
    out[lane].candidates = w.size();
    out[lane].importance = std::accumulate(w.begin(), w.end(), 0.0);
    for (const policy::Position p : slots)
      if (static_cast<std::size_t>(p) - first < w.size()) {
        out[lane].kept_candidates += 1;
        out[lane].importance_kept += w[static_cast<std::size_t>(p) - first];
      }
    out[lane].importance_oracle = top(w, out[lane].kept_candidates);
    out[lane].peak.heads.resize(group);
    out[lane].holds_evidence.resize(evidence.size());
    out[lane].holds_prompt.resize((prompt + 63) / 64);
    for (const policy::Position p : evidence)
      out[lane].evidence_in_sight +=
          static_cast<std::size_t>(p) >= slow_first_held(sequence, layer, sequence.length()) ? 1 : 0;
    for (const policy::Position p : slots)
      if (const auto segment = sim::segment_of(sequence, static_cast<std::uint64_t>(p)))
        out[lane].kept_of[static_cast<std::size_t>(*segment)] += 1;
  }

  for (std::size_t t = sequence.first_measured(); t < sequence.length(); ++t) {
    if (t >= prompt) arrive(t);
    const std::set<policy::Position> held(slots.begin(), slots.end());
    std::set<policy::Position> resident = held;
    resident.insert(static_cast<policy::Position>(t));  // the last prompt token's own key, attended again
    const auto is_held = [&](std::size_t j) { return resident.count(static_cast<policy::Position>(j)) > 0; };
    for (std::uint32_t lane = 0; lane < n_lanes; ++lane) {
      std::vector<double> mean(t + 1, 0.0);
      double error = 0, cosines = 0;
      out[lane].whole.emplace_back();
      out[lane].held.emplace_back();
      for (std::size_t g = 0; g < group; ++g) {
        const std::vector<double>& row = a[lane * group + g][t];
        for (std::size_t j = 0; j <= t; ++j) mean[j] += row[j] / static_cast<double>(group);
        const auto all = [](std::size_t) { return true; };
        const double sink = slow_sink(model, row);
        const std::vector<double> o = attended_output(row, sink, t + 1, view, lane, model.v_head_dim, all),
                                  other = attended_output(row, sink, t + 1, view, lane, model.v_head_dim,
                                                          is_held);
        const double relative = distance(other, o) / norm(o);
        error += relative / static_cast<double>(group);
        cosines += cosine(other, o) / static_cast<double>(group);
        out[lane].whole.back().push_back(o);
        out[lane].held.back().push_back(other);
        add_peaks(row, t + 1, prompt, resident, peak, g, relative, out[lane].peak);
        double evicted = 0;
        for (std::size_t j = 0; j <= t; ++j) evicted += is_held(j) ? 0 : row[j];
        add_direction(evicted,
                      attended_output(row, 0, t + 1, view, lane, model.v_head_dim,
                                      [&](std::size_t j) { return !is_held(j); }),
                      other, o, out[lane].direction);
      }
      // Losses are shares of what the rows give to keys.
      const double given = std::accumulate(mean.begin(), mean.end(), 0.0);
      for (double& x : mean) x /= given;
      double kept = 0;
      for (const policy::Position p : resident) kept += mean[static_cast<std::size_t>(p)];
      sim::PaidAttention of_evidence;
      for (std::size_t i = 0; i < evidence.size() && evidence[i] <= static_cast<policy::Position>(t); ++i) {
        const double paid = mean[static_cast<std::size_t>(evidence[i])];
        of_evidence += {paid, resident.count(evidence[i]) > 0 ? 0.0 : paid};
        out[lane].holds_evidence[i] = static_cast<std::uint8_t>(held.count(evidence[i]));
      }
      out[lane].evidence += of_evidence;
      out[lane].each_step.push_back({1 - kept, 1 - top(mean, resident.size()), resident.size(), of_evidence});
      out[lane].steps += 1;
      out[lane].attention_loss += out[lane].each_step.back().attention_loss;
      out[lane].attention_loss_oracle += out[lane].each_step.back().attention_loss_oracle;
      out[lane].oracle_cosine += cosine_to_best(mean, resident);
      out[lane].output_error += error;
      out[lane].output_cosine += cosines;
    }
  }
  for (SlowLane& lane : out) {
    lane.held_at_end = slots.size();
    for (const policy::Position p : slots)
      if (static_cast<std::size_t>(p) < prompt)
        lane.holds_prompt[static_cast<std::size_t>(p) / 64] |= 1ULL << (p % 64);
  }
  return out;
}

}  // namespace kvsim::test
