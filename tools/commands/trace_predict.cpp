// kvsim trace predict: the cache of a large model, as maps make it of a small one's.
#include "sim/replay/kv_prediction.hpp"
#include "tools/commands/command.hpp"
#include "tools/options/chosen_sequences.hpp"
#include "traces/format/hdf5_output.hpp"

namespace kvsim::tools {
namespace {

struct TracePredictOptions : OutputOptions {
  std::string maps, large, small, rows;
};

/// The file that external_rows reads: rows of the prompt.
void write_rows(const TracePredictOptions& options, const trace::Sequence& run,
                const std::vector<float>& keys, const std::vector<float>& values) {
  const trace::Model& model = run.model();
  const hdf5::Session session;
  hdf5::OutputFile file(options.rows, options.overwrite);
  for (const auto& [name, rows, dim] :
       {std::tuple{"keys", &keys, model.head_dim}, {"values", &values, model.v_head_dim}})
    hdf5::put_array(file.id(), name, hdf5::Type::f32, rows->data(),
                    {model.n_layers, model.n_kv_heads, run.prompt_length(), dim}, options.rows);
  file.commit();
}

void predict(const TracePredictOptions& options) {
  FormattedOutput output(options);
  if (!options.rows.empty()) {
    require_ending(options.rows, analysis::Format::h5);
    refuse_output(options.rows, options.overwrite);
  }
  const sim::Calibration maps = sim::read_calibration(options.maps);
  const ChosenSequence large = chosen_sequences(options.large, "").front(),
                       small = chosen_sequences(options.small, "").front();
  const sim::PredictionRun run{large.name, small.name, &large.sequence, &small.sequence};
  const std::vector<std::size_t> from = sim::check_prediction(maps, run);
  analysis::Document document;
  document.analysis = "trace predict";
  document.records.columns = {
      {"layer", "index", "of the large model"},
      {"small_layer", "index", "of the small model, that it is predicted from"},
      {"key_error", "share",
       "|predicted - recorded| / |recorded|, Frobenius, of keys before rotation, over the prompt but its last token"},
      {"value_error", "share", "the same of values"}};
  std::vector<float> keys, values;
  for (std::uint32_t layer = 0; layer < large.sequence.model().n_layers; ++layer) {
    const sim::PredictedLayer of = sim::predict_layer(maps, run, layer, from[layer]);
    document.records.rows.push_back(
        {std::uint64_t{layer}, std::uint64_t{from[layer]}, of.key_error, of.value_error});
    if (options.rows.empty()) continue;
    keys.insert(keys.end(), of.keys.begin(), of.keys.end());
    values.insert(values.end(), of.values.begin(), of.values.end());
  }
  large.source->require_unchanged();
  small.source->require_unchanged();
  if (!options.rows.empty()) write_rows(options, large.sequence, keys, values);
  output.commit(document);
}

}  // namespace

void add_trace_predict(Command trace) {
  Command command = trace.add_subcommand(
      "predict", "How well maps make a large model's cache of a small one's", R"(Examples:
  kvsim calibrate kv_prediction a.h5 b.h5 --small a-small.h5 b-small.h5 -o maps.h5
  kvsim trace predict maps.h5 d.h5 --small d-small.h5 --rows d-rows.h5
  kvsim replay d.h5 --policy 'full+external_rows(file=d-rows.h5)' --budget 100%

Both runs are of one prompt. Its last token has the large model's own keys and
values, which computes it on what is predicted.
)");
  const auto options = std::make_shared<TracePredictOptions>();
  command.add_required("MAPS", options->maps, "", "What kvsim calibrate kv_prediction has written");
  command.add_required("TRACE", options->large, "", "The large model's run");
  command.add_required("--small", options->small, "TRACE", "The small model's");
  command.add_option(
      "--rows", options->rows, "FILE.h5",
      "Write the predicted keys and values, which external_rows puts in place of the run's own");
  add_output_options(command, *options);
  command.callback([options] { predict(*options); });
}

}  // namespace kvsim::tools
