#pragma once
/// How a setting is asked of engines and libraries that can do it.
#include <optional>
#include <string>
#include <vector>

namespace kvsim::analysis {

struct EngineRecipe {
  std::string engine;
  std::string words;  ///< code or options
  std::string apart;  ///< where the engine departs from the setting; empty: nowhere known
};

/// `params`: a composition with every effective parameter; `share`: of the prompt's tokens that it keeps,
/// from 0 to 1; none: the words have a variable of that name. Empty: no engine in the list does this.
std::vector<EngineRecipe> engine_recipes(const std::string& params, std::optional<double> share = {});

}  // namespace kvsim::analysis
