#include "tools/options/mistaken_files.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "analysis/results/reading/read_tables.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/message_text.hpp"
#include "sim/cost/model.hpp"
#include "sim/replay/budget.hpp"
#include "tools/printing/front_end.hpp"
#include "traces/model/gguf_file.hpp"
#include "traces/model/hub_cache.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

/// A name that no file has, and that some option of policies or budgets should have had.
void refuse_stray_value(const std::string& text) {
  const std::string name = text.substr(0, text.find_first_of("(+*"));
  const policy::Registry& policies = front_end().policies();
  const bool policy = policies.find_policy(policy::Kind::eviction, name) != nullptr ||
                      policies.find_preset(name) != nullptr || name == "all" || name == "oracles";
  if (policy)
    usage_error("is a policy where a trace is expected", text,
                "Each policy has an option of its own: --policy " + shell_word(text));
  try {
    sim::parse_budget(text);
  } catch (const Error&) {
    return;
  }
  usage_error("is a budget where a trace is expected", text, "Budgets are one comma list: --budget 10%,25%");
}

/// The beginning of a text file.
std::string beginning(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(1 << 16, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

bool exists(const std::string& path) {
  std::error_code failed;
  return fs::exists(path, failed);
}

}  // namespace

void require_trace(const std::string& path) {
  if (!exists(path)) return refuse_stray_value(path);
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) return;
  if (begins_with(path, "\x89HDF")) {
    if (analysis::holds_hdf5_results(path))
      usage_error("holds results where a trace is expected", path,
                  "kvsim export, plot and diff read results.");
    return;
  }
  const std::string text = beginning(path);
  if (text.starts_with('{') && text.find("\"policies\"") != std::string::npos)
    usage_error("is a study where a trace is expected", path, "Run it: kvsim study " + shell_word(path));
  if (text.starts_with('{') && text.find("\"prompt\"") != std::string::npos)
    usage_error(
        "is a workload where a trace is expected", path,
        "kvsim capture --workload records one of its prompts, kvsim evaluate --workload answers them.");
  if (text.starts_with("trace,") || path.ends_with(".csv"))
    usage_error("is a table where a trace is expected", path, "kvsim export, plot and diff read results.");
}

void require_study(const std::string& path) {
  if (begins_with(path, "\x89HDF"))
    usage_error("is HDF5; a study is a JSON file that names its traces", path,
                "kvsim config reference lists its fields; kvsim replay " + shell_word(path) +
                    " --policy h2o --budget 25% needs none.");
}

void require_prompt_file(const std::string& path) {
  if (path == "-" || exists(path)) return;
  const bool text = path.find_first_of(" ?!\n") != std::string::npos;
  input_error("there is no such file", "--prompt " + in_quotes(path),
              text ? "--prompt takes a file with the text: printf '%s' '...' > question.txt, then --prompt "
                     "question.txt"
                   : "--prompt takes a file with the text.");
}

std::string checkpoint_at(const std::string& model) {
  std::string path = model::local_checkpoint(model);
  std::error_code failed;
  if (fs::is_directory(path, failed) || model::is_gguf(path)) return path;
  if (model::is_hub_name(model))
    input_error("is neither a folder nor in the hub's cache on this machine", "--model " + in_quotes(model),
                "Download it: hf download " + model);
  const std::vector<cost::Model>& known = cost::known_models();
  const bool named = std::ranges::any_of(known, [&](const cost::Model& m) { return m.name == path; });
  input_error("is neither a folder nor a GGUF file", "--model " + in_quotes(path),
              named ? "kvsim cost knows this model's sizes; to run it, name the folder of its checkpoint."
                    : "Name a folder with config.json, safetensors and a tokenizer, or a GGUF file.");
}

}  // namespace kvsim::tools
