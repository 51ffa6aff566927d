// The shapes that the cost model reads from a config.json are those of the checkpoint beside it.
#include <boost/json/parse.hpp>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>

#include "sim/base/files.hpp"
#include "sim/cost/model.hpp"

namespace kvsim::cost::test_checkpoint {
namespace {

/// Elements of all tensors of a safetensors file.
std::uint64_t elements(const std::string& path) {
  const std::string file = read_file(path, 1 << 20);
  std::uint64_t length = 0, sum = 0;
  std::memcpy(&length, file.data(), 8);
  const boost::json::value header = boost::json::parse(std::string_view(file).substr(8, length));
  for (const auto& [name, tensor] : header.as_object()) {
    if (name == "__metadata__") continue;
    std::uint64_t product = 1;
    for (const boost::json::value& size : tensor.at("shape").as_array())
      product *= size.to_number<std::uint64_t>();
    sum += product;
  }
  return sum;
}

}  // namespace

TEST_CASE("parameters are the elements of the checkpoint", "[cost][model]") {
  int checkpoints = 0;
  for (const auto& folder : std::filesystem::directory_iterator(KVSIM_SOURCE_DIR "/tests/golden/capture")) {
    if (!folder.is_directory()) continue;
    std::uint64_t expected = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      const std::string name = file.path().filename();
      if (name.starts_with("model") && name.ends_with(".safetensors")) expected += elements(file.path());
    }
    INFO(folder.path().filename());
    CHECK(find_model(folder.path()).parameters() == expected);
    ++checkpoints;
  }
  CHECK(checkpoints >= 16);
}

}  // namespace kvsim::cost::test_checkpoint
