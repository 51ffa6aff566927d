// Any bytes either are a safetensors file or are refused as an input error; the tensors of an accepted one
// lie within it, cover its data, and can be widened.
#include <cstring>

#include "tests/fuzz/target.hpp"
#include "traces/model/safetensors.hpp"

namespace kvsim::fuzz::fuzz_safetensors {
namespace {

void widen_all(const model::StoredTensor& tensor, const std::string& name) {
  const Elem elem = model::tensor_elem(tensor, name);
  require(tensor.elements() * elem_bytes(elem) == tensor.data.size(),
          "a tensor has the bytes of its elements");
  std::vector<float> values(tensor.elements());
  widen(elem, tensor.data.data(), values.size(), values.data());
}

void read(std::string_view input) {
  const std::span file(reinterpret_cast<const std::byte*>(input.data()), input.size());
  std::uint64_t covered = 0;
  for (const auto& entry : model::parse_safetensors(file, "fuzz")) {
    const model::StoredTensor& tensor = entry.second;
    require(tensor.data.data() >= file.data() &&
                tensor.data.data() + tensor.data.size() <= file.data() + file.size(),
            "a tensor lies within the file");
    covered += tensor.data.size();
    accepts([&] { widen_all(tensor, entry.first); });
  }
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  require(covered + sizeof header + header == file.size(), "tensors cover the data");
}

const Registered kTarget({"safetensors", {ErrorKind::input}, read});

}  // namespace
}  // namespace kvsim::fuzz::fuzz_safetensors
