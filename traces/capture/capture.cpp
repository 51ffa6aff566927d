#include "traces/capture/capture.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"
#include "sim/base/version.hpp"
#include "traces/capture/prompt.hpp"
#include "traces/capture/second_pass.hpp"
#include "traces/capture/token_header.hpp"
#include "traces/format/reader.hpp"
#include "traces/model/device.hpp"
#include "traces/model/generation.hpp"
#include "traces/model/provenance.hpp"

namespace kvsim::capture {
namespace {

Elem parse_compute(const std::string& text, const model::Device& device, Elem checkpoint) {
  const bool cuda = device.kind == model::Device::Kind::cuda;
  if (text == "auto") return cuda && checkpoint == Elem::bf16 ? Elem::bf16 : Elem::f32;
  if (text == "f32") return Elem::f32;
  if (text != "bf16")
    usage_error("unknown arithmetic \"" + text + "\"", "--compute",
                suggestion(text, {"auto", "f32", "bf16"}));
  if (!cuda)
    usage_error("the processor computes in f32 only", "--compute bf16", "Use f32, or --device cuda.");
  return Elem::bf16;
}

void check_options(const CaptureOptions& options) {
  const int given =
      !options.prompt_file.empty() + !options.tokens_file.empty() + !options.workload_file.empty();
  if (given != 1)
    usage_error("give a prompt, a file of token ids or a workload", "--prompt, --tokens, --workload");
  if (!options.item.empty() && !options.tokens_file.empty())
    usage_error("names an item of a workload", "--item", "Add --workload FILE.");
  if (options.pieces && !options.tokens_file.empty())
    usage_error("runs the documents of a workload's prompt", "--pieces", "Add --workload FILE.");
  if (options.chat && !options.tokens_file.empty())
    usage_error("puts a text into the model's chat template", "--chat", "Token ids are taken as they are.");
  model::Sampling sampling = options.sampling;
  if (options.queries.sample > 0) sampling.seed = 0;  // the seed draws the queries, also for greedy decoding
  model::check_sampling(sampling);
  if (options.prefill_chunk == 0) usage_error("must be at least 1", "--prefill-chunk");
  if (options.threads > 1024) usage_error("must be at most 1024", "--threads");
  parse_cache_elem(options.elem, Elem::f32, Elem::f32);
  struct stat status {};
  if (!options.overwrite && ::lstat(options.output.c_str(), &status) == 0)
    usage_error("exists already", options.output, "Choose another name, or add --overwrite.");
}

trace::Capture describe_capture(const CaptureOptions& options, const model::ModelRun& run) {
  trace::Capture capture = run.describe();
  capture.q_policy = query_choice_text(options.queries);
  capture.row_policy = row_choice_text(options.attention);
  capture.prefill_chunk =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.prefill_chunk, 1U << 31));
  return capture;
}

/// The element type that holds every layer's output projection exactly.
Elem output_elem(const model::Weights& weights) {
  const Elem first = weights.layers.front().o.elem;
  // That of latents is a product.
  const bool same =
      std::all_of(weights.layers.begin(), weights.layers.end(),
                  [&](const model::LayerWeights& layer) { return layer.o.elem == first && !layer.latent; });
  return same ? first : Elem::f32;
}

void write_output_weights(trace::Writer& writer, const model::Weights& weights, const Progress& progress) {
  for (std::uint32_t layer = 0; layer < weights.layers.size(); ++layer) {
    progress.check();
    writer.put_output_weights(layer, weights.layers[layer].output_projection());
  }
}

/// Writes the column statistics of every layer. Returns the number of counted tokens.
std::uint64_t write_column_statistics(trace::Writer& writer, const model::ModelRun& run,
                                      std::uint32_t layers) {
  std::uint64_t counted = 0;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const model::ColumnStatistics statistics = run.column_statistics(layer);
    writer.put_column_statistics(layer, statistics.queries, statistics.sum, statistics.sum_squares);
    counted = statistics.queries;
  }
  return counted;
}

/// The tokens from `first` on; none if `first` is not below `total`.
std::vector<std::uint64_t> tokens_from(std::uint64_t first, std::uint64_t total) {
  std::vector<std::uint64_t> list(total - std::min(first, total));
  std::iota(list.begin(), list.end(), first);
  return list;
}

/// Clears the fields that differ between identical runs.
void forget_circumstances(trace::Header& header) {
  header.file_uuid.clear();
  header.created_utc.clear();
  header.capture.threads = 0;
  header.layer_ns.clear();
  header.attn_ns.clear();
  for (trace::Pass& pass : header.passes) pass.start_ns = pass.dur_ns = 0;
}

