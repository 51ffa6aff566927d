#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_from.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "sim/base/error.hpp"
#include "tests/unit/model/golden_checkpoint.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/capture.hpp"
#include "traces/format/reader.hpp"
#include "traces/model/tokenizers/byte_level.hpp"

namespace kvsim::capture::test_run_capture {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;

/// A tokenizer with 256 byte tokens, whose ids are their bytes, and <s> = 256, which it puts before the text.
std::string byte_tokenizer() {
  boost::json::object vocab;
  for (int byte = 0; byte < 256; ++byte)
    vocab[model::alphabet_of_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["<s>"] = 256;
  const boost::json::value document = {
      {"added_tokens", {{{"id", 256}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{"<s>", {{"ids", {256}}}}}}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", boost::json::array{}}}}};
  return boost::json::serialize(document);
}

/// A model folder and the files of one test.
class Workplace {
 public:
  explicit Workplace(const std::string& variant = "llama_tied") : golden_(variant) {
    fs::create_directory(model());
    for (const fs::directory_entry& entry : fs::directory_iterator(golden_.directory)) {
      if (entry.path().filename() != "golden.safetensors") fs::copy(entry.path(), model());
    }
    put("model/tokenizer.json", byte_tokenizer());
  }

  std::string model() const { return scratch.file("model"); }
  const model::GoldenCheckpoint& golden() const { return golden_; }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(scratch.file(name), std::ios::binary) << text;
    return scratch.file(name);
  }
  void change_config(const std::string& field, const boost::json::value& value) const {
    boost::json::value config = boost::json::parse(test::bytes_of(scratch.file("model/config.json")));
    config.as_object()[field] = value;
    put("model/config.json", boost::json::serialize(config));
  }
  /// Overwrites every element of a tensor with one 16-bit pattern.
  void fill_tensor(const std::string& name, std::uint16_t bits) const {
    std::string bytes = test::bytes_of(scratch.file("model/model.safetensors"));
    const model::TensorMap tensors = model::parse_safetensors(std::as_bytes(std::span(bytes)), "model");
    const std::span<const std::byte> data = tensors.at(name).data;
    char* begin = bytes.data() + (data.data() - reinterpret_cast<const std::byte*>(bytes.data()));
    for (std::size_t i = 0; i < data.size(); i += 2) std::memcpy(begin + i, &bits, 2);
    put("model/model.safetensors", bytes);
  }

  /// Stores a 16-bit tensor as floats, which makes a checkpoint of two element types.
  void widen_tensor(const std::string& name) const {
    const std::string bytes = test::bytes_of(scratch.file("model/model.safetensors"));
    boost::json::object header;
    std::string data;
    for (const auto& [tensor_name, tensor] :
         model::parse_safetensors(std::as_bytes(std::span(bytes)), "model")) {
      const std::size_t begin = data.size();
      const bool wide = tensor_name == name;
      if (wide) {
        std::vector<float> values(tensor.elements());
        kvsim::widen(model::tensor_elem(tensor, name), tensor.data.data(), values.size(), values.data());
        data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      } else {
        data.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
      }
      header[tensor_name] = {{"dtype", wide ? "F32" : tensor.dtype},
                             {"shape", boost::json::value_from(tensor.shape)},
                             {"data_offsets", {begin, data.size()}}};
    }
    std::string text = boost::json::serialize(header);
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = text.size();
    put("model/model.safetensors",
        std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data);
  }

  CaptureOptions options(std::uint64_t max_new_tokens = 5) const {
    CaptureOptions options;
    options.model_dir = model();
    options.tokens_file = put("ids.txt", "10 20 30\n40 50 60 70\t80 90 100 110");
    options.max_new_tokens = max_new_tokens;
    options.output = scratch.file("run.h5");
    options.threads = 2;
    return options;
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(scratch.file("")))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  test::Scratch scratch;

 private:
  model::GoldenCheckpoint golden_;
};

CaptureResult capture(const CaptureOptions& options) {
  Progress progress;
  return run_capture(options, progress);
}

std::unique_ptr<trace::Source> captured(const CaptureOptions& options) {
  capture(options);
  return trace::open_trace(options.output);
}

std::vector<float> read(const trace::Source& source, trace::Tensor tensor, std::uint32_t layer,
                        std::uint32_t head, std::uint64_t first, std::uint64_t n) {
  std::vector<float> rows(n * source.header().model.head_dim);
  source.read(tensor, layer, head, first, n, rows);
  return rows;
}

/// Column statistics of a head by their definition, in double, from a trace with all attention rows.
struct ColumnReference {
  ColumnReference(const trace::Source& source, std::uint32_t layer, std::uint32_t head, std::uint64_t prompt)
      : sum(prompt), sum_squares(prompt) {
    const trace::Model& model = source.header().model;
    const std::uint64_t dim = model.head_dim;
    const std::vector<float> q = read(source, trace::Tensor::query, layer, head, 0, prompt),
                             k = read(source, trace::Tensor::key, layer, head / model.group(), 0, prompt);
    for (std::uint64_t i = 0; i < prompt; ++i) {
      std::vector<double> p(prompt);
      double total = 0;
      for (std::uint64_t j = 0; j <= i; ++j) {
        if (model.layer_window[layer] >= 0 && i - j >= static_cast<std::uint64_t>(model.layer_window[layer]))
          continue;
        double score = 0;
        for (std::uint64_t c = 0; c < dim; ++c) score += double{q[i * dim + c]} * double{k[j * dim + c]};
        total += p[j] = std::exp(score * model.attn_scale);
      }
      for (std::uint64_t j = 0; j <= i; ++j) {
        sum[j] += p[j] / total;
        sum_squares[j] += p[j] / total * p[j] / total;
      }
    }
  }
  std::vector<double> sum, sum_squares;
};

/// The message that refuses `options`; also checks that no file was left behind.
std::string problem(const Workplace& place, const CaptureOptions& options, ErrorKind kind) {
  const std::vector<std::string> before = place.files();
  try {
    capture(options);
  } catch (const Error& error) {
    CHECK(error.kind() == kind);
    CHECK(place.files() == before);
    return error.what();
  }
  return "accepted";
}

struct Tensors : model::RunObserver {
  void on_tensors(std::uint32_t, std::uint64_t, std::uint64_t, const Elements& q_in, const Elements& k_in,
                  const Elements& v_in) override {
    q.push_back(q_in.floats());
    k.push_back(k_in.floats());
    v.push_back(v_in.floats());
  }
  std::vector<std::vector<float>> q, k, v;
};

}  // namespace

TEST_CASE("a trace holds the tokens, tensors and passes of a run") {
  const Workplace place;
  CaptureOptions options = place.options(5);
  options.prefill_chunk = 4;
  options.elem = "f32";
  const CaptureResult result = capture(options);
  CHECK(result.prompt_tokens == 11);
  CHECK(result.new_tokens == 5);
  CHECK(result.file_bytes == fs::file_size(options.output));
  CHECK(result.notes.empty());

  const auto source = trace::open_trace(options.output);
  const trace::Header& header = source->header();
  REQUIRE(header.n_tokens() == 16);
  CHECK(std::vector<std::int32_t>(header.token_id.begin(), header.token_id.begin() + 11) ==
        std::vector<std::int32_t>{10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110});

  // Compared with the same tokens in one pass, every generated token is the most probable one, and every
  // tensor is stored.
  const model::GoldenCheckpoint& golden = place.golden();
  model::cpu::CpuRun run(golden.config, golden.weights, {16, Elem::f32, 1});
  Tensors expected;
  run.forward(header.token_id, expected);
  const std::vector<float> logits = run.logits(16);
  const std::size_t vocab = golden.config.vocab_size;
  for (std::size_t t = 10; t < 15; ++t) {
    const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(t * vocab);
    const auto best = std::max_element(begin, begin + static_cast<std::ptrdiff_t>(vocab));
    CHECK(header.token_id[t + 1] == best - begin);
    double sum = 0;
    for (std::size_t i = 0; i < vocab; ++i)
      sum += std::exp(double{begin[static_cast<std::ptrdiff_t>(i)]} - double{*best});
    CHECK(header.token_logprob[t + 1] == Approx(-std::log(sum)).margin(1e-4));
  }
  for (std::size_t t = 0; t < 11; ++t) CHECK(std::isnan(header.token_logprob[t]));
  for (std::uint32_t layer = 0; layer < 2; ++layer) {
    const auto same = [&](trace::Tensor tensor, std::uint32_t heads, const std::vector<float>& all) {
      for (std::uint32_t head = 0; head < heads; ++head) {
        const std::vector<float> got = read(*source, tensor, layer, head, 0, 16);
        for (std::size_t i = 0; i < got.size(); ++i) {
          if (std::abs(got[i] - all[head * got.size() + i]) > 1e-4F) return false;
        }
      }
      return true;
    };
    CHECK(same(trace::Tensor::query, 4, expected.q[layer]));
    CHECK(same(trace::Tensor::key, 2, expected.k[layer]));
    CHECK(same(trace::Tensor::value, 2, expected.v[layer]));
  }

  REQUIRE(header.passes.size() == 8);  // 4 + 4 + 3 prompt tokens, then 5 steps
  CHECK(header.passes[2].q_len == 3);
  CHECK(header.passes[2].past_len == 8);
  CHECK(header.passes[3].phase == trace::Phase::decode);
  CHECK(header.passes[7].begin == 15);
  for (std::size_t p = 0; p < 8; ++p) {
    CHECK(header.passes[p].dur_ns > 0);
    if (p > 0)
      CHECK(header.passes[p].start_ns >= header.passes[p - 1].start_ns + header.passes[p - 1].dur_ns);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      CHECK(header.layer_ns[2 * p + layer] > 0);
      CHECK(header.attn_ns[2 * p + layer] < header.layer_ns[2 * p + layer]);
    }
  }
  REQUIRE(header.segments.size() == 2);
  CHECK(header.segments[1].parent == 0);
  CHECK(header.segments[1].path_len == 11);
  CHECK(header.sequence_leaf == std::vector<std::uint32_t>{1});
  CHECK(header.token_flags[10] == 0);
  CHECK((header.token_flags[11] & trace::kFlagGenerated) != 0);
  CHECK(header.query_token.empty());
  CHECK(header.attention_token.empty());
}

TEST_CASE("the trace records the model's arithmetic") {
  const Workplace place("qwen3_qk_norm");
  const auto source = captured(place.options());
  const trace::Header& header = source->header();
  CHECK(header.model.model_type == "qwen3");
  CHECK(header.model.architecture == "Qwen3ForCausalLM");
  CHECK(header.model.qk_norm);
  CHECK(header.model.tied_embeddings);
  CHECK(header.model.attn_scale == 0.25);
  CHECK(header.model.inv_freq == model::rope_frequencies(place.golden().config.rope, 1));
  CHECK(header.model.weights_sha256 == place.golden().checkpoint.sha256());
  CHECK(header.model.config_json == test::bytes_of(place.model() + "/config.json"));
  CHECK(header.capture.source == "native-cpu");
  CHECK(header.capture.q_policy == "all");
  CHECK(header.capture.row_policy == "none");
  CHECK(header.tokenizer_sha256.size() == 64);
  CHECK(header.file_uuid.size() == 36);
}

TEST_CASE("bf16 checkpoints give bf16 traces, others f32, unless told otherwise") {
  CHECK(captured(Workplace("llama_tied").options())->header().elem == Elem::bf16);
  CHECK(captured(Workplace("llama_untied_f32").options())->header().elem == Elem::f32);
  CHECK(captured(Workplace("llama_attention_bias").options())->header().elem == Elem::f32);
  const Workplace place;
  CaptureOptions options = place.options();
  options.elem = "f16";
  CHECK(captured(options)->header().elem == Elem::f16);
}

TEST_CASE("a window of queries and of attention rows") {
  const Workplace place;
  CaptureOptions options = place.options();
  options.prefill_chunk = 4;  // the window begins inside a pass
  const auto all = captured(options);
  options.queries = parse_query_choice("window:5", "--queries");
  options.attention = parse_row_choice("window:2", "--attention");
  options.overwrite = true;
  const auto window = captured(options);
  CHECK(window->header().query_token == std::vector<std::uint64_t>{6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  CHECK(window->header().attention_token == std::vector<std::uint64_t>{9, 10, 11, 12, 13, 14, 15});
  for (std::uint32_t head = 0; head < 4; ++head)
    CHECK(read(*window, trace::Tensor::query, 1, head, 0, 10) ==
          read(*all, trace::Tensor::query, 1, head, 6, 10));

  options.queries = {.all = false, .window = 1000};  // longer than the prompt, so all
  options.attention = {RowChoice::Kind::all, 0};
  const auto wide = captured(options);
  CHECK(wide->header().query_token.empty());
  CHECK(wide->header().attention_token.size() == 16);
}

TEST_CASE("a sample of queries, and the column statistics of all") {
  const Workplace place(GENERATE("llama_untied_f32", "mistral_window"));
  CaptureOptions options = place.options();
  options.elem = "f32";
  options.attention.kind = RowChoice::Kind::all;
  const auto all = captured(options);
  CHECK_FALSE(all->has_column_statistics());  // every query is stored
  options.queries = parse_query_choice("window:2,sample:3", "--queries");
  options.sampling.seed = 5;
  options.prefill_chunk = GENERATE(1, 4, 512);
  options.overwrite = true;
  const auto slim = captured(options);
  const trace::Header& header = slim->header();
  const std::uint64_t prompt = 11;
  CHECK(header.capture.q_policy == "window:2,sample:3");
  CHECK(header.capture.seed == 5);
  CHECK(header.counted_tokens == prompt);
  std::vector<std::uint64_t> expected = chosen_queries(options.queries, prompt, 5);
  for (std::uint64_t token = prompt; token < header.n_tokens(); ++token) expected.push_back(token);
  CHECK(header.query_token == expected);
  const std::vector<float> rows = read(*slim, trace::Tensor::query, 1, 3, 0, expected.size());
  const std::uint64_t dim = header.model.head_dim;
  for (std::size_t row = 0; row < expected.size(); ++row) {
    const std::vector<float> own(rows.begin() + static_cast<std::ptrdiff_t>(row * dim),
                                 rows.begin() + static_cast<std::ptrdiff_t>((row + 1) * dim));
    const std::vector<float> other = read(*all, trace::Tensor::query, 1, 3, expected[row], 1);
    for (std::uint64_t i = 0; i < dim; ++i) CHECK(own[i] == Approx(other[i]).margin(1e-5));
  }

  for (std::uint32_t head = 0; head < header.model.n_q_heads; ++head) {
    std::vector<float> sum(prompt), squares(prompt);
    slim->read_column_statistics(1, head, sum, squares);
    const ColumnReference slow(*all, 1, head, prompt);
    for (std::uint64_t key = 0; key < prompt; ++key) {
      CHECK(sum[key] == Approx(slow.sum[key]).epsilon(1e-4));
      CHECK(squares[key] == Approx(slow.sum_squares[key]).epsilon(1e-4));
    }
  }
}

TEST_CASE("output weights are the checkpoint's, transposed by head") {
  const std::string variant = GENERATE("llama_tied", "llama_untied_f32", "llama_sharded_f32",
                                       "llama_attention_bias", "qwen3_qk_norm");
  const Workplace place(variant);
  CaptureOptions options = place.options(1);
  options.output_weights = true;
  options.elem = "f16";  // type of keys and values; weights keep their own
  const auto source = captured(options);
  const model::Weights& weights = place.golden().weights;
  CHECK(source->header().output_elem == weights.layers[0].o.elem);
  const trace::Model& model = source->header().model;
  const std::uint64_t dim = model.v_head_dim, hidden = model.hidden_size;
  std::vector<float> head_weights(dim * hidden), scratch;
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    const model::Linear& o = weights.layers[layer].o;
    REQUIRE((o.out == hidden && o.in == model.n_q_heads * dim));
    std::size_t different = 0;
    for (std::uint32_t head = 0; head < model.n_q_heads; ++head) {
      source->read_output_weights(layer, head, head_weights);
      for (std::uint64_t i = 0; i < hidden; ++i) {
        const float* row = o.rows(i, 1, scratch);
        for (std::uint64_t c = 0; c < dim; ++c)
          different += head_weights[c * hidden + i] == row[head * dim + c] ? 0 : 1;
      }
    }
    CHECK(different == 0);
  }
}

TEST_CASE("output weights of layers that differ in type are stored as floats") {
  const Workplace place("llama_tied");
  place.widen_tensor("model.layers.1.self_attn.o_proj.weight");
  CaptureOptions options = place.options(1);
  options.output_weights = true;
  const auto source = captured(options);
  CHECK(source->header().elem == Elem::bf16);
  CHECK(source->header().output_elem == Elem::f32);
  options.model_dir = place.golden().directory;
  options.overwrite = true;
  const auto narrow = captured(options);
  CHECK(narrow->header().output_elem == Elem::bf16);
  const trace::Model& model = source->header().model;
  std::vector<float> a(std::size_t{model.v_head_dim} * model.hidden_size), b(a.size());
  for (std::uint32_t layer = 0; layer < model.n_layers; ++layer) {
    for (std::uint32_t head = 0; head < model.n_q_heads; ++head) {
      source->read_output_weights(layer, head, a);
      narrow->read_output_weights(layer, head, b);
      CHECK(a == b);
    }
  }
}

TEST_CASE("output weights are stored only on request") {
  const Workplace place;
  CaptureOptions options = place.options(2);
  const auto lean = captured(options);
  CHECK_FALSE(lean->has_output_weights());
  options.output_weights = options.overwrite = true;
  CHECK(captured(options)->content_sha256() == lean->content_sha256());
}

TEST_CASE("token flags describe a token's text") {
  const Workplace place;
  CaptureOptions options = place.options(0);
  options.tokens_file.clear();
  options.prompt_file = place.put("prompt.txt", "a 7\n+.\u00e9<s>");  // two bytes make the accented letter
  const auto source = captured(options);
  const trace::Header& header = source->header();
  CHECK(header.flags_known == (trace::kFlagSpecial | trace::kFlagGenerated | trace::kFlagWhiteSpace |
                               trace::kFlagPunctuation | trace::kFlagDigit));
  CHECK(header.token_flags == std::vector<std::uint32_t>{trace::kFlagSpecial, 0, trace::kFlagWhiteSpace,
                                                         trace::kFlagDigit, trace::kFlagWhiteSpace,
                                                         trace::kFlagPunctuation, trace::kFlagPunctuation, 0,
                                                         0, trace::kFlagSpecial});
}

TEST_CASE("without a tokenizer only the flag for generated tokens is known") {
  const Workplace place;
  fs::remove(place.model() + "/tokenizer.json");
  const auto source = captured(place.options(2));
  const trace::Header& header = source->header();
  CHECK(header.flags_known == trace::kFlagGenerated);
  for (std::size_t t = 0; t < header.n_tokens(); ++t)
    CHECK(header.token_flags[t] == (t < 11 ? 0U : trace::kFlagGenerated));
}

TEST_CASE("a capture is reproducible except for threads and times") {
  const Workplace place;
  CaptureOptions options = place.options();
  options.overwrite = true;
  std::vector<std::string> contents;
  for (const unsigned threads : {1U, 2U, 8U}) {
    options.threads = threads;
    contents.push_back(captured(options)->content_sha256());
  }
  CHECK(contents[0].size() == 64);
  CHECK(contents[1] == contents[0]);
  CHECK(contents[2] == contents[0]);
}

TEST_CASE("generation stops after an end token, which is kept, unless told otherwise") {
  const Workplace place;
  CaptureOptions options = place.options(6);
  options.overwrite = true;
  const std::vector<std::int32_t> free = captured(options)->header().token_id;
  place.change_config("eos_token_id", {256, free[12]});  // the second generated token
  const std::size_t expected = free[11] == free[12] ? 12 : 13;
  const auto stopped = captured(options);
  CHECK(stopped->header().n_tokens() == expected);
  CHECK((stopped->header().token_flags[expected - 1] & trace::kFlagSpecial) != 0);
  options.ignore_eos = true;
  CHECK(captured(options)->header().token_id == free);
}

TEST_CASE("without new tokens there is only a prompt") {
  const Workplace place;
  const auto source = captured(place.options(0));
  CHECK(source->header().n_tokens() == 11);
  CHECK(source->header().segments.size() == 1);
  CHECK(source->header().sequence_leaf == std::vector<std::uint32_t>{0});
}

TEST_CASE("among equal logits the lowest id is chosen") {
  const Workplace place;
  place.fill_tensor("model.embed_tokens.weight", 0);  // tied: every logit is 0
  const auto source = captured(place.options(3));
  CHECK(std::vector<std::int32_t>(source->header().token_id.end() - 3, source->header().token_id.end()) ==
        std::vector<std::int32_t>{0, 0, 0});
  CHECK(source->header().token_logprob[12] == Approx(-std::log(257.0)));
}

TEST_CASE("weights that are not finite are refused") {
  const Workplace place;
  place.fill_tensor("model.layers.1.mlp.down_proj.weight", 0x7fc0);
  CHECK_THAT(problem(place, place.options(), ErrorKind::input), Contains("after token 10 are not finite"));
}

TEST_CASE("text in, text out") {
  const Workplace place;
  CaptureOptions options = place.options(4);
  options.tokens_file.clear();
  options.prompt_file = place.put("prompt.txt", "h\u00e9 <s>!");
  const CaptureResult result = capture(options);
  const auto source = trace::open_trace(options.output);
  const trace::Header& header = source->header();
  CHECK(result.prompt_tokens == 7);
  CHECK(header.token_id[0] == 256);
  CHECK(header.token_id[5] == 256);
  CHECK((header.token_flags[0] & trace::kFlagSpecial) != 0);
  CHECK(header.text_bytes.substr(0, header.text_offset[7]) == "<s>h\u00e9 <s>!");
  std::string generated;
  for (std::size_t t = 7; t < header.n_tokens(); ++t) {
    if (header.token_id[t] != 256) generated += static_cast<char>(header.token_id[t]);
  }
  CHECK(result.text == generated);
}

TEST_CASE("impossible requests are refused") {
  const Workplace place;
  CaptureOptions options = place.options();
  const auto usage = [&] { return problem(place, options, ErrorKind::usage); };
  const auto input = [&] { return problem(place, options, ErrorKind::input); };

  SECTION("prompt and tokens, or neither") {
    options.prompt_file = "x";
    CHECK_THAT(usage(), Contains("give a prompt, a file of token ids or a workload"));
    options.prompt_file.clear();
    options.tokens_file.clear();
    CHECK_THAT(usage(), Contains("give a prompt, a file of token ids or a workload"));
  }
  SECTION("more tokens than the context holds") {
    options.max_new_tokens = 118;
    CHECK_THAT(usage(), Contains("11 tokens and 118 new ones exceed") && Contains("128") &&
                            Contains("At most 117 fit"));
    options.max_new_tokens = ~0ULL;
    CHECK_THAT(usage(), Contains("At most 117 fit"));
    std::string ids;
    for (int i = 0; i < 129; ++i) ids += "1 ";
    options.tokens_file = place.put("long.txt", ids);
    CHECK_THAT(usage(), Contains("129 tokens") && Contains("128"));
  }
  SECTION("the whole context may be used") {
    options.max_new_tokens = 117;
    CHECK(captured(options)->header().n_tokens() == 128);
  }
  SECTION("unknown token ids") {
    options.tokens_file = place.put("bad.txt", "1 2 257");
    CHECK_THAT(input(), Contains("token 2") && Contains("257") && Contains("vocabulary of 257"));
    options.tokens_file = place.put("bad.json", "[1, -2]");
    CHECK_THAT(input(), Contains("bad.json token 1"));
    options.tokens_file = place.put("bad.txt", "1 -2");
    CHECK_THAT(input(), Contains("\"-2\" is not a token id"));
    options.tokens_file = place.put("bad.json", "[1, 2.0]");
    CHECK_THAT(input(), Contains("bad.json token 1"));
    options.tokens_file = place.put("bad.json", "[1, 2] 3");
    CHECK_THAT(input(), Contains("JSON"));
    options.tokens_file = place.put("bad.txt", "1 99999999999999999999");
    CHECK_THAT(input(), Contains("token 1"));
  }
  SECTION("no tokens") {
    options.tokens_file = place.put("none.txt", " \n");
    CHECK_THAT(input(), Contains("no tokens"));
    options.tokens_file = place.scratch.file("missing.txt");
    CHECK_THAT(input(), Contains("missing.txt"));
  }
  SECTION("a prompt that is not text") {
    options.tokens_file.clear();
    options.prompt_file = place.put("prompt.txt", "ab\xff");
    CHECK_THAT(input(), Contains("not UTF-8 at byte 2"));
  }
  SECTION("a tokenizer of another model") {
    options.tokens_file.clear();
    options.prompt_file = place.put("prompt.txt", "abc");
    std::string tokenizer = byte_tokenizer();
    for (std::size_t at = tokenizer.find("256"); at != std::string::npos; at = tokenizer.find("256", at))
      tokenizer.replace(at, 3, "999");
    place.put("model/tokenizer.json", tokenizer);
    CHECK_THAT(input(), Contains("token 0 of the prompt has id 999"));
  }
  SECTION("no tokenizer") {
    fs::remove(place.model() + "/tokenizer.json");
    CHECK(captured(options)->header().text_offset.empty());
    options.overwrite = true;
    options.tokens_file.clear();
    options.prompt_file = place.put("prompt.txt", "abc");
    CHECK_THAT(input(), Contains("no tokenizer.json") && Contains("--tokens"));
  }
  SECTION("an unsupported tokenizer loses the text, not the run") {
    place.put("model/tokenizer.json", R"({"model":{"type":"Unigram"}})");
    const CaptureResult result = capture(options);
    REQUIRE(result.notes.size() == 1);
    CHECK_THAT(result.notes[0], Contains("no text") && Contains("Unigram"));
  }
  SECTION("an existing trace is kept") {
    place.put("run.h5", "precious");
    CHECK_THAT(usage(), Contains("exists already") && Contains("--overwrite"));
    CHECK(test::bytes_of(options.output) == "precious");
  }
  SECTION("bad values") {
    options.elem = "bf61";
    CHECK_THAT(usage(), Contains("bf16"));
    options.elem = "auto";
    options.compute = "bf61";
    CHECK_THAT(usage(), Contains("bf16"));
    options.compute = "bf16";
    CHECK_THAT(usage(), Contains("computes in f32 only") && Contains("--device cuda"));
    options.device = "cuda";
    options.elem = "f16";
    CHECK_THAT(usage(), Contains("stored in bf16") && Contains("--elem f16"));
    options.device = "cpu";
    options.compute = "f32";
    CHECK_NOTHROW(capture(options));
    options.overwrite = true;
    options.prefill_chunk = 0;
    CHECK_THAT(usage(), Contains("--prefill-chunk"));
  }
  SECTION("no model") {
    options.model_dir = place.scratch.file("nowhere");
    CHECK_THAT(input(), Contains("nowhere/config.json"));
  }
  SECTION("no folder for the trace") {
    options.output = place.scratch.file("nowhere/run.h5");
    CHECK_THAT(input(), Contains("nowhere"));
  }
}

TEST_CASE("an interrupted run leaves no file") {
  const Workplace place;
  const CaptureOptions options = place.options();
  const std::vector<std::string> before = place.files();
  Progress progress;
  progress.stop = true;
  try {
    run_capture(options, progress);
    FAIL("not interrupted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::interrupted);
  }
  CHECK(place.files() == before);
}

TEST_CASE("progress counts tokens and ends with the run") {
  const Workplace place;
  Progress progress;
  run_capture(place.options(5), progress);
  CHECK(progress.total == 16);
  CHECK(progress.done == 16);
}

TEST_CASE("choices of rows") {
  CHECK(parse_row_choice("full", "--attention").kind == RowChoice::Kind::all);
  CHECK(parse_row_choice("none", "--attention").kind == RowChoice::Kind::none);
  CHECK(parse_row_choice("window:12", "--attention").window == 12);
  for (const char* text : {"all", "sample:3", "window", "window:", "window:0", "window:-1", "window:1x",
                           "window: 1", "", "window:99999999999999999999"})
    CHECK_THROWS_WITH(parse_row_choice(text, "--attention"), Contains("--attention"));
}

TEST_CASE("choices of queries") {
  for (const char* text : {"all", "window:12", "sample:7", "window:12,sample:7"})
    CHECK(query_choice_text(parse_query_choice(text, "--queries")) == text);
  CHECK(query_choice_text(parse_query_choice("sample:7,window:12", "--queries")) == "window:12,sample:7");
  for (const char* text :
       {"", "none", "window", "window:", "window:0", "sample:0", "window:-1", "window:1x", "window: 1", ",",
        "window:1,", "window:1,window:2", "sample:1,sample:2", "all,window:1", "window:99999999999999999999"})
    CHECK_THROWS_WITH(parse_query_choice(text, "--queries"), Contains("--queries"));

  using Positions = std::vector<std::uint64_t>;
  CHECK(chosen_queries({}, 3, 0) == Positions{0, 1, 2});
  CHECK(chosen_queries({.all = false, .window = 2}, 5, 0) == Positions{3, 4});
  CHECK(chosen_queries({.all = false, .window = 9}, 3, 0) == Positions{0, 1, 2});
  CHECK(chosen_queries({.all = false, .sample = 9}, 3, 0) == Positions{0, 1, 2});
  // One position of each of four strata of the 101 positions before the window, beginning at 0, 25, 50 and
  // 75.
  std::vector<std::uint64_t> times(101);
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    const Positions drawn = chosen_queries({.all = false, .window = 3, .sample = 4}, 104, seed);
    REQUIRE(drawn.size() == 7);
    for (std::uint64_t i = 0; i < 4; ++i) {
      REQUIRE(drawn[i] >= 101 * i / 4);
      REQUIRE(drawn[i] < 101 * (i + 1) / 4);
      ++times[drawn[i]];
    }
    REQUIRE(Positions(drawn.begin() + 4, drawn.end()) == Positions{101, 102, 103});
  }
  // Each position is chosen with probability 1/25 or 1/26: 200 or 192 times of 5000, with a standard
  // deviation below 14.
  CHECK(*std::min_element(times.begin(), times.end()) > 192 - 4 * 14);
  CHECK(*std::max_element(times.begin(), times.end()) < 200 + 4 * 14);
}

}  // namespace kvsim::capture::test_run_capture
