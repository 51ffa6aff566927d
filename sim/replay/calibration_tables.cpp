#include "sim/replay/calibration_tables.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/inputs.hpp"
#include "sim/base/sha256.hpp"
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

}  // namespace kvsim::sim
