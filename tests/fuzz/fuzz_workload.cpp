// Any bytes either are a workload or are refused as an input error; the parts of its prompts lie within them.
#include "tests/fuzz/target.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::fuzz::fuzz_workload {
namespace {

void look_at(const capture::WorkloadItem& item, const model::Tokenizer& tokenizer) {
  require(!item.id.empty(), "a prompt has a name");
  for (const workload::RoleSpan& span : item.spans)
    require(span.begin < span.end && span.end <= item.prompt.size(), "a part lies within its prompt");
  accepts([&] {
    const std::vector<std::int32_t> ids = capture::prompt_ids(item, tokenizer);
    const std::vector<std::uint32_t> flags = capture::prompt_flags(item, ids, tokenizer);
    require(flags.empty() || flags.size() == ids.size(), "every token has flags, or none");
  });
}

void read(std::string_view input) {
  static const model::Tokenizer kTokenizer = model::load_tokenizer(KVSIM_SOURCE_DIR "/traces/sample/model");
  const auto look_at_all = [&](const char* name) {
    for (const capture::WorkloadItem& item : capture::parse_workload(input, name)) look_at(item, kTokenizer);
  };
  accepts([&] { look_at_all("input.csv"); });
  look_at_all("input.jsonl");
}

const Registered kTarget({"workload", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_workload
