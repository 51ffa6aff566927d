#pragma once
/// The files of sim/cost/catalogue, which become part of the library.
#include <string_view>
#include <vector>

namespace kvsim::cost {

struct CatalogueFile {
  std::string_view name{};  ///< "llama-3-8b"
  std::string_view text{};
};
/// In order of name.
const std::vector<CatalogueFile>& model_files();
const std::vector<CatalogueFile>& machine_files();

}  // namespace kvsim::cost
