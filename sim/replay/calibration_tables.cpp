#include "sim/replay/calibration_tables.hpp"

#include <algorithm>
#include <cmath>

#include "sim/attention/group_tensors.hpp"
#include "sim/attention/row_requirement.hpp"
#include "sim/base/error.hpp"
#include "sim/base/inputs.hpp"
#include "sim/base/sha256.hpp"
#include "sim/replay/plan.hpp"
#include "traces/format/hdf5_input.hpp"
#include "traces/format/hdf5_output.hpp"

namespace kvsim::sim {
namespace {

constexpr const char* kFormat = "kvcalibration";
constexpr std::uint64_t kSchema = 1, kMostSize = 1U << 20;
constexpr std::size_t kMostTables = 64, kMostTraces = 1U << 20;
constexpr const char* kMade = "Make it with kvsim calibrate.";

std::vector<std::uint64_t> u64_list(const hdf5::InputGroup& group, const char* name) {
  const hdf5::InputDataset dataset = group.dataset(name, {hdf5::Type::u64}, 1);
  std::vector<std::uint64_t> out(dataset.dims()[0]);
  dataset.read_all(out.data());
  return out;
}

std::vector<CalibrationTrace> read_traces(const hdf5::InputGroup& group) {
  const std::vector<std::string> names = group.texts("name").read_texts(),
                                 contents = group.texts("content_sha256").read_texts(),
                                 prompts = group.texts("prompt_sha256").read_texts();
  const std::vector<std::uint64_t> tokens = u64_list(group, "tokens");
  if (names.empty() || names.size() > kMostTraces || contents.size() != names.size() ||
      prompts.size() != names.size() || tokens.size() != names.size())
    input_error("its lists do not belong together", group.where("name"), kMade);
  std::vector<CalibrationTrace> out;
  for (std::size_t i = 0; i < names.size(); ++i)
    out.push_back({names[i], contents[i], prompts[i], tokens[i]});
  return out;
}

Calibration::Table read_table(const hdf5::InputGroup& group, const std::string& name,
                              const Calibration& calibration) {
  const hdf5::InputDataset dataset = group.dataset(name, {hdf5::Type::f32}, 3);
  Calibration::Table out{name, dataset.dims()[2], {}};
  dataset.expect({calibration.n_layers, calibration.n_kv_heads, out.numbers},
                 "the file's model (layers, KV heads, numbers)");
  out.values.resize(calibration.n_layers * calibration.n_kv_heads * out.numbers);
  dataset.read_all(out.values.data());
  const auto bad = std::ranges::find_if(out.values, [](float x) { return !std::isfinite(x); });
  if (bad != out.values.end())
    input_error("number " + std::to_string(bad - out.values.begin()) + " is not finite", dataset.where(),
                kMade);
  return out;
}

}  // namespace

Calibration calibration_of(const trace::Model& model, std::string maker) {
  return {.maker = std::move(maker),
          .model = model.name,
          .n_layers = model.n_layers,
          .n_kv_heads = model.n_kv_heads,
          .head_dim = model.head_dim,
          .value_dim = model.v_head_dim};
}

const CalibrationTrace* measured_on(const Calibration& calibration, const std::string& content_sha256,
                                    const std::string& prompt_sha256) {
  const auto same = [](const std::string& a, const std::string& b) { return !a.empty() && a == b; };
  for (const CalibrationTrace& trace : calibration.traces)
    if (same(trace.content_sha256, content_sha256) || same(trace.prompt_sha256, prompt_sha256)) return &trace;
  return nullptr;
}

std::string prompt_digest(const trace::Sequence& sequence) {
  const std::vector<std::int32_t>& ids = sequence.source().header().token_id;
  Sha256 digest;
  for (std::uint64_t position = 0; position < sequence.recorded_prompt_length(); ++position) {
    const std::int32_t id = ids[sequence.token(position)];
    if (id < 0) return {};
    digest.update(&id, sizeof id);
  }
  return digest.hex();
}

void write_calibration(const std::string& path, const Calibration& calibration, bool overwrite) {
  const hdf5::Session session;
  hdf5::OutputFile file(path, overwrite);
  {
    hdf5::put_text(file.id(), "format", kFormat, path);
    hdf5::put<std::uint16_t>(file.id(), "schema_major", kSchema, path);
    hdf5::put_text(file.id(), "maker", calibration.maker, path);
    hdf5::put_text(file.id(), "model", calibration.model, path);
    hdf5::put<std::uint64_t>(file.id(), "n_layers", calibration.n_layers, path);
    hdf5::put<std::uint64_t>(file.id(), "n_kv_heads", calibration.n_kv_heads, path);
    hdf5::put<std::uint64_t>(file.id(), "head_dim", calibration.head_dim, path);
    hdf5::put<std::uint64_t>(file.id(), "v_head_dim", calibration.value_dim, path);
    std::vector<std::string> names, contents, prompts, tables;
    std::vector<std::uint64_t> tokens;
    for (const CalibrationTrace& trace : calibration.traces) {
      names.push_back(trace.name);
      contents.push_back(trace.content_sha256);
      prompts.push_back(trace.prompt_sha256);
      tokens.push_back(trace.tokens);
    }
    const hdf5::Object traces = hdf5::create_group(file.id(), "traces", path);
    hdf5::put_texts(traces.id(), "name", names, path);
    hdf5::put_texts(traces.id(), "content_sha256", contents, path);
    hdf5::put_texts(traces.id(), "prompt_sha256", prompts, path);
    hdf5::put_list(traces.id(), "tokens", tokens, path);
    const hdf5::Object group = hdf5::create_group(file.id(), "tables", path);
    for (const Calibration::Table& table : calibration.tables) {
      tables.push_back(table.name);
      hdf5::put_array(group.id(), table.name, hdf5::Type::f32, table.values.data(),
                      {calibration.n_layers, calibration.n_kv_heads, table.numbers}, path);
    }
    hdf5::put_texts(file.id(), "table_names", tables, path);
  }
  file.commit();
}

Calibration read_calibration(const std::string& path) {
  const hdf5::Session session;
  const hdf5::InputFile file(path);
  const hdf5::InputGroup& root = file.root();
  if (!root.has_attribute("format") || root.text("format") != kFormat)
    input_error("holds no calibration", path, kMade);
  if (const std::uint64_t schema = root.count("schema_major", UINT16_MAX); schema != kSchema)
    input_error("is of schema " + std::to_string(schema) + ", this kvsim reads " + std::to_string(kSchema),
                path, kMade);
  Calibration out;
  out.maker = root.text("maker");
  out.model = root.text("model");
  out.n_layers = root.count("n_layers", kMostSize);
  out.n_kv_heads = root.count("n_kv_heads", kMostSize);
  out.head_dim = root.count("head_dim", kMostSize);
  out.value_dim = root.count("v_head_dim", kMostSize);
  out.traces = read_traces(root.group("traces"));
  const std::vector<std::string> names = root.texts("table_names").read_texts();
  if (names.empty() || names.size() > kMostTables)
    input_error("has " + std::to_string(names.size()) + " tables", root.where("table_names"), kMade);
  const hdf5::InputGroup tables = root.group("tables");
  for (const std::string& name : names) out.tables.push_back(read_table(tables, name, out));
  if (!tables.dataset(names.front(), {hdf5::Type::f32}, 3).is_sealed())
    inputs::remark(path + hdf5::kUnsealed);
  file.require_unchanged();
  return out;
}

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
