#include "tools/options/named_inputs.hpp"

#include <filesystem>

#include "sim/base/inputs.hpp"

namespace kvsim::tools {
namespace {

namespace fs = std::filesystem;

bool is_output(const std::string& option) {
  return option == "-o" || option == "--output" || option == "--decisions" || option == "--plot";
}

/// What a study was made of and what it found; its report and figures may be made again.
void note_study(const fs::path& folder) {
  std::error_code failed;
  if (!fs::exists(folder / "study.json", failed)) return;
  for (const char* name : {"study.json", "prompts.jsonl"}) inputs::note((folder / name).string());
  for (const char* name : {"tasks", "tables", "traces"})
    for (fs::recursive_directory_iterator at(folder / name, failed), end; !failed && at != end;
         at.increment(failed))
      inputs::note(at->path().string());
}

/// A word without a dot or a slash is rather the name of a policy, a table or a figure.
void note_file(const std::string& name) {
  if (name.find_first_of("./") != std::string::npos) inputs::note(name);
}

}  // namespace

void note_named_inputs(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (is_output(word)) ++i;
    if (is_output(word.substr(0, word.find('='))) || word.starts_with("-o")) continue;
    note_study(word);
    note_file(word);
    // --model=DIR, a list, and full+palu(file=TABLES).
    for (std::size_t begin = 0, end = 0; end < word.size(); begin = end + 1) {
      end = std::min(word.find_first_of("=,()", begin), word.size());
      note_file(word.substr(begin, end - begin));
    }
  }
}

}  // namespace kvsim::tools
