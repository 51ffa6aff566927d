// Any bytes either are a trace, whose every row can then be read, or are refused as an input error.
#include "tests/fuzz/target.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/check.hpp"
#include "traces/format/reader.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::fuzz::fuzz_trace {
namespace {

void read(std::string_view input) {
  static const InputOnDisk kFile(".h5");
  const std::string& path = kFile.write(input);
  const std::unique_ptr<trace::Source> source = trace::open_trace(path);
  const trace::Header& header = source->header();
  for (const trace::Tensor tensor : test::kTensors)
    for (std::uint32_t layer = 0; layer < header.model.n_layers; ++layer)
      for (std::uint32_t head = 0; head < test::heads_of(header.model, tensor); ++head)
        test::all_rows(*source, tensor, layer, head);
  for (std::uint32_t layer = 0; source->has_output_weights() && layer < header.model.n_layers; ++layer)
    test::all_output_weights(*source, layer);
  for (std::size_t i = 0; i < header.sequence_leaf.size(); ++i) trace::Sequence(*source, i);
  Progress progress;
  trace::check_trace(path, progress);
}

const Registered kTarget({"trace", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_trace
