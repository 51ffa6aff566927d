// Any text either is a study or is refused with a reason that names the file, and a study is the same after
// writing and reading it again.
#include <boost/json/object.hpp>

#include "analysis/study/config/study_config.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "tests/fuzz/target.hpp"

namespace kvsim::fuzz::fuzz_study {
namespace {

std::string rewritten(std::string_view text) {
  return analysis::readable_json(analysis::study_document(analysis::read_study(text, "s.json")));
}

void read(std::string_view input) {
  std::string once;
  try {
    once = rewritten(input);
  } catch (const Error& error) {
    require(std::string_view(error.what()).starts_with("s.json"), "a refusal names the file");
    throw;
  }
  require(rewritten(once) == once, "a study written is read as it was");
}

const Registered kTarget({"study", {ErrorKind::input, ErrorKind::usage}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_study
