#pragma once
/// The files of sim/cost/catalogue, embedded into the library.
#include <string_view>
#include <vector>

namespace kvsim::cost {

struct CatalogueFile {
  std::string_view name{};  ///< "llama-3-8b"
  std::string_view text{};
};
/// Sorted by name.
const std::vector<CatalogueFile>& model_files();
const std::vector<CatalogueFile>& machine_files();

}  // namespace kvsim::cost
