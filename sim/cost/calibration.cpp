#include "sim/cost/calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "sim/base/error.hpp"
#include "sim/base/strict_json.hpp"
#include "sim/cost/latency.hpp"
#include "sim/cost/relative_fit.hpp"

namespace kvsim::cost {
namespace {

constexpr std::size_t kHeldOut = 5;  ///< one of five passes
constexpr std::size_t kFewest = 4;   ///< passes of a kind, to fit three ceilings each
/// Relative errors beyond it count linearly.
constexpr double kKnee = 0.05;
/// Weight of the squared log distance from the base: it matters only for parameters that the passes do not
/// determine.
constexpr double kHold = 1e-6;
/// Start of the search: seconds to start an operation, and operations in a layer's element-wise work.
constexpr double kCall = 1e-6, kElementwiseCalls = 6;
constexpr std::array<double, 5> kNorms{1, 1.5, 2, 3, 8};
constexpr std::array<std::uint64_t, 4> kAttentionRows{1, 16, 64, 128};

/// Parameters are ceilings of a machine whose rates are 1, so they are rates themselves.
using Parameters = std::vector<double Ceilings::*>;

/// Returns the parameters that the passes determine. Starting an operation and reading its weights cannot be
/// distinguished in passes of one model; nor starting attention and reading the cache in decode steps of
/// about one length; nor the starts of attention and of the rest where attention was not timed separately.
Parameters parameters_of(std::span<const Recording> recordings) {
  Parameters out{&Ceilings::compute, &Ceilings::memory, &Ceilings::attention_compute,
                 &Ceilings::attention_memory};
  std::set<std::uint64_t> sizes, lengths;
  bool apart = true;
  for (const Recording& recording : recordings) {
    sizes.insert(recording.model.streamed_parameters());
    for (const TimedPass& pass : recording.passes) {
      apart = apart && pass.attention_seconds > 0;
      if (pass.decodes()) lengths.insert(pass.past + 1);
    }
  }
  if (sizes.size() > 1) out.push_back(&Ceilings::launch);
  if (apart && *lengths.rbegin() >= 2 * *lengths.begin()) out.push_back(&Ceilings::attention_launch);
  return out;
}

struct Sample {
  const Recording* recording;
  TimedPass pass;
};

/// All passes: those to fit and those to hold out.
struct Samples {
  std::vector<Sample> fitted{}, held_out{};
};

Samples samples_of(std::span<const Recording> recordings) {
  Samples samples;
  std::array<std::size_t, 2> seen{};
  for (const Recording& recording : recordings)
    for (const TimedPass& pass : recording.passes) {
      const bool out = ++seen[pass.decodes() ? 1 : 0] % kHeldOut == 0;
      (out ? samples.held_out : samples.fitted).push_back({&recording, pass});
    }
  return samples;
}

void require_enough(const std::vector<Sample>& fitted) {
  constexpr const char* kHint =
      "Capture longer prompts, --prefill-chunk 64 records a pass per 64 tokens, or give several traces.";
  std::size_t prefill = 0, decode = 0;
  std::set<std::uint64_t> prefill_work, decode_work;
  for (const Sample& sample : fitted) {
    ++(sample.pass.decodes() ? decode : prefill);
    (sample.pass.decodes() ? decode_work : prefill_work).insert(sample.pass.tokens + sample.pass.past);
  }
  const auto require = [](const char* kind, std::size_t passes, std::size_t lengths) {
    if (passes < kFewest)
      usage_error(
          std::to_string(passes) + " " + kind + " passes to fit, " + std::to_string(kFewest) + " are needed",
          "calibration", kHint);
    if (lengths < 2) usage_error(std::string("all ") + kind + " passes see one length", "calibration", kHint);
  };
  require("prefill", prefill, prefill_work.size());
  require("decode", decode, decode_work.size());
}

PassTime predicted(const Machine& machine, const Sample& sample) {
  return pass_time(sample.recording->model, machine, sample.recording->serving, sample.pass.tokens,
                   sample.pass.past, sample.pass.logits);
}

/// Returns attention and the rest separately where they were recorded separately.
std::vector<Measurement> measurements_of(const std::vector<Sample>& samples) {
  double prefill_tokens = 0, decode_tokens = 0;
  for (const Sample& sample : samples)
    (sample.pass.decodes() ? decode_tokens : prefill_tokens) += static_cast<double>(sample.pass.tokens);
  std::vector<Measurement> out;
  for (const auto& [recording, pass] : samples) {
    const double weight =
        static_cast<double>(pass.tokens) / (pass.decodes() ? decode_tokens : prefill_tokens);
    if (pass.attention_seconds > 0) out.push_back({pass.attention_seconds, weight});
    out.push_back({pass.seconds - pass.attention_seconds, weight});
  }
  return out;
}

/// Returns the rates of the fastest passes, as if nothing else took time; the other ceilings are unchanged.
Ceilings start_of(const Machine& unit, const std::vector<Sample>& samples) {
  Ceilings start = unit.ceilings;
  start.compute = start.memory = start.attention_compute = start.attention_memory = 0;
  const auto raise = [](double& rate, double amount, double seconds) {
    if (seconds > 0) rate = std::max(rate, amount / seconds);
  };
  for (const Sample& sample : samples) {
    const PassTime time = predicted(unit, sample);
    OpTime all;
    for (const OpTime& op : time.ops) add(all, op, 1);
    const OpTime& attention = time[OpClass::attention];
    const double apart = sample.pass.attention_seconds;
    raise(start.compute, all.flops, sample.pass.seconds);
    raise(start.memory, all.bytes, sample.pass.seconds);
    raise(start.attention_compute, attention.flops, apart > 0 ? apart : sample.pass.seconds);
    raise(start.attention_memory, attention.bytes, apart > 0 ? apart : sample.pass.seconds);
  }
  return start;
}

class Fitter {
 public:
  Fitter(const Machine& base, Parameters parameters, const std::vector<Sample>& samples)
      : base_(base),
        parameters_(std::move(parameters)),
        samples_(samples),
        measured_(measurements_of(samples)),
        unit_(base) {
    unit_.matrix_rate = unit_.bandwidth = 1;
    unit_.ceilings = start_of(unit_, samples);
    for (const auto parameter : parameters_) start_.push_back(std::max(unit_.ceilings.*parameter, kShortest));
  }

