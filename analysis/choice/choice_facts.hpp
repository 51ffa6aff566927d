#pragma once
/// What there is to say of a choice, for the console and its page.
#include <string>
#include <vector>

#include "analysis/choice/choose.hpp"
#include "analysis/choice/choose_by_losses.hpp"

namespace kvsim::analysis {

struct ChoiceFact {
  std::string name, text;  ///< the text may have lines
  bool code = false;       ///< to be typed
};

/// The setting, what it holds and answers, how many were tried, and how it is asked for, here and in engines.
std::vector<ChoiceFact> facts_of(const ChoiceRequest& request, const Choice& choice);
std::vector<ChoiceFact> facts_of(const LossChoiceRequest& request, const LossChoice& choice);

}  // namespace kvsim::analysis
