#include "tests/validation/entries.hpp"

#include <charconv>
#include <limits>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/offload.hpp"

namespace kvsim::cost {

Entries& Entries::evidence(Evidence evidence) {
  evidence_ = evidence;
  return *this;
}

Entries& Entries::subject(Subject subject) {
  subject_ = subject;
  return *this;
}

Entries& Entries::of(std::string measurements, bool held_out) {
  measurements_ = std::move(measurements);
  held_out_ = held_out;
  return *this;
}

Entries& Entries::add(Status expected, std::string quantity, std::string_view published, std::string unit,
                      double ours, std::string why, double tolerance) {
  const std::optional<double> number = number_of<double>(published);
  if (!number) bug("a published number is not one", quantity);
  const std::size_t point = published.find('.');
  Check check;
  check.quantity = std::move(quantity);
  check.unit = std::move(unit);
  check.subject = subject_;
  check.published = *number;
  check.ours = ours;
  check.digits = point == std::string_view::npos ? 0 : static_cast<int>(published.size() - point - 1);
  check.tolerance = tolerance;
  check.evidence = evidence_;
  check.expected = expected;
  check.why = std::move(why);
  check.measurements = measurements_;
  check.held_out = held_out_;
  checks_.push_back(std::move(check));
  return *this;
}

Entries& Entries::exact(std::string quantity, std::string_view published, std::string unit, double ours,
                        std::string why) {
  return add(Status::exact, std::move(quantity), published, std::move(unit), ours, std::move(why), 0);
}

Entries& Entries::within(Tolerance tolerance, std::string quantity, std::string_view published,
                         std::string unit, double ours, std::string why) {
  return add(tolerance.missed ? Status::missed : Status::within, std::move(quantity), published,
             std::move(unit), ours, std::move(why), tolerance.share);
}

Entries& Entries::at_most(std::string quantity, std::string_view published, std::string unit, double ours,
                          std::string why) {
  return add(Status::at_most, std::move(quantity), published, std::move(unit), ours, std::move(why), 0);
}

Entries& Entries::mean(double aim, const std::string& name, const HeldOutMean& errors) {
  return at_most(name + "mean error of the " + std::to_string(errors.count) + " held out",
                 std::to_string(std::lround(100 * aim)), "%",
                 100 * errors.sum / static_cast<double>(errors.count), "the bound is our aim, stated before");
}

Entries& Entries::contradicted(std::string quantity, std::string_view published, std::string unit,
                               double ours, std::string why) {
  return add(Status::contradicted, std::move(quantity), published, std::move(unit), ours, std::move(why),
             0.05);
}

Entries& Entries::not_derivable(std::string quantity, std::string_view published, std::string unit,
                                std::string why) {
  return add(Status::not_derivable, std::move(quantity), published, std::move(unit),
             std::numeric_limits<double>::quiet_NaN(), std::move(why), 0);
}

std::string shortest(float number) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, number).ptr};
}

Model cache_shape(std::string name, std::uint64_t layers, std::uint64_t query_heads, std::uint64_t kv_heads,
                  std::uint64_t head_dim) {
  Model model;
  model.name = std::move(name);
  model.layers = layers;
  model.query_heads = query_heads;
  model.kv_heads = kv_heads;
  model.head_dim = model.value_dim = head_dim;
  return model;
}

Holding evenly(const Model& model, std::uint64_t stored_kv_heads, std::uint64_t tokens, std::uint64_t limit) {
  return {{{model.layers, {{stored_kv_heads, tokens, limit}}}}};
}

Machine ideal(double matrix_rate, double bandwidth) {
  Machine machine;
  machine.name = "ideal";
  machine.matrix_rate = machine.vector_rate = matrix_rate;
  machine.bandwidth = bandwidth;
  machine.memory = ~std::uint64_t{0};
  machine.ceilings.compute = machine.ceilings.memory = 1;
  machine.ceilings.attention_compute = machine.ceilings.attention_memory = 1;
  machine.ceilings.elementwise_memory = 1;
  machine.ceilings.elementwise_launch = 0;
  machine.ceilings.norm = 1000;
  machine.ceilings.launch = machine.ceilings.attention_launch = machine.ceilings.attention_sequence = 0;
  machine.ceilings.attention_rows = 1;
  return machine;
}

Serving serve(std::uint64_t prompt, std::uint64_t generate, std::uint64_t batch) {
  Serving serving;
  serving.prompt = prompt;
  serving.generate = generate;
  serving.batch = batch;
  return serving;
}

policy::ReadCount selection_reads(const Inputs& inputs, const std::string& selection, const Model& model,
                                  std::uint64_t layer, std::uint64_t tokens) {
  return read_count(*policy::parse_composition("full+" + selection, inputs.policies()).selection, model,
                    layer, tokens);
}

double bytes_read(const Inputs& inputs, const std::string& selection, const Model& model,
                  std::uint64_t tokens) {
  const double token = cache_bytes(model, 1) / static_cast<double>(model.layers);
  double bytes = 0;
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    const policy::ReadCount count = selection_reads(inputs, selection, model, layer, tokens);
    bytes += count.lane_tokens * token + count.index_bytes_read;
  }
  return bytes;
}

double cache_bytes(const Model& model, std::uint64_t tokens, std::uint64_t batch) {
  return static_cast<double>(full_cache_bytes(model, Layout{}, tokens, batch));
}

}  // namespace kvsim::cost