  /// Returns the fitted machine, whose rates are 1, with the best of a few tile heights and then the best of
  /// a few norms.
  Machine run() {
    Candidate best = fit(unit_);
    for (const std::uint64_t rows : kAttentionRows) {
      Machine unit = best.machine;
      unit.ceilings.attention_rows = rows;
      keep_better(best, fit(unit));
    }
    for (const double norm : kNorms) {
      Machine unit = best.machine;
      unit.ceilings.norm = norm;
      keep_better(best, fit(unit));
    }
    return best.machine;
  }

 private:
  struct Candidate {
    Machine machine{};
    double loss = 0;
  };

  /// Element-wise operations keep their proportion to those of the matrices.
  Machine with(const Machine& unit, std::span<const double> values) const {
    Machine machine = unit;
    Ceilings& ceilings = machine.ceilings;
    for (std::size_t i = 0; i < values.size(); ++i) ceilings.*parameters_[i] = values[i];
    const Ceilings& base = base_.ceilings;
    ceilings.elementwise_memory = ceilings.memory * (base.elementwise_memory / base.memory);
    if (base.launch > 0)
      ceilings.elementwise_launch = ceilings.launch * (base.elementwise_launch / base.launch);
    return machine;
  }

  Candidate fit(const Machine& unit) const {
    const Prediction predict = [&](std::span<const double> values, std::span<double> out) {
      const Machine machine = with(unit, values);
      std::size_t next = 0;
      for (const Sample& sample : samples_) {
        const PassTime time = predicted(machine, sample);
        const double attention = sample.pass.attention_seconds > 0 ? time[OpClass::attention].seconds : 0;
        if (attention > 0) out[next++] = attention;
        out[next++] = time.seconds() - attention;
      }
    };
    const RelativeFit fit = fit_relative(start_, measured_, predict, kKnee, kHold);
    return {with(unit, fit.parameters), fit.loss};
  }