/// Runs the second passes over the prompt of the trace that has been written.
void run_second_passes(const CaptureOptions& options, const Prompt& prompt, const model::ModelConfig& config,
                       const model::Weights& weights, Progress& progress) {
  if (!prompt.tokenizer)
    usage_error("asks the model in words, and the checkpoint has no tokenizer that loads", "--second-pass");
  const std::unique_ptr<trace::Source> written = trace::open_trace(options.output);
  std::vector<SecondPass> passes;
  for (const trace::Cut::At at : {trace::Cut::At::prompt, trace::Cut::At::question}) {
    if (at == trace::Cut::At::question && std::ranges::none_of(prompt.part_flags, [](auto flags) {
          return (flags & trace::kFlagQuestion) != 0;
        }))
      continue;
    const trace::Sequence run(*written, 0, {at, 0});
    passes.push_back(second_pass(run, *prompt.tokenizer, config, weights,
                                 {.elem = written->header().elem,
                                  .positions = run.length(),
                                  .prefill_chunk = options.prefill_chunk,
                                  .threads = options.threads,
                                  .queries = options.second_pass_queries},
                                 progress));
  }
  write_second_passes(options.second_pass, options.overwrite, written->header().model, passes);
}

model::Generation run_piece(model::ModelRun& model, const std::vector<std::int32_t>& ids,
                            std::uint64_t prefill_chunk, trace::Writer& writer, std::uint32_t query_heads,
                            Progress& progress) {
  TraceRecorder recorder(
      writer, progress, query_heads,
      {.prompt = ids.size(), .queries = tokens_from(0, ids.size()), .first_attention = ids.size()});
  return model::generate(model, ids, {0, prefill_chunk, {}, {}, {}}, recorder, progress);
}

CaptureResult summarise(const CaptureOptions& options, const model::Generation& run, std::uint64_t prompt,
                        const std::optional<model::Tokenizer>& tokenizer) {
  CaptureResult result;
  result.prompt_tokens = prompt;
  result.new_tokens = run.tokens.size() - prompt;
  for (std::uint64_t t = prompt; tokenizer && t < run.tokens.size(); ++t) {
    if (!tokenizer->is_special(run.tokens[t])) result.text += tokenizer->bytes(run.tokens[t]);
  }
  for (const trace::Pass& pass : run.passes) {
    (pass.phase == trace::Phase::prompt ? result.prefill_seconds : result.decode_seconds) +=
        1e-9 * static_cast<double>(pass.dur_ns);
  }
  result.file_bytes = std::filesystem::file_size(options.output);
  return result;
}

}  // namespace

CaptureResult run_capture(const CaptureOptions& options, Progress& progress) {
  check_options(options);
  const model::Device device = model::parse_device(options.device);
  const model::ModelConfig config = model::load_model_config(options.model_dir);
  const model::Checkpoint checkpoint(options.model_dir);
  const model::Weights weights = model::load_weights(checkpoint, config);
  std::vector<std::string> notes = weights.notes;
  const Prompt prompt = load_prompt(options, config, notes);
  const std::uint64_t prompt_tokens = prompt.ids.size();
  const bool forced = !prompt.given.empty();
  const std::uint64_t new_tokens = forced ? prompt.given.size() : options.max_new_tokens;
  check_context(prompt_tokens, new_tokens, config.max_positions);
  std::uint64_t longest = prompt_tokens, piece_tokens = 0;
  for (const PieceRun& piece : prompt.pieces) {
    check_context(piece.ids.size(), 0, config.max_positions);
    longest = std::max<std::uint64_t>(longest, piece.ids.size());
    piece_tokens += piece.ids.size();
  }
  const std::uint64_t capacity = std::max(prompt_tokens + new_tokens, longest);
  model::check_rope_regime(config.rope, prompt_tokens, capacity);
  progress.total = prompt_tokens + new_tokens + piece_tokens;

  TraceRecorder::Choice choice{prompt_tokens,
                               chosen_queries(options.queries, prompt_tokens, options.sampling.seed),
                               options.column_statistics, first_row(options.attention, prompt_tokens)};
  const bool slim = choice.queries.size() < prompt_tokens;
  choice.columns = choice.columns || slim;

  const Elem compute = parse_compute(options.compute, device, weights.elem);
  const Elem elem = parse_cache_elem(options.elem, weights.elem, compute);
  model::RunOptions running{.capacity = capacity,
                            .elem = elem,
                            .threads = options.threads,
                            .compute = compute,
                            .pass_tokens = std::min(options.prefill_chunk, longest),
                            .counts_columns = choice.columns};
  std::unique_ptr<model::ModelRun> model = model::open_model_run(device, config, weights, running);
  trace::Header header;
  header.file_uuid = model::random_uuid();
  header.created_utc = model::now_utc();
  header.writer = std::string("kvsim ") + kVersion + " " + kCommit;
  header.model = model::describe_model(config, weights, options.model_dir, capacity);
  header.capture = describe_capture(options, *model);
  header.elem = elem;
  header.capture.sampling = forced ? "given" : model::sampling_text(options.sampling);
  header.capture.seed = options.sampling.seed;
  header.capture.teacher_forced = forced;
  header.capture.workload = prompt.workload;
  header.capture.workload_item = prompt.workload_item;
  if (options.output_weights) header.output_elem = output_elem(weights);
  Workers workers(options.threads);
  trace::Writer writer(options.output, header,
                       {.overwrite = options.overwrite, .deflate = options.deflate, .workers = &workers});
  // Beside a run on a device; a run on the processor has no thread to spare for it.
  std::future<std::string> weights_sha256 =
      std::async(device.kind == model::Device::Kind::cuda ? std::launch::async : std::launch::deferred,
                 [&] { return checkpoint.sha256(progress); });

  if (options.output_weights) write_output_weights(writer, weights, progress);

  TraceRecorder recorder(writer, progress, config.n_heads, choice);
  const model::Generation run =
      model::generate(*model, prompt.ids,
                      {options.max_new_tokens, options.prefill_chunk,
                       options.ignore_eos ? std::vector<std::int32_t>{} : config.eos, options.sampling,
                       prompt.given, options.prompt_logprobs},
                      recorder, progress);
  header.model.weights_sha256 = weights_sha256.get();
  checkpoint.check_unchanged();
  if (choice.columns) header.counted_tokens = write_column_statistics(writer, *model, config.n_layers);

  const std::uint64_t total = run.tokens.size();
  progress.total = total + piece_tokens;
  describe_tokens(header, run.tokens, prompt, config);
  header.token_logprob = run.logprob;
  describe_segments(header, prompt_tokens, total, forced);
  header.passes = run.passes;
  header.layer_ns = run.layer_ns;
  header.attn_ns = run.attn_ns;
  if (slim) {
    header.query_token = choice.queries;
    const std::vector<std::uint64_t> generated = tokens_from(prompt_tokens, total);
    header.query_token.insert(header.query_token.end(), generated.begin(), generated.end());
  }
  header.attention_token = tokens_from(choice.first_attention, total);
  running.counts_columns = false;
  for (const PieceRun& piece : prompt.pieces) {
    model.reset();  // two caches need not fit
    model = model::open_model_run(device, config, weights, running);
    describe_piece(header, piece,
                   run_piece(*model, piece.ids, options.prefill_chunk, writer, config.n_heads, progress),
                   prompt, config);
  }
  if (options.reproducible) forget_circumstances(header);
  writer.finish(header);
  if (!options.second_pass.empty()) run_second_passes(options, prompt, config, weights, progress);

  CaptureResult result = summarise(options, run, prompt_tokens, prompt.tokenizer);
  result.answers = prompt.answers;
  result.pieces = prompt.pieces.size();
  result.piece_tokens = piece_tokens;
  result.notes = std::move(notes);
  return result;
}

