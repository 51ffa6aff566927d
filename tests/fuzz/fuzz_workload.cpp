// Any bytes either are a workload or are refused as an input error; the parts of its prompts lie within them.
#include "tests/fuzz/target.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/model/tokenizer.hpp"

namespace kvsim::fuzz::fuzz_workload {
namespace {

void read(std::string_view input) {
  static const InputOnDisk kFile(".jsonl");
  static const model::Tokenizer kTokenizer = model::load_tokenizer(KVSIM_SOURCE_DIR "/traces/sample/model");
  for (const capture::WorkloadItem& item : capture::read_workload(kFile.write(input))) {
    require(!item.id.empty(), "a prompt has a name");
    for (const workload::RoleSpan& span : item.spans)
      require(span.begin < span.end && span.end <= item.prompt.size(), "a part lies within its prompt");
    accepts([&] {
      const std::vector<std::int32_t> ids = capture::prompt_ids(item, kTokenizer);
      const std::vector<std::uint32_t> flags = capture::prompt_flags(item, ids, kTokenizer);
      require(flags.empty() || flags.size() == ids.size(), "every token has flags, or none");
    });
  }
}

const Registered kTarget({"workload", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_workload
