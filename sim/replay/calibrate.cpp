#include "sim/replay/calibrate.hpp"

#include <algorithm>
#include <cmath>

#include "sim/attention/finite_read.hpp"
#include "sim/attention/row_requirement.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/plan.hpp"

namespace kvsim::sim {
namespace {

std::string shape_text(const trace::Model& model) {
  return std::to_string(model.n_layers) + " layers of " + std::to_string(model.n_kv_heads) +
         " KV heads of size " + std::to_string(model.head_dim) + " and " + std::to_string(model.v_head_dim);
}

void check_shapes(std::span<const CalibrationRun> runs) {
  const trace::Model& first = runs[0].sequence->model();
  for (const CalibrationRun& run : runs) {
    const trace::Model& model = run.sequence->model();
    if (shape_text(model) != shape_text(first))
      usage_error("has " + shape_text(model) + ", the first trace " + shape_text(first), run.name,
                  "A calibration is of runs of one model.");
    if (model.inv_freq != first.inv_freq || model.rope_layout != first.rope_layout ||
        model.layer_rotation != first.layer_rotation)
      usage_error("rotates keys in another way than the first trace", run.name,
                  "A calibration is of runs of one model.");
  }
}

/// The keys, values or queries of a layer of one run.
std::vector<std::vector<float>> read_layer(const trace::Sequence& sequence, trace::Tensor tensor,
                                           std::uint32_t layer, std::size_t heads, std::size_t dim) {
  std::vector<std::vector<float>> out(heads);
  for (std::uint32_t head = 0; head < out.size(); ++head) {
    out[head].resize(sequence.length() * dim);
    read_finite(sequence, tensor, layer, head, 0, sequence.length(), out[head]);
  }
  return out;
}

void observe(policy::Calibrator& calibrator, const trace::Sequence& sequence, std::uint32_t layer) {
  const trace::Model& model = sequence.model();
  const auto keys = read_layer(sequence, trace::Tensor::key, layer, model.n_kv_heads, model.head_dim);
  const auto values = read_layer(sequence, trace::Tensor::value, layer, model.n_kv_heads, model.v_head_dim);
  std::vector<std::vector<float>> queries;
  if (calibrator.needs_queries())
    queries = read_layer(sequence, trace::Tensor::query, layer, model.n_q_heads, model.head_dim);
  policy::LayerTokens tokens;
  tokens.rotary = model.rotary(layer);
  for (std::size_t head = 0; head < keys.size(); ++head) {
    tokens.keys.push_back({keys[head].data(), sequence.length(), model.head_dim, model.head_dim});
    tokens.values.push_back({values[head].data(), sequence.length(), model.v_head_dim, model.v_head_dim});
  }
  for (const std::vector<float>& head : queries)
    tokens.queries.push_back({head.data(), sequence.length(), model.head_dim, model.head_dim});
  calibrator.observe(tokens);
}

void append(Calibration& out, const std::vector<policy::CalibratedTable>& tables, bool first_layer) {
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const policy::CalibratedTable& table = tables[i];
    if (first_layer) out.tables.push_back({table.name, table.of_head.at(0).size(), {}});
    Calibration::Table& all = out.tables.at(i);
    if (all.name != table.name || table.of_head.size() != out.n_kv_heads)
      bug("a calibrator has other tables for another layer", out.maker);
    for (const std::vector<float>& head : table.of_head) {
      if (head.size() != all.numbers) bug("KV heads have tables of different sizes", out.maker);
      if (!std::ranges::all_of(head, [](float x) { return std::isfinite(x); }))
        bug("a calibrator measures a number that is not finite", out.maker);
      all.values.insert(all.values.end(), head.begin(), head.end());
    }
  }
}

}  // namespace

Calibration calibrate(const policy::Part& codec, std::span<const CalibrationRun> runs, Progress& progress) {
  if (runs.empty()) usage_error("no trace to measure");
  check_shapes(runs);
  const trace::Model& model = runs[0].sequence->model();
  Calibration out = calibration_of(model, codec.spec->calibration_maker(codec.params));
  std::uint64_t tokens = 0;
  for (const CalibrationRun& run : runs) {
    const std::string content = run.sequence->source().content_sha256();
    out.traces.push_back({run.name, content, prompt_digest(*run.sequence), run.sequence->length()});
    if (content.empty() && out.traces.back().prompt_sha256.empty())
      input_error("says neither a hash of its content nor its tokens, so it cannot be recognised later",
                  run.name);
    tokens += run.sequence->length();
  }
  progress.total.store(tokens * model.n_layers, std::memory_order_relaxed);
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    const auto calibrator =
        codec.spec->make_calibrator(codec.params, cache_unit(model, layer, 0, model.n_kv_heads, 0));
    for (const CalibrationRun& run : runs) {
      progress.check();
      if (calibrator->needs_queries())
        require_queries(*run.sequence, run.sequence->prompt_length(), codec.spec->name);
      observe(*calibrator, *run.sequence, layer);
      progress.advance(run.sequence->length());
    }
    progress.check();
    append(out, calibrator->tables(), layer == 0);
  }
  return out;
}

}  // namespace kvsim::sim
