#include "traces/capture/capture.hpp"

#include <sys/stat.h>
#include <tbb/version.h>
#include <unicode/uversion.h>
#include <unistd.h>

#include <Eigen/Core>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"
#include "sim/base/version.hpp"
#include "traces/capture/cpu/model_run.hpp"
#include "traces/capture/input_file.hpp"
#include "traces/capture/token_file.hpp"
#include "traces/capture/tokenizer.hpp"
#include "traces/writer.hpp"

namespace kvsim::capture {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kTokenizerName = "tokenizer.json";
constexpr std::uint64_t kMaxTokensFileBytes = 256ULL << 20;

// ---- What was asked for
// ---------------------------------------------------------------------------------------------

std::string row_choice_text(const RowChoice& choice, const char* everything) {
  switch (choice.kind) {
    case RowChoice::Kind::none:
      return "none";
    case RowChoice::Kind::all:
      return everything;
    case RowChoice::Kind::window:
      break;
  }
  return "window:" + std::to_string(choice.window);
}

/// First position whose row is stored: the last `window` prompt rows and every decode row.
std::uint64_t first_row(const RowChoice& choice, std::uint64_t prompt) {
  if (choice.kind == RowChoice::Kind::none) return std::numeric_limits<std::uint64_t>::max();
  if (choice.kind == RowChoice::Kind::all) return 0;
  return prompt - std::min(prompt, choice.window);
}

Elem parse_elem(const std::string& text, Elem checkpoint) {
  if (text == "auto") return checkpoint == Elem::bf16 ? Elem::bf16 : Elem::f32;
  for (const Elem elem : {Elem::f32, Elem::f16, Elem::bf16}) {
    if (text == elem_name(elem)) return elem;
  }
  usage_error("unknown element type \"" + text + "\"", "--elem",
              suggestion(text, {"auto", "f32", "f16", "bf16"}));
}

void check_options(const CaptureOptions& options) {
  if (options.prompt_file.empty() == options.tokens_file.empty())
    usage_error("give either a prompt or a file of token ids", "--prompt, --tokens");
  if (options.prefill_chunk == 0) usage_error("must be at least 1", "--prefill-chunk");
  if (options.threads > 1024) usage_error("must be at most 1024", "--threads");
  parse_elem(options.elem, Elem::f32);
  struct stat status {};
  if (!options.overwrite && ::lstat(options.output.c_str(), &status) == 0)
    usage_error("exists already", options.output, "Choose another name, or add --overwrite.");
}

// ---- The prompt
// -----------------------------------------------------------------------------------------------------

struct Prompt {
  std::vector<std::int32_t> ids;
  std::optional<Tokenizer> tokenizer;
};

std::optional<Tokenizer> load_tokenizer(const CaptureOptions& options, std::vector<std::string>& notes) {
  const std::string path = options.model_dir + "/" + kTokenizerName;
  const bool needed = options.tokens_file.empty();
  if (::access(path.c_str(), F_OK) != 0) {
    if (!needed) return std::nullopt;
    input_error(std::string("no ") + kTokenizerName + " beside the checkpoint", options.model_dir,
                "Tokenize the prompt elsewhere and pass the ids with --tokens.");
  }
  try {
    return Tokenizer(read_file(path, kMaxTokenizerBytes), path);
  } catch (const Error& error) {
    if (needed) throw;
    notes.push_back(std::string("the trace will hold no text: ") + error.what());
    return std::nullopt;
  }
}

Prompt load_prompt(const CaptureOptions& options, const ModelConfig& config,
                   std::vector<std::string>& notes) {
  Prompt prompt{{}, load_tokenizer(options, notes)};
  if (!options.tokens_file.empty()) {
    const std::string text = read_file(options.tokens_file, kMaxTokensFileBytes);
    prompt.ids = parse_token_ids(text, config.vocab_size, options.tokens_file);
  } else {
    prompt.ids = prompt.tokenizer->encode(read_file(options.prompt_file, kMaxTextBytes));
    for (std::size_t i = 0; i < prompt.ids.size(); ++i) {
      if (static_cast<std::uint32_t>(prompt.ids[i]) >= config.vocab_size) {
        input_error("token " + std::to_string(i) + " of the prompt has id " + std::to_string(prompt.ids[i]) +
                        ", outside the model's vocabulary of " + std::to_string(config.vocab_size),
                    options.model_dir + "/" + kTokenizerName, "The tokenizer belongs to another model.");
      }
    }
  }
  if (prompt.ids.empty()) input_error("the prompt has no tokens", options.prompt_file + options.tokens_file);
  return prompt;
}

void check_context(std::uint64_t prompt, std::uint64_t max_new_tokens, std::uint64_t context) {
  if (prompt > context) {
    usage_error("the prompt has " + std::to_string(prompt) + " tokens, the model's context " +
                    std::to_string(context),
                "--prompt", "Shorten the prompt.");
  }
  if (max_new_tokens > context - prompt) {
    usage_error("the prompt's " + std::to_string(prompt) + " tokens and " + std::to_string(max_new_tokens) +
                    " new ones exceed the model's context of " + std::to_string(context),
                "--max-new-tokens", "At most " + std::to_string(context - prompt) + " fit.");
  }
}

// ---- Provenance
// -----------------------------------------------------------------------------------------------------

/// Random, version 4 (RFC 4122).
std::string random_uuid() {
  std::random_device device;
  std::string uuid;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) uuid += '-';
    unsigned digit = device() & 15U;
    if (i == 12) digit = 4;
    if (i == 16) digit = 8 | (digit & 3U);
    uuid += "0123456789abcdef"[digit];
  }
  return uuid;
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string library_versions() {
  return std::string("kvsim ") + kVersion + " (" + kCommit + "), Eigen " +
         std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION) + ", oneTBB " + TBB_VERSION_STRING + ", ICU " + U_ICU_VERSION;
}

