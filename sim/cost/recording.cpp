#include "sim/cost/recording.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/error.hpp"
#include "sim/base/strict_json.hpp"

namespace kvsim::cost {
namespace {

constexpr const char* kCapture = "kvsim capture records times and the model's config.json";

/// Returns the bits of the checkpoint's weights, which the run read as they are stored, or the bits of the
/// cache if the trace does not say.
double weight_bits(const trace::Header& header, const std::string& where) {
  constexpr std::size_t kMaxValues = 1 << 16;
  const boost::json::value document =
      parse_strict_json(header.model.config_json, where + " config.json", kMaxValues);
  const JsonObject config(document, where + " config.json");
  const std::string dtype = config.text_or("torch_dtype", config.text_or("dtype", ""));
  if (dtype.empty()) return header.elem == Elem::f32 ? 32 : 16;
  return dtype == "float32" ? 32 : 16;
}

Serving serving_of(const trace::Header& header, const std::string& where) {
  const bool floats = header.capture.compute_dtype == "f32";
  Serving serving;
  serving.prompt = 1;
  serving.runtime.weight_bits = weight_bits(header, where);
  serving.runtime.activation_bytes = floats ? 4 : 2;
  serving.layout.storage.element_bits = floats ? 32 : 16;
  return serving;
}

/// kvsim's own captures compute logits only where a token is chosen; other captures do after every pass.
bool has_logits(const trace::Header& header, std::size_t pass) {
  if (header.capture.source != "native-cpu") return true;
  return pass + 1 < header.passes.size() && header.passes[pass + 1].phase == trace::Phase::decode;
}

TimedPass timed_pass(const trace::Header& header, std::size_t index, const std::string& where) {
  constexpr double kNanosecond = 1e-9;
  const trace::Pass& pass = header.passes[index];
  TimedPass timed{.tokens = pass.q_len,
                  .past = pass.past_len,
                  .logits = has_logits(header, index),
                  .seconds = kNanosecond * static_cast<double>(pass.dur_ns)};
  if (!(timed.seconds > 0))
    input_error("pass " + std::to_string(index) + " took no time", where + " /passes/dur_ns", kCapture);
  if (header.attn_ns.empty()) return timed;
  const auto first = header.attn_ns.begin() + static_cast<std::ptrdiff_t>(index * header.model.n_layers);
  timed.attention_seconds = kNanosecond * std::accumulate(first, first + header.model.n_layers, 0.0);
  if (!(timed.attention_seconds > 0 && timed.attention_seconds < timed.seconds))
    input_error("attention of pass " + std::to_string(index) + " took " +
                    (timed.attention_seconds > 0 ? "longer than the pass" : "no time"),
                where + " /timing/attn_ns", kCapture);
  return timed;
}

}  // namespace

Recording recording_of(const trace::Header& header, const std::string& where) {
  if (header.model.config_json.empty())
    input_error("the trace does not hold its model's config.json", where, kCapture);
  const bool timed = std::any_of(header.passes.begin(), header.passes.end(),
                                 [](const trace::Pass& pass) { return pass.dur_ns != 0; });
  if (!timed) input_error("the trace holds no times of its passes", where, kCapture);
  Recording recording{.model = parse_model(header.model.config_json, where + " config.json"),
                      .serving = serving_of(header, where)};
  // The file of quantised weights says what they take.
  if (recording.model.weight_bits != 16) recording.serving.runtime.weight_bits.reset();
  for (std::size_t pass = 0; pass < header.passes.size(); ++pass)
    recording.passes.push_back(timed_pass(header, pass, where));
  return recording;
}

}  // namespace kvsim::cost
