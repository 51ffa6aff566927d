#include "analysis/study/config/study_fields.hpp"

#include "analysis/results/metrics/metric.hpp"

namespace kvsim::analysis {
namespace {

std::string last_name(const std::string& path) {
  return path.substr(path.rfind('.') + 1);  // npos + 1 is 0
}

Field declared(const char* path, ParamSpec param) {
  param.name = last_name(path);
  return {path, FieldShape::value, std::move(param), {}};
}

/// `fallback`: JSON.
Field shaped(FieldShape shape, const char* path, const char* fallback, const char* help,
             const char* shorthand = "") {
  return {path, shape, {.name = last_name(path), .fallback = fallback, .help = help}, shorthand};
}

Field text(const char* path, const char* fallback, const char* help, const char* form = "") {
  return declared(path, {.type = ParamType::text, .fallback = fallback, .help = help, .form = form});
}

Field required(const char* path, const char* help) {
  return declared(path, {.type = ParamType::text, .help = help, .required = true});
}

Field word(const char* path, const char* fallback, std::vector<std::string> choices, const char* help) {
  return declared(
      path, {.type = ParamType::choice, .fallback = fallback, .choices = std::move(choices), .help = help});
}

Field whole(const char* path, const char* fallback, const char* help, double min = 0, double max = kNoLimit) {
  return declared(path,
                  {.type = ParamType::count, .fallback = fallback, .min = min, .max = max, .help = help});
}

Field flag(const char* path, const char* fallback, const char* help) {
  return declared(path, {.type = ParamType::flag, .fallback = fallback, .help = help});
}

Field texts(const char* path, const char* fallback, const char* help, const char* form = "",
            std::vector<std::string> choices = {}) {
  return declared(path, {.type = ParamType::texts,
                         .fallback = fallback,
                         .choices = std::move(choices),
                         .help = help,
                         .form = form});
}

std::vector<std::string> metric_keys() {
  std::vector<std::string> out;
  for (const Metric& metric : metrics()) out.push_back(metric.key);
  return out;
}

}  // namespace

const std::vector<Field>& study_fields() {
  using enum FieldShape;
  static const std::vector<Field> all = {
      text("name", "", "what the folder is called without -o; empty: the study file's own name"),
      text("title", "", "heading of the report; empty: the name"),

      shaped(sections, "traces", "[]", "recorded runs to study; a text is a pattern of files", "files"),
      required("traces[].files", "a file or a pattern such as runs/*.h5"),
      text("traces[].name", "", "what results call it; empty: the file's name without its ending"),
      text("traces[].workload", "", "kind of prompt, when the trace does not say or says it wrongly"),
      text("traces[].sha256", "", "content the file must have (kvsim trace info shows it)"),

      shaped(section, "capture", "null",
             "a model to run on prompts first; its traces belong to the study too"),
      required("capture.model", "folder with config.json, safetensors and tokenizer.json, or a GGUF file"),
      shaped(sections, "capture.workloads", "[]", "prompts to make, as kvsim workload does", "kind"),
      required("capture.workloads[].kind", "such as needle (kvsim workload --help)"),
      whole("capture.workloads[].context", "500", "tokens of each prompt", 1, 4194304),
      whole("capture.workloads[].count", "1", "prompts", 1, 100000),
      whole("capture.workloads[].seed", "1", "same seed, same prompts"),
      whole("capture.workloads[].facts", "4", "facts to hide, values of a key, questions", 1, 128),
      whole("capture.workloads[].hops", "1", "copies between a value and what is asked for", 0, 8),
      whole("capture.workloads[].examples", "0", "short tasks with their answers before each prompt", 0, 4),
      word("capture.workloads[].style", "pairs", {"pairs", "sentences", "ruler"}, "how facts are written"),
      text("capture.workloads[].text", "", "file with text for the contexts; empty: the built-in one"),
      shaped(sections, "capture.prompts", "[]",
             "prompts of your own: text files, or JSON Lines (traces/workloads/README.md)", "files"),
      required("capture.prompts[].files", "a file or a pattern"),
      text("capture.prompts[].name", "", "what results call it; empty: the file's name without its ending"),
      text("capture.prompts[].workload", "", "kind of prompt"),
      text("capture.prompts[].sha256", "", "content the file must have (sha256sum)"),
      whole("capture.max_new_tokens", "64", "tokens to generate, greedily"),
      flag("capture.ignore_eos", "false", "generate on past an end-of-text token"),
      text("capture.queries", "all", "queries to store", "all, window:W, sample:K"),
      text("capture.attention", "none", "attention rows to store", "none, window:W, full"),
      flag("capture.output_weights", "false", "store the attention output projections"),
      word("capture.elem", "auto", {"auto", "f32", "bf16", "f16"}, "type of stored tensors and of the cache"),
      whole("capture.prefill_chunk", "512", "prompt tokens per pass", 1),
      flag("capture.keep_traces", "true",
           "keep the traces; false: each is removed once its tasks have finished, and captured again if more "
           "is "
           "asked of it"),

      texts(
          "loops", "open",
          "open: policies are replayed on recorded runs; closed: the model of `capture` answers its prompts "
          "through the cache of each policy",
          "", {"open", "closed"}),
      shaped(section, "evaluate", "{}", "the closed loop, as kvsim evaluate runs it"),
      word("evaluate.mode", "both", {"teacher", "greedy", "both"},
           "all caches are fed the same tokens, or each generates its own"),
      whole("evaluate.max_new_tokens", "8", "tokens to generate", 1, 1048576),
      word("evaluate.force", "answer", {"answer", "full"},
           "tokens of teacher mode: those of the expected answer, or of what the full cache generates"),

      shaped(sections, "policies", R"(["all", "oracles"])", "what to evaluate; [] for analyses alone",
             "policy"),
      required("policies[].policy", "as kvsim replay --policy: a composition, all, oracles, h2o*"),
      text("policies[].params", "", "what it must come to with every parameter (results.csv shows it)"),
      texts("budgets", "10%,25%,50%", "as kvsim replay --budget: 128, 25%, 64MiB"),
      declared("seeds", {.type = ParamType::counts,
                         .fallback = "0",
                         .max = kNoLimit,
                         .help = "of random policies; each is a task of its own"}),
      texts("cuts", "",
            "where the prompt ends for policies; empty: prompt, and question of traces that know their "
            "context",
            "prompt, question, a number of tokens"),
      flag("bounds", "true", "the least attention loss over all splits, beside what policies lose"),
      texts("scopes", "all,layer", "rows per model, layer, lane, measured step", "",
            {"all", "layer", "head", "step"}),
      texts("metrics", "evidence_loss,peak_loss,attention_loss,output_error,r,isr,oracle_cosine",
            "what the statistics speak of", "numbers of results.csv", metric_keys()),
      shaped(sections, "analyses", "[]", "as kvsim analyze; a text is a kind", "kind"),
      required("analyses[].kind", "such as hash (kvsim analyze --help)"),
      text("analyses[].table", "", "name of its table; empty: the kind"),
      shaped(anything, "analyses[].*", "null",
             "a setting of the kind, such as bits; a list or as typed there"),

      shaped(section, "statistics", "{}", "means over traces, differences and ranks"),
      whole("statistics.resamples", "2000", "of the bootstrap", 100, 100000),
      declared("statistics.confidence", {.type = ParamType::real,
                                         .fallback = "0.95",
                                         .min = 0.5,
                                         .max = 0.999,
                                         .help = "of the intervals"}),
      whole("statistics.seed", "0", "of the resampling"),
      declared(
          "statistics.least_full",
          {.type = ParamType::real,
           .fallback = "0.9",
           .min = 0,
           .max = 1,
           .help = "share of a workload's prompts that the full cache must answer right; policies are not "
                   "ranked by answers where it does not"}),
      text("machine", "",
           "price the policies on this machine: a name of the catalogue, or a file with a slash in its path; "
           "empty: the study says what their rules read, no bytes and seconds"),
      text("model", "", "the model to price, alike; empty: that of capture"),
      declared("price_prompts",
               {.type = ParamType::counts,
                .fallback = "",
                .min = 1,
                .max = kNoLimit,
                .help = "tokens of the prompts to price; empty: the longest that is studied, and the longest "
                        "that the model takes, at most 131072"}),
      flag("report", "true", "draw figures and write report.html"),
      shaped(ignored, "inputs", "null", "SHA-256 of what the study read; kvsim writes it for --resume"),
      shaped(ignored, "result", "null", "what the study found; kvsim writes it and never reads it as a wish"),
  };
  return all;
}

}  // namespace kvsim::analysis