trace::Model describe_model(const ModelConfig& config, const std::string& directory) {
  trace::Model model;
  model.name = std::filesystem::weakly_canonical(directory).filename().string();
  model.model_type = config.model_type;
  model.architecture = config.architecture;
  model.n_layers = config.n_layers;
  model.n_q_heads = config.n_heads;
  model.n_kv_heads = config.n_kv_heads;
  model.head_dim = model.v_head_dim = model.rotary_dim = config.head_dim;
  model.hidden_size = config.hidden_size;
  model.vocab_size = config.vocab_size;
  model.attn_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  model.norm_eps = config.norm_eps;
  model.rope_theta = config.rope.theta;
  model.rope_type = config.rope.type;
  model.qk_norm = config.qk_norm;
  model.qkv_bias = config.qkv_bias;
  model.layer_window = config.layer_window;
  model.inv_freq = rope_frequencies(config.rope, config.head_dim);
  model.config_json = config.json;
  return model;
}

trace::Capture describe_capture(const CaptureOptions& options, unsigned threads) {
  trace::Capture capture;
  capture.source = "native-cpu";
  capture.device_name = "cpu";
  capture.cpu_model = processor_name();
  capture.device_kind = "cpu";
  capture.compute_dtype = capture.accum_dtype = "f32";
  capture.math_mode = "ieee";
  capture.attention_kernel = "softmax over query blocks";
  capture.software = library_versions();
  capture.q_policy = row_choice_text(options.queries, "all");
  capture.row_policy = row_choice_text(options.attention, "full");
  capture.threads = threads;
  capture.prefill_chunk =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(options.prefill_chunk, 1U << 31));
  return capture;
}

// ---- The run
// --------------------------------------------------------------------------------------------------------

/// Hands what the run shows to the writer. Positions are file order: there is one sequence.
class Recorder : public cpu::RunObserver {
 public:
  Recorder(trace::Writer& writer, const Progress& progress, const ModelConfig& config,
           std::uint64_t first_query, std::uint64_t first_attention)
      : writer_(writer),
        progress_(progress),
        config_(config),
        first_query_(first_query),
        first_attention_(first_attention) {}