TraceRecorder::TraceRecorder(trace::Writer& writer, const Progress& progress, std::uint32_t query_heads,
                             Choice choice)
    : writer_(writer), progress_(progress), query_heads_(query_heads), choice_(std::move(choice)) {}

void TraceRecorder::on_tensors(std::uint32_t layer, std::uint64_t first, std::uint64_t n, const Elements& q,
                               const Elements& k, const Elements& v) {
  progress_.check();
  writer_.append(trace::Tensor::key, layer, n, k);
  writer_.append(trace::Tensor::value, layer, n, v);
  const std::vector<std::uint64_t> rows = chosen_rows(first, n);
  if (rows.empty()) return;
  writer_.append(trace::Tensor::query, layer, rows.size(), rows.size() == n ? q : gathered(q, n, rows));
}

void TraceRecorder::on_attention(std::uint32_t layer, std::uint64_t, std::uint64_t first_key,
                                 std::uint64_t n_keys, std::span<const float> p) {
  writer_.append_attention(layer, first_key, n_keys, p);
}

/// The tokens whose queries are stored among the n from position `first` on, counted from `first`.
std::vector<std::uint64_t> TraceRecorder::chosen_rows(std::uint64_t first, std::uint64_t n) const {
  std::vector<std::uint64_t> rows;
  const std::vector<std::uint64_t>& chosen = choice_.queries;
  for (auto at = std::lower_bound(chosen.begin(), chosen.end(), first); at != chosen.end() && *at < first + n;
       ++at)
    rows.push_back(*at - first);
  for (std::uint64_t position = std::max(first, choice_.prompt); position < first + n; ++position)
    rows.push_back(position - first);
  return rows;
}

/// The selected `rows` out of n rows of every query head.
Elements TraceRecorder::gathered(const Elements& q, std::uint64_t n, const std::vector<std::uint64_t>& rows) {
  const std::uint64_t dim = q.size() / (query_heads_ * n);
  const std::uint64_t row_bytes = dim * elem_bytes(q.elem());
  rows_.resize(query_heads_ * rows.size() * row_bytes);
  std::byte* to = rows_.data();
  for (std::uint64_t head = 0; head < query_heads_; ++head)
    for (const std::uint64_t row : rows) {
      q.subspan((head * n + row) * dim, dim).store(q.elem(), to);
      to += row_bytes;
    }
  return {q.elem(), rows_.data(), query_heads_ * rows.size() * dim};
}

}  // namespace kvsim::capture