  static void keep_better(Candidate& best, Candidate next) {
    if (next.loss < best.loss) best = std::move(next);
  }

  static constexpr double kShortest = 1e-9;  ///< s; zero has no logarithm

  const Machine& base_;
  Parameters parameters_;
  const std::vector<Sample>& samples_;
  std::vector<Measurement> measured_;
  Machine unit_;
  std::vector<double> start_{};
};

/// Turns ceilings that are rates into shares of the machine's rates, or raises these rates.
Machine in_shares(const Machine& rates, const Machine& base) {
  Machine machine = rates;
  Ceilings& ceilings = machine.ceilings;
  machine.matrix_rate = std::max({base.matrix_rate, ceilings.compute, ceilings.attention_compute});
  machine.bandwidth =
      std::max({base.bandwidth, ceilings.memory, ceilings.attention_memory, ceilings.elementwise_memory});
  machine.vector_rate = base.vector_rate * (machine.matrix_rate / base.matrix_rate);
  for (double* share : {&ceilings.compute, &ceilings.attention_compute}) *share /= machine.matrix_rate;
  for (double* share : {&ceilings.memory, &ceilings.attention_memory, &ceilings.elementwise_memory})
    *share /= machine.bandwidth;
  return machine;
}

PassErrors errors_of(const Machine& machine, const std::vector<Sample>& samples) {
  PassErrors errors;
  double prefill = 0, decode = 0;
  for (const Sample& sample : samples) {
    const double error = std::abs(predicted(machine, sample).seconds() / sample.pass.seconds - 1);
    (sample.pass.decodes() ? decode : prefill) += error;
    ++(sample.pass.decodes() ? errors.decode_passes : errors.prefill_passes);
  }
  const auto mean = [](double sum, std::uint64_t n) {
    return n > 0 ? std::optional(sum / static_cast<double>(n)) : std::nullopt;
  };
  errors.prefill = mean(prefill, errors.prefill_passes);
  errors.decode = mean(decode, errors.decode_passes);
  errors.all = mean(prefill + decode, errors.prefill_passes + errors.decode_passes);
  return errors;
}

/// Lists the parameters that the passes changed as fitted to them, whatever the base's file says.
std::vector<Fit> fits_of(const Machine& base, const Parameters& moved) {
  Fit passes{
      .measurements = "passes of traces",
      .keys = {"compute", "memory", "norm", "attention_compute", "attention_memory", "attention_rows"}};
  const auto has = [&moved](double Ceilings::*parameter) {
    return std::find(moved.begin(), moved.end(), parameter) != moved.end();
  };
  if (has(&Ceilings::launch)) passes.keys.emplace_back("launch_us");
  if (has(&Ceilings::attention_launch)) passes.keys.emplace_back("attention_launch_us");
  std::vector<Fit> out;
  for (Fit fit : base.fitted) {
    std::erase_if(fit.keys, [&passes](const std::string& key) {
      return std::find(passes.keys.begin(), passes.keys.end(), key) != passes.keys.end();
    });
    if (!fit.keys.empty()) out.push_back(std::move(fit));
  }
  out.push_back(std::move(passes));
  return out;
}

}  // namespace

Machine unknown_machine(const std::string& name, std::uint64_t memory) {
  Machine machine;
  machine.name = name;
  machine.matrix_rate = machine.vector_rate = machine.bandwidth = 1;
  machine.memory = memory;
  machine.ceilings.launch = machine.ceilings.attention_launch = kCall;
  machine.ceilings.elementwise_launch = kElementwiseCalls * kCall;
  machine.ceilings.attention_sequence = 0;
  return machine;
}

Calibration calibrate(std::span<const Recording> recordings, const Machine& base) {
  const Samples samples = samples_of(recordings);
  require_enough(samples.fitted);
  Calibration calibration;
  const Parameters moved = parameters_of(recordings);
  calibration.machine = in_shares(Fitter(base, moved, samples.fitted).run(), base);
  calibration.machine.fitted = fits_of(base, moved);
  calibration.fitted = errors_of(calibration.machine, samples.fitted);
  calibration.held_out = errors_of(calibration.machine, samples.held_out);
  return calibration;
}

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