  void begin_pass(std::uint64_t past) { past_ = past; }

  void on_tensors(std::uint32_t layer, std::uint64_t n, std::span<const float> q, std::span<const float> k,
                  std::span<const float> v) override {
    progress_.check();
    writer_.append(trace::Tensor::key, layer, n, k);
    writer_.append(trace::Tensor::value, layer, n, v);
    const std::uint64_t skipped = first_query_ <= past_ ? 0 : std::min(n, first_query_ - past_);
    if (skipped == 0) {
      writer_.append(trace::Tensor::query, layer, n, q);
    } else if (skipped < n) {
      writer_.append(trace::Tensor::query, layer, n - skipped, last_rows(q, n, n - skipped));
    }
  }

  std::uint64_t first_attention_row() const override { return first_attention_; }

  void on_attention(std::uint32_t layer, std::uint64_t, std::uint64_t first_key, std::uint64_t n_keys,
                    std::span<const float> p) override {
    writer_.append_attention(layer, first_key, n_keys, p);
  }

 private:
  /// The last `kept` of n rows of every query head.
  std::span<const float> last_rows(std::span<const float> q, std::uint64_t n, std::uint64_t kept) {
    const std::uint64_t dim = config_.head_dim;
    rows_.resize(config_.n_heads * kept * dim);
    for (std::uint64_t head = 0; head < config_.n_heads; ++head)
      std::copy_n(q.data() + (head * n + n - kept) * dim, kept * dim, rows_.data() + head * kept * dim);
    return rows_;
  }

  trace::Writer& writer_;
  const Progress& progress_;
  const ModelConfig& config_;
  std::uint64_t first_query_, first_attention_, past_ = 0;
  std::vector<float> rows_;
};

struct Choice {
  std::int32_t id = 0;
  float logprob = 0;
};

/// The most probable token, the lowest id among equals.
Choice greedy(const std::vector<float>& logits, std::uint64_t position) {
  const auto best = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - double{*best});
  if (!std::isfinite(sum)) {
    input_error("the logits after token " + std::to_string(position) + " are not finite", "model",
                "The checkpoint holds NaN or infinite weights, or is not the model config.json describes.");
  }
  return {static_cast<std::int32_t>(best - logits.begin()), static_cast<float>(-std::log(sum))};
}

/// Prefill and greedy decode, with the bookkeeping of passes and tokens.
class Session {
 public:
  Session(const CaptureOptions& options, const ModelConfig& config, cpu::ModelRun& run, Recorder& recorder,
          Progress& progress)
      : options_(options), config_(config), run_(run), recorder_(recorder), progress_(progress) {}

  void generate(const std::vector<std::int32_t>& prompt) {
    tokens = prompt;
    logprob.assign(prompt.size(), std::numeric_limits<float>::quiet_NaN());  // given, not chosen
    std::vector<float> logits;
    for (std::uint64_t first = 0; first < prompt.size(); first += options_.prefill_chunk) {
      const std::uint64_t n = std::min(options_.prefill_chunk, prompt.size() - first);
      const bool last = first + n == prompt.size();
      logits = pass(first, n, trace::Phase::prompt, last && options_.max_new_tokens > 0);
    }
    for (std::uint64_t i = 0; i < options_.max_new_tokens; ++i) {
      const Choice choice = greedy(logits, tokens.size() - 1);
      tokens.push_back(choice.id);
      logprob.push_back(choice.logprob);
      const bool end = !options_.ignore_eos &&
                       std::find(config_.eos.begin(), config_.eos.end(), choice.id) != config_.eos.end();
      const bool more = !end && i + 1 < options_.max_new_tokens;
      // The last token runs too: every token of a trace has its key, value and query.
      logits = pass(tokens.size() - 1, 1, trace::Phase::decode, more);
      if (!more) break;
    }
  }

