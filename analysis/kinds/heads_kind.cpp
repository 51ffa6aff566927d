// Sinks, locality and entropy of every query head.
#include "analysis/kinds/kind.hpp"
#include "sim/inspect/head_attention.hpp"

namespace kvsim::analysis {
namespace {

std::vector<std::vector<Value>> measure_heads(const Measurement& of) {
  sim::HeadStudy study;
  study.rows = of.settings.count("rows");
  study.sinks = of.settings.count("sinks");
  study.local = of.settings.count("local");
  study.threads = of.threads;
  const sim::HeadsFound found = sim::head_attention(of.sequence, study, of.progress);
  const std::uint64_t heads = of.sequence.model().n_q_heads;
  std::vector<std::vector<Value>> rows;
  for (std::uint64_t i = 0; i < found.heads.size(); ++i) {
    const sim::HeadAttention& head = found.heads[i];
    rows.push_back({of.trace, i / heads, i % heads, found.rows, head.sink, head.local, head.entropy,
                    value_of(head.entropy_share), head.distance, head.largest});
  }
  return rows;
}

}  // namespace

Kind heads_kind() {
  return {
      .name = "heads",
      .summary = "Where each query head looks: sinks, locality, entropy",
      .source = "attention maps of XKV, HashEvict and StreamingLLM",
      .settings =
          {
              {.name = "rows",
               .fallback = "64",
               .max = kNoLimit,
               .help = "Last prompt rows to look at; rows of generated tokens come besides"},
              {.name = "sinks", .fallback = "4", .max = kNoLimit, .help = "First positions of the sequence"},
              {.name = "local",
               .fallback = "32",
               .max = kNoLimit,
               .help = "Last positions, up to the row's own"},
          },
      .columns =
          {
              {"trace", "", "trace file, as given"},
              {"layer", "", "layer"},
              {"head", "", "query head within the layer"},
              {"rows", "rows", "attention rows that the means are over"},
              {"sink", "share", "attention on the first positions"},
              {"local", "share", "attention on the last positions"},
              {"entropy", "bits", "entropy of the attention"},
              {"entropy_share", "share", "entropy / log2(positions the row sees)"},
              {"distance", "tokens", "mean distance to what is attended"},
              {"largest", "share", "largest attention on one position"},
          },
      .notes = {"Means over rows: the last of the prompt, and those of generated tokens."},
      .measure = measure_heads};
}

}  // namespace kvsim::analysis
