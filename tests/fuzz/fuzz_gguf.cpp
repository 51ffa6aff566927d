// Any bytes either are a GGUF file or are refused as an input error; the tensors of an accepted one lie
// within it and can be widened, its keys are answered or refused, and a model of it has a config.json and
// tensors of their shapes.
#include <algorithm>

#include "tests/fuzz/target.hpp"
#include "traces/model/gguf_blocks.hpp"
#include "traces/model/gguf_model.hpp"
#include "traces/model/model_config.hpp"
#include "traces/model/packed_weights.hpp"

namespace kvsim::fuzz::fuzz_gguf {
namespace {

void ask(const model::Gguf& file, const std::string& key) {
  int answers = 0;
  answers += accepts([&] { file.integer(key); });
  answers += accepts([&] { file.number(key); });
  answers += accepts([&] { file.flag(key); });
  answers += accepts([&] { file.text(key); });
  const int lists = accepts([&] { file.texts(key); }) + accepts([&] { file.integers(key); }) +
                    accepts([&] { file.numbers(key); }) + accepts([&] { file.flags(key); });
  require(answers <= 1 && (answers == 0 || lists == 0), "a value has one type");
}

void read(std::string_view input) {
  const std::span bytes(reinterpret_cast<const std::byte*>(input.data()), input.size());
  const model::Gguf file(bytes, "fuzz");
  for (const std::string& key : file.keys()) ask(file, key);
  std::uint64_t covered = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    covered += tensor.data.size();
    require(tensor.data.data() >= bytes.data() &&
                tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size(),
            "a tensor lies within the file");
    require(tensor.elements() / tensor.type->items * tensor.type->bytes == tensor.data.size(),
            "a tensor has the bytes of its elements");
    if (!model::can_widen(*tensor.type)) continue;
    std::vector<float> values(tensor.elements());
    model::widen_blocks(*tensor.type, tensor.data.data(), tensor.elements() / tensor.type->items,
                        values.data());
  }
  require(covered <= bytes.size(), "tensors do not overlap");
  accepts([&] { model::parse_model_config(model::gguf_config(file), "fuzz"); });
  accepts([&] {
    std::vector<std::unique_ptr<std::byte[]>> owned;
    for (const auto& [name, tensor] : model::gguf_tensors(file, owned)) {
      if (tensor.blocks != nullptr) {
        const std::uint64_t columns = tensor.shape.back(),
                            rows = tensor.elements() / std::max<std::uint64_t>(columns, 1);
        const model::PackedWeights packed(*tensor.blocks, tensor.data.data(), rows, columns);
        std::vector<float> values(columns);
        for (std::uint64_t row = 0; row < rows; ++row) packed.row(row, values.data());
        continue;
      }
      const Elem elem = model::tensor_elem(tensor, name);
      require(tensor.elements() * elem_bytes(elem) == tensor.data.size(),
              "a tensor of a model has its bytes");
      std::vector<float> values(tensor.elements());
      widen(elem, tensor.data.data(), values.size(), values.data());
    }
  });
}

const Registered kTarget({"gguf", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_gguf