  std::vector<std::int32_t> tokens;
  std::vector<float> logprob, layer_ns, attn_ns;
  std::vector<trace::Pass> passes;

 private:
  std::vector<float> pass(std::uint64_t first, std::uint64_t n, trace::Phase phase, bool want_logits) {
    progress_.check();
    recorder_.begin_pass(first);
    const auto begin = Clock::now();
    const cpu::PassTiming timing = run_.forward(std::span(tokens).subspan(first, n), recorder_);
    const auto head_begin = Clock::now();
    std::vector<float> logits = want_logits ? run_.logits() : std::vector<float>{};
    const std::int64_t duration = timing.total + nanoseconds(Clock::now() - head_begin);
    const bool decode = phase == trace::Phase::decode;
    passes.push_back({decode ? 1U : 0U, first, static_cast<std::uint32_t>(n),
                      static_cast<std::uint32_t>(first), phase, nanoseconds(begin - start_), duration});
    layer_ns.insert(layer_ns.end(), timing.layer.begin(), timing.layer.end());
    attn_ns.insert(attn_ns.end(), timing.attention.begin(), timing.attention.end());
    progress_.advance(n);
    return logits;
  }

  static std::int64_t nanoseconds(Clock::duration duration) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
  }

  const CaptureOptions& options_;
  const ModelConfig& config_;
  cpu::ModelRun& run_;
  Recorder& recorder_;
  Progress& progress_;
  Clock::time_point start_ = Clock::now();
};

// ---- The trace
// ------------------------------------------------------------------------------------------------------

void fill_tokens(trace::Header& header, const Session& session, std::uint64_t prompt,
                 const ModelConfig& config, const std::optional<Tokenizer>& tokenizer) {
  const std::uint64_t total = session.tokens.size();
  header.token_id = session.tokens;
  header.token_logprob = session.logprob;
  header.token_position.resize(total);
  std::iota(header.token_position.begin(), header.token_position.end(), 0);
  header.token_segment.assign(total, 0);
  header.token_flags.assign(total, 0);
  for (std::uint64_t t = 0; t < total; ++t) {
    const std::int32_t id = session.tokens[t];
    const bool ends = std::find(config.eos.begin(), config.eos.end(), id) != config.eos.end();
    if (ends || (tokenizer && tokenizer->is_special(id))) header.token_flags[t] |= trace::kFlagSpecial;
    if (t >= prompt) {
      header.token_segment[t] = 1;
      header.token_flags[t] |= trace::kFlagGenerated;
    }
  }
  if (!tokenizer) return;
  header.tokenizer_name = kTokenizerName;
  header.tokenizer_sha256 = tokenizer->sha256();
  header.text_offset.push_back(0);
  for (const std::int32_t id : session.tokens) {
    header.text_bytes += tokenizer->bytes(id);
    header.text_offset.push_back(header.text_bytes.size());
  }
}

void fill_segments(trace::Header& header, std::uint64_t prompt, std::uint64_t total) {
  header.segments = {{.parent = -1, .begin = 0, .count = static_cast<std::uint32_t>(prompt), .path_len = 0}};
  if (total > prompt) {
    header.segments.push_back({.parent = 0,
                               .begin = prompt,
                               .count = static_cast<std::uint32_t>(total - prompt),
                               .path_len = static_cast<std::uint32_t>(prompt),
                               .phase = trace::Phase::decode});
  }
  header.sequence_leaf = {static_cast<std::uint32_t>(header.segments.size() - 1)};
}

/// Tokens from `first` on, or none.
std::vector<std::uint64_t> tokens_from(std::uint64_t first, std::uint64_t total) {
  std::vector<std::uint64_t> list(total - std::min(first, total));
  std::iota(list.begin(), list.end(), first);
  return list;
}

