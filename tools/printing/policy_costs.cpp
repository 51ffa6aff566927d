#include "tools/printing/policy_costs.hpp"

#include "analysis/cost/reference_layer.hpp"
#include "analysis/results/numbers.hpp"
#include "policies/api/composition.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"

namespace kvsim::tools {
namespace {

using policy::Cost;
using policy::PolicySpec;
using policy::Work;

using analysis::kReferenceLayer;
/// Bytes of a token's key and value in one lane.
constexpr std::uint64_t kLaneToken =
    (kReferenceLayer.head_dim + kReferenceLayer.value_dim) * kReferenceLayer.element_bytes;

/// The policy with its defaults as a part; what follows an eviction states its own cost.
policy::Part part_of(const PolicySpec& spec, const policy::Registry& registry) {
  switch (spec.kind()) {
    case policy::Kind::eviction:
      return parse_composition(spec.name, registry).eviction;
    case policy::Kind::allocation:
      return parse_composition("snapkv+" + spec.name, registry).allocation;
    case policy::Kind::representation:
      return *parse_composition("full+" + spec.name, registry).representation;
    case policy::Kind::selection:
      return *parse_composition("full+" + spec.name, registry).selection;
    case policy::Kind::replacement:
      break;
  }
  bug("a kind of part that nothing states costs of", spec.name);
}

std::string percent(double share) {
  return analysis::rounded_text(100 * share, 2) + " %";
}

/// `count` with three digits and a prefix: "1.07 GFLOP", "40 operations". A unit that is a word is separated
/// from its prefix.
std::string scaled(double count, const std::string& unit) {
  const char* prefixes[] = {"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  for (; count >= 1000 && prefix + 1 < std::size(prefixes); ++prefix) count /= 1000;
  const bool word = unit.size() > 4 && prefix > 0;
  return analysis::rounded_text(count, count < 10    ? 2
                                       : count < 100 ? 1
                                                     : 0) +
         " " + prefixes[prefix] + (word ? " " : "") + unit;
}

bool is_any(const Work& work) {
  return work.flops + work.ops + work.bytes > 0;
}

std::string work_text(const policy::Work& work) {
  std::vector<std::string> out;
  if (work.flops > 0) out.push_back(scaled(work.flops, "FLOP"));
  if (work.ops > 0) out.push_back(scaled(work.ops, "operations"));
  if (work.bytes > 0) out.push_back(scaled(work.bytes, "B") + " of traffic");
  return out.empty() ? "nothing" : joined(out, ", ");
}

std::string rows_sentence(const Cost& cost) {
  const std::string rows = analysis::prompt_rows_text(cost);
  return "Reads " + (rows == "all" ? rows : "the " + rows) +
         " attention rows of the prompt, which fused kernels do not give out.";
}

/// Memory traffic per held token beside keys and values: attention rows, written and read, and the rule's own
/// traffic.
double traffic_share(const Cost& cost) {
  const double rows =
      cost.decode_rows
          ? 2.0 * static_cast<double>(kReferenceLayer.query_heads * kReferenceLayer.element_bytes)
          : 0;
  return (rows + cost.step_slot.bytes) / static_cast<double>(kReferenceLayer.kv_heads * kLaneToken);
}

std::string slot_text(const Cost& cost) {
  std::vector<std::string> out;
  const auto add = [&](std::uint64_t bytes, const char* where) {
    if (bytes > 0) out.push_back(std::to_string(bytes) + where);
  };
  add(cost.metadata.lane_slot, " B per slot and KV head");
  add(cost.metadata.layer_slot, " B per slot of a layer");
  add(cost.metadata.lane, " B per KV head");
  add(cost.metadata.layer, " B per layer");
  return joined(out, " and ");
}

std::string step_text(const Cost& cost) {
  if (cost.appends) return "only appended";
  const double traffic = traffic_share(cost);
  return traffic > 0 ? "reads " + percent(traffic) + " more" : "no more to read";
}

/// Bits that a representation with its defaults takes for a number of the reference prompt.
std::string bits_text(const PolicySpec& spec, const policy::Registry& registry) {
  const policy::Composition composition = parse_composition("full+" + spec.name, registry);
  const policy::StorageShape shape{kReferenceLayer.kv_heads, kReferenceLayer.head_dim,
                                   kReferenceLayer.value_dim, 8 * kReferenceLayer.element_bytes};
  const std::uint64_t numbers = kReferenceLayer.prompt * shape.n_lanes * (shape.key_dim + shape.value_dim);
  const double bits =
      static_cast<double>(composition.representation->ledger(shape, kReferenceLayer.prompt, 0).bits());
  return analysis::rounded_text(bits / static_cast<double>(numbers), 3);
}

/// What making, reading and merging stored numbers takes.
std::vector<std::string> representation_sentences(const PolicySpec& spec, const policy::Registry& registry) {
  const Cost cost = part_of(spec, registry).cost(kReferenceLayer);
  std::vector<std::string> out{"Takes " + bits_text(spec, registry) + " bits per number where " +
                               std::to_string(kReferenceLayer.prompt) + " tokens are held in " +
                               std::to_string(kReferenceLayer.kv_heads) + " KV heads of " +
                               std::to_string(kReferenceLayer.head_dim) + "."};
  if (const Work& read = cost.read_number; read.flops + read.ops > 0)
    out.push_back("Reading a number that is not stored as it comes: " + work_text(read) +
                  ", within attention.");
  if (cost.prompt_rows > 0) out.push_back(rows_sentence(cost));
  if (is_any(cost.prompt)) out.push_back("Prompt: " + work_text(cost.prompt) + ".");
  const auto token = [&](const char* which, const Work& once, const Work& slot) {
    if (is_any(once) || is_any(slot))
      out.push_back(std::string(which) + ": " + work_text(once) +
                    (is_any(slot) ? "; per token held " + work_text(slot) : "") + ".");
  };
  token("Generated token", cost.step, cost.step_slot);
  token("Generated token that makes another leave", cost.leaving, cost.leaving_slot);
  out.push_back("These are of " + cost_setting() + ", with its defaults.");
  return out;
}

/// What a layer behind the dense ones reads of the reference prompt, and what its index takes.
policy::ReadCount read_count(const PolicySpec& spec, const policy::Registry& registry) {
  return part_of(spec, registry).reads(kReferenceLayer, kReferenceLayer.n_layers / 2, kReferenceLayer.prompt);
}

/// Bytes as a share of keys and values of the reference prompt.
double share_of_prompt(double bytes) {
  return bytes / static_cast<double>(kReferenceLayer.prompt * kReferenceLayer.kv_heads * kLaneToken);
}

std::string read_share(const policy::ReadCount& count) {
  return percent(count.lane_tokens / static_cast<double>(kReferenceLayer.prompt) +
                 share_of_prompt(count.index_bytes_read));
}

std::vector<std::string> selection_sentences(const PolicySpec& spec, const policy::Registry& registry) {
  const policy::ReadCount count = read_count(spec, registry);
  std::vector<std::string> out{"A query head reads " + analysis::rounded_text(count.head_tokens, 1) + " of " +
                               std::to_string(kReferenceLayer.prompt) +
                               " stored tokens; the query heads of a KV head together at most " +
                               analysis::rounded_text(count.lane_tokens, 1) + "."};
  if (count.index_bytes > 0)
    out.push_back("The index takes " + percent(share_of_prompt(count.index_bytes)) +
                  " of the bytes of keys and values, and choosing reads " +
                  percent(share_of_prompt(count.index_bytes_read)) + " of these bytes at a step.");
  out.push_back("These are of " + cost_setting() + ", with its defaults.");
  return out;
}

/// Whether its costs follow from its defaults; those of a second pass do, which only its scores need.
bool has_price(const PolicySpec& spec) {
  return spec.needs.second_pass || complete(spec);
}

}  // namespace

std::string cost_setting() {
  return "a layer of " + std::to_string(kReferenceLayer.query_heads) + " query heads and " +
         std::to_string(kReferenceLayer.kv_heads) + " KV heads of " +
         std::to_string(kReferenceLayer.head_dim) + " (as in Llama-3-8B), a prompt of " +
         std::to_string(kReferenceLayer.prompt) + " tokens, a budget of " +
         std::to_string(kReferenceLayer.budget);
}

std::vector<std::string> cost_sentences(const PolicySpec& spec, const policy::Registry& registry) {
  if (spec.kind() == policy::Kind::replacement) return {};
  if (spec.is_oracle())
    return {"It has none: it knows the future, and nothing that serves requests can run it."};
  if (!has_price(spec)) {
    const char* const before = spec.kind() == policy::Kind::eviction     ? ""
                               : spec.kind() == policy::Kind::allocation ? "snapkv+"
                                                                         : "full+";
    return {std::string("They depend on parameters without a default: kvsim cost estimate --policy '") +
            before + spec.name + "(...)'."};
  }
  if (spec.kind() == policy::Kind::representation) return representation_sentences(spec, registry);
  if (spec.kind() == policy::Kind::selection) return selection_sentences(spec, registry);
  const bool eviction = spec.kind() == policy::Kind::eviction;
  const Cost cost = part_of(spec, registry).cost(kReferenceLayer);
  std::vector<std::string> out;
  if (const std::string slots = slot_text(cost); !slots.empty())
    out.push_back("Keeps " + slots + "; keys and values take " + std::to_string(kLaneToken) +
                  " per slot and KV head.");
  if (cost.scratch_bytes > 0)
    out.push_back("Holds " + bytes_text(cost.scratch_bytes) + " while it looks at the prompt.");
  if (cost.prompt_rows > 0) out.push_back(rows_sentence(cost));
  if (cost.extra_prefills > 0)
    out.push_back("Runs " + analysis::rounded_text(cost.extra_prefills) +
                  " more prefill for a request that it measures.");
  if (cost.repeated_at_once > 0)
    out.push_back("Reads the whole prompt once more, behind itself, " +
                  std::to_string(cost.repeated_at_once) + " tokens at once, before it lets go of any.");
  if (is_any(cost.prompt))
    out.push_back("Prompt" + std::string(cost.streams ? ", a step per token: " : ": ") +
                  work_text(cost.prompt) + ".");
  if (eviction && cost.appends) out.emplace_back("Generated tokens are only appended.");
  if (eviction && !cost.appends)
    out.push_back(
        "Generated token: " + work_text(cost.step) + "; per token held " + work_text(cost.step_slot) +
        (cost.decode_rows ? " and the rows of attention, written and read" : "") +
        (traffic_share(cost) > 0
             ? ", in all " + percent(traffic_share(cost)) + " of what reading its keys and values takes."
             : "."));
  if (out.empty()) return {"Nothing beside exact attention over what is held."};
  out.push_back("These are of " + cost_setting() + ", with its defaults.");
  return out;
}

std::string cost_table(const policy::Registry& registry) {
  std::string out =
      "| policy | keeps beside keys and values | prompt rows | scratch | prompt | generated tokens |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const PolicySpec& spec : registry.policies()) {
    if (!spec.cost || !has_price(spec) || spec.kind() == policy::Kind::representation) continue;
    const Cost cost = part_of(spec, registry).cost(kReferenceLayer);
    const std::string more = cost.extra_prefills > 0     ? "; one more prefill"
                             : cost.repeated_at_once > 0 ? "; a second pass"
                             : cost.streams              ? "; a step per token"
                                                         : "";
    out += "| `" + spec.name + "`" + (spec.kind() == policy::Kind::allocation ? " (allocation)" : "") +
           " | " + slot_text(cost) + " | " + (cost.prompt_rows > 0 ? analysis::prompt_rows_text(cost) : "") +
           " | " + (cost.scratch_bytes > 0 ? bytes_text(cost.scratch_bytes) : "") + " | " +
           work_text(cost.prompt) + more + " | " +
           (spec.kind() == policy::Kind::allocation ? "" : step_text(cost)) + " |\n";
  }
  return out;
}

std::string selection_cost_table(const policy::Registry& registry) {
  std::string out =
      "| selection | tokens per query head | per KV head, at most | index | index read | read in all, at "
      "most |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  const auto share = [](double bytes) { return bytes > 0 ? percent(share_of_prompt(bytes)) : std::string(); };
  for (const PolicySpec& spec : registry.policies()) {
    if (spec.kind() != policy::Kind::selection || !complete(spec)) continue;
    const policy::ReadCount count = read_count(spec, registry);
    out += "| `" + spec.name + "` | " + analysis::rounded_text(count.head_tokens, 1) + " | " +
           analysis::rounded_text(count.lane_tokens, 1) + " | " + share(count.index_bytes) + " | " +
           share(count.index_bytes_read) + " | " + read_share(count) + " |\n";
  }
  return out;
}

std::string representation_cost_table(const policy::Registry& registry) {
  std::string out =
      "| representation | bits per number | reading a number | prompt | generated token | one that makes "
      "another "
      "leave |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  const auto per_token = [](const Work& once, const Work& slot) {
    const Work all = once + static_cast<double>(kReferenceLayer.budget) * slot;
    return is_any(all) ? work_text(all) : "";
  };
  for (const PolicySpec& spec : registry.policies()) {
    if (spec.kind() != policy::Kind::representation || !complete(spec)) continue;
    const Cost cost = part_of(spec, registry).cost(kReferenceLayer);
    const std::string rows =
        cost.prompt_rows > 0 ? "; reads rows: " + analysis::prompt_rows_text(cost) : std::string();
    out += "| `" + spec.name + "` | " + bits_text(spec, registry) + " | " +
           (cost.read_number.flops + cost.read_number.ops > 0 ? work_text(cost.read_number) : "") + " | " +
           work_text(cost.prompt) + rows + " | " + per_token(cost.step, cost.step_slot) + " | " +
           per_token(cost.leaving, cost.leaving_slot) + " |\n";
  }
  return out;
}

}  // namespace kvsim::tools
