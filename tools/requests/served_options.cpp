#include "tools/requests/served_options.hpp"

#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/split.hpp"
#include "sim/base/suggest.hpp"
#include "tools/printing/front_end.hpp"

namespace kvsim::tools {

std::optional<std::uint64_t> plain_bits(const std::string& kind) {
  if (kind == "fp16" || kind == "bf16") return 16;
  if (kind == "fp32") return 32;
  return {};
}

policy::Composition whole_prompt(const std::string& kind, const std::string& option) {
  const policy::Registry& registry = front_end().policies();
  if (plain_bits(kind)) return policy::parse_composition("full", registry);
  const std::string name = kind.substr(0, kind.find('('));
  const bool preset = registry.find_preset(name) != nullptr;
  if (!preset && registry.find_policy(policy::Kind::representation, name) == nullptr) {
    std::vector<std::string> known = registry.names(policy::Kind::representation);
    known.insert(known.end(), {"fp16", "bf16", "fp32"});
    usage_error("unknown representation " + in_quotes(name), option, suggestion(name, known));
  }
  policy::Composition out = policy::parse_composition(preset ? kind : "full+" + kind, registry);
  if (out.eviction.spec->name != "full" || !out.representation || out.selection)
    usage_error(in_quotes(kind) + " is more than a representation", option,
                "Every token is stored: kvsim policy list names representations.");
  return out;
}

void add_served_options(Command command, ServedOptions& options) {
  command.add_required("--model", options.model, "MODEL", "As of kvsim cost estimate");
  command.add_required("--machine", options.machine, "MACHINE", "As of kvsim cost estimate");
  const Command engine = command.in_group("Engine");
  engine.add_option("--tensor-parallel", options.serving.tensor_parallel, "N",
                    "Devices that share every layer of an engine");
  engine.add_option("--kv", options.serving.kv, "KIND",
                    "How keys and values are stored: fp16, bf16 or fp32; of serve a representation, too");
  engine.add_option("--weight-bits", options.serving.weight_bits, "BITS",
                    "Of a parameter of matrices (default: as of kvsim cost estimate)");
  engine.add_option("--host-floor-ms", options.serving.host_floor_ms, "MS", "A step is never faster");
}

serving::ServedModel parse_served(const ServedOptions& options) {
  serving::ServedModel served;
  served.model = cost::find_model(options.model);
  served.machine = cost::find_machine(options.machine);
  served.serving = parse_serving(options.serving, served.model);
  return served;
}

std::uint64_t usual_memory(const serving::ServedModel& served, std::uint64_t step_tokens) {
  return cache_bytes_left(served, step_tokens, 0.9);
}

std::uint32_t small_count(std::uint64_t count, const std::string& option) {
  constexpr std::uint64_t kMost = 1 << 20;
  if (count == 0 || count > kMost)
    usage_error(std::to_string(count) + " is not from 1 to " + std::to_string(kMost), option);
  return static_cast<std::uint32_t>(count);
}

std::vector<std::uint64_t> parse_memories(const std::string& text, const serving::ServedModel& served,
                                          std::uint64_t step_tokens) {
  if (text.empty()) return {usual_memory(served, step_tokens)};
  std::vector<std::uint64_t> out;
  for (const std::string& item : comma_list(text)) out.push_back(parse_bytes(item, "--memory"));
  return out;
}

std::vector<double> parse_rates(const std::string& text) {
  std::vector<double> out;
  for (const std::string& item : comma_list(text)) {
    const std::optional<double> rate = number_of<double>(item);
    if (!rate || !(*rate > 0))
      usage_error(in_quotes(item) + " is no number above zero", "--rate", "Say it like 0.5,1,2.");
    out.push_back(*rate);
  }
  return out;
}

}  // namespace kvsim::tools
