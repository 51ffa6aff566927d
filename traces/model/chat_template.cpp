#include "traces/model/chat_template.hpp"

#include <boost/json/parse.hpp>
#include <filesystem>

#include "sim/base/read_file.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::model {
namespace {

/// In a file that is no JSON object there is none to tell of; whoever needs the file refuses it.
bool names_template(const std::string& config) {
  if (!std::filesystem::is_regular_file(config)) return false;
  boost::system::error_code problem;
  const boost::json::value parsed = boost::json::parse(read_file(config, kMaxTokenizerBytes), problem);
  if (problem || !parsed.is_object()) return false;
  const boost::json::value* const found = parsed.get_object().if_contains("chat_template");
  return found != nullptr && !found->is_null();
}

}  // namespace

std::string chat_template_note(const std::string& folder) {
  if (!std::filesystem::exists(folder + "/chat_template.jinja") &&
      !names_template(folder + "/tokenizer_config.json"))
    return {};
  return folder +
         " has a chat template, which kvsim does not apply: the model reads the prompt as it is. Write the "
         "template's "
         "text into the prompt, or capture with capture_hf.py --chat.";
}

}  // namespace kvsim::model
