#include "analysis/study/config/study_fields.hpp"

namespace kvsim::analysis {

const std::vector<Field>& study_fields() {
  using enum FieldType;
  static const std::vector<Field> all = {
      {"name", text, "\"\"", "", "what the folder is called without -o; empty: the study file's own name"},
      {"title", text, "\"\"", "", "heading of the report; empty: the name"},

      {"traces", sections, "[]", "", "recorded runs to study; a text is a pattern of files", 0, 0, "files"},
      {"traces[].files", text, "", "", "a file or a pattern such as runs/*.h5"},
      {"traces[].name", text, "\"\"", "", "what results call it; empty: the file's name without its ending"},
      {"traces[].workload", text, "\"\"", "",
       "kind of prompt, when the trace does not say or says it wrongly"},
      {"traces[].sha256", text, "\"\"", "", "content the file must have (kvsim trace info shows it)"},

      {"capture", section, "null", "", "a model to run on prompts first; its traces belong to the study too"},
      {"capture.model", text, "", "", "folder with config.json, safetensors and tokenizer.json"},
      {"capture.workloads", sections, "[]", "", "prompts to make, as kvsim workload does", 0, 0, "kind"},
      {"capture.workloads[].kind", text, "", "", "such as needle (kvsim workload --help)"},
      {"capture.workloads[].context", whole, "500", "1 to 4194304", "tokens of each prompt", 1, 4194304},
      {"capture.workloads[].count", whole, "1", "1 to 100000", "prompts", 1, 100000},
      {"capture.workloads[].seed", whole, "1", "0 or more", "same seed, same prompts"},
      {"capture.workloads[].facts", whole, "4", "1 to 128", "facts to hide, values of a key, questions", 1,
       128},
      {"capture.workloads[].hops", whole, "1", "0 to 8", "copies between a value and what is asked for", 0,
       8},
      {"capture.workloads[].style", text, "\"pairs\"", "pairs | sentences", "how facts are written"},
      {"capture.workloads[].text", text, "\"\"", "",
       "file with text for the contexts; empty: the built-in one"},
      {"capture.prompts", sections, "[]", "", "prompts of your own: text files, taken as they are", 0, 0,
       "files"},
      {"capture.prompts[].files", text, "", "", "a file or a pattern"},
      {"capture.prompts[].name", text, "\"\"", "",
       "what results call it; empty: the file's name without its ending"},
      {"capture.prompts[].workload", text, "\"\"", "", "kind of prompt"},
      {"capture.prompts[].sha256", text, "\"\"", "", "content the file must have (sha256sum)"},
      {"capture.max_new_tokens", whole, "64", "0 or more", "tokens to generate, greedily"},
      {"capture.ignore_eos", flag, "false", "", "generate on past an end-of-text token"},
      {"capture.queries", text, "\"all\"", "all, window:W, sample:K", "queries to store"},
      {"capture.attention", text, "\"none\"", "none, window:W, full", "attention rows to store"},
      {"capture.output_weights", flag, "false", "", "store the attention output projections"},
      {"capture.elem", text, "\"auto\"", "auto | f32 | bf16 | f16",
       "type of stored tensors and of the cache"},
      {"capture.prefill_chunk", whole, "512", "1 or more", "prompt tokens per pass", 1},

      {"policies", sections, "[\"all\", \"oracles\"]", "", "what to evaluate; [] for analyses alone", 0, 0,
       "policy"},
      {"policies[].policy", text, "", "", "as kvsim replay --policy: a composition, all, oracles, h2o*"},
      {"policies[].params", text, "\"\"", "",
       "what it must come to with every parameter (results.csv shows it)"},
      {"budgets", texts, "[\"10%\", \"25%\", \"50%\"]", "", "as kvsim replay --budget: 128, 25%, 64MiB"},
      {"seeds", wholes, "[0]", "0 or more each", "of random policies; each is a task of its own"},
      {"cuts", texts, "[]", "prompt, question, a number of tokens",
       "where the prompt ends for policies; empty: prompt, and question of "
       "traces that know their context"},
      {"bounds", flag, "true", "", "the least attention loss over all splits, beside what policies lose"},
      {"scopes", texts, "[\"all\", \"layer\"]", "all, layer, head, step",
       "rows per model, layer, lane, measured step"},
      {"metrics", texts,
       "[\"evidence_loss\", \"peak_loss\", \"attention_loss\", "
       "\"output_error\", \"r\", \"isr\", "
       "\"oracle_cosine\"]",
       "numbers of results.csv", "what the statistics speak of"},
      {"analyses", sections, "[]", "", "as kvsim analyze; a text is a kind", 0, 0, "kind"},
      {"analyses[].kind", text, "", "", "such as hash (kvsim analyze --help)"},
      {"analyses[].table", text, "\"\"", "", "name of its table; empty: the kind"},
      {"analyses[].*", anything, "null", "", "a setting of the kind, such as bits; a list or as typed there"},

      {"statistics", section, "{}", "", "means over traces, differences and ranks"},
      {"statistics.resamples", whole, "2000", "100 to 100000", "of the bootstrap", 100, 100000},
      {"statistics.confidence", number, "0.95", "0.5 to 0.999", "of the intervals", 0.5, 0.999},
      {"statistics.seed", whole, "0", "0 or more", "of the resampling"},
      {"report", flag, "true", "", "draw figures and write report.html"},
      {"result", ignored, "null", "", "what the study found; kvsim writes it and never reads it as a wish"},
  };
  return all;
}

}  // namespace kvsim::analysis
