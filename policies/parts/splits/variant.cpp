#include "policies/parts/splits/variant.hpp"

namespace kvsim::policy {

ParamSpec variant_param(const std::vector<std::string>& published) {
  std::vector<std::string> choices = {"exact"};
  choices.insert(choices.end(), published.begin(), published.end());
  return choice_param(
      "variant", "exact", choices,
      "exact: the total is what was asked for; else the published arithmetic, whatever its total");
}

bool published_variant(const Params& params) {
  return params.word("variant") != "exact";
}

}  // namespace kvsim::policy