CaptureResult summarise(const CaptureOptions& options, const Session& session, std::uint64_t prompt,
                        const std::optional<Tokenizer>& tokenizer) {
  CaptureResult result;
  result.prompt_tokens = prompt;
  result.new_tokens = session.tokens.size() - prompt;
  for (std::uint64_t t = prompt; tokenizer && t < session.tokens.size(); ++t) {
    if (!tokenizer->is_special(session.tokens[t])) result.text += tokenizer->bytes(session.tokens[t]);
  }
  for (const trace::Pass& pass : session.passes) {
    (pass.phase == trace::Phase::prompt ? result.prefill_seconds : result.decode_seconds) +=
        1e-9 * static_cast<double>(pass.dur_ns);
  }
  result.file_bytes = std::filesystem::file_size(options.output);
  return result;
}

}  // namespace

RowChoice parse_row_choice(const std::string& text, const std::string& option, const char* everything,
                           bool allow_none) {
  const std::string window_word = "window:";
  if (text == everything) return {RowChoice::Kind::all, 0};
  if (allow_none && text == "none") return {RowChoice::Kind::none, 0};
  const std::string expected = std::string("Expected ") + (allow_none ? "none, " : "") + "window:W or " +
                               everything + ", such as window:64.";
  if (!text.starts_with(window_word))
    usage_error("\"" + text + "\" is not a choice of rows", option, expected);
  std::uint64_t window = 0;
  const char* begin = text.data() + window_word.size();
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(begin, end, window);
  if (failure != std::errc{} || stop != end || window == 0)
    usage_error("\"" + text + "\" needs a number of rows, at least 1", option, expected);
  return {RowChoice::Kind::window, window};
}

CaptureResult run_capture(const CaptureOptions& options, Progress& progress) {
  check_options(options);
  const ModelConfig config = load_model_config(options.model_dir);
  const Checkpoint checkpoint(options.model_dir);
  const cpu::Weights weights = cpu::load_weights(checkpoint, config);
  std::vector<std::string> notes = weights.notes;
  const Prompt prompt = load_prompt(options, config, notes);
  const std::uint64_t prompt_tokens = prompt.ids.size();
  check_context(prompt_tokens, options.max_new_tokens, config.max_positions);
  progress.total = prompt_tokens + options.max_new_tokens;

  const Elem elem = parse_elem(options.elem, weights.elem);
  cpu::ModelRun run(config, weights, {prompt_tokens + options.max_new_tokens, elem, options.threads});
  trace::Header header;
  header.file_uuid = random_uuid();
  header.created_utc = now_utc();
  header.writer = std::string("kvsim ") + kVersion + " " + kCommit;
  header.model = describe_model(config, options.model_dir);
  header.model.tied_embeddings = weights.tied;
  header.capture = describe_capture(options, run.threads());
  header.elem = elem;
  trace::Writer writer(options.output, header, {.overwrite = options.overwrite});
  header.model.weights_sha256 = checkpoint.sha256();

  const std::uint64_t first_query = first_row(options.queries, prompt_tokens);
  const std::uint64_t first_attention = first_row(options.attention, prompt_tokens);
  Recorder recorder(writer, progress, config, first_query, first_attention);
  Session session(options, config, run, recorder, progress);
  session.generate(prompt.ids);
  checkpoint.check_sizes();

  const std::uint64_t total = session.tokens.size();
  progress.total = total;
  fill_tokens(header, session, prompt_tokens, config, prompt.tokenizer);
  fill_segments(header, prompt_tokens, total);
  header.passes = std::move(session.passes);
  header.layer_ns = std::move(session.layer_ns);
  header.attn_ns = std::move(session.attn_ns);
  if (first_query > 0) header.query_token = tokens_from(first_query, total);
  header.attention_token = tokens_from(first_attention, total);
  writer.finish(header);

  session.passes = header.passes;
  CaptureResult result = summarise(options, session, prompt_tokens, prompt.tokenizer);
  result.notes = std::move(notes);
  return result;
}

}  // namespace kvsim::capture
