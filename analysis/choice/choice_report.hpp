#pragma once
/// What there is to say of a choice, for the console and as one page of HTML that fetches nothing: what was
/// chosen, how it stands where it was found and where nothing was searched.
#include <string>
#include <vector>

#include "analysis/choice/choose.hpp"
#include "analysis/choice/choose_by_losses.hpp"

namespace kvsim::analysis {

/// What there is to say of a choice, for the console and its page.
struct ChoiceFact {
  std::string name, text;  ///< the text may have lines
  bool code = false;       ///< to be typed
};

/// The setting, what it holds and answers, how many were tried, and how it is asked for, here and in engines.
std::vector<ChoiceFact> facts_of(const ChoiceRequest& request, const Choice& choice);
std::vector<ChoiceFact> facts_of(const LossChoiceRequest& request, const LossChoice& choice);

/// A choice as one page of HTML that fetches nothing: what was chosen, how it stands where it was found and
/// where nothing was tried, how it is asked for, and what became of every other setting.
inline constexpr const char* kChoicePage = "choice.html";  ///< in the folder of the choice

/// The same choice gives the same bytes.
std::string choice_page(const ChoiceRequest& request, const Choice& choice);
std::string choice_page(const LossChoiceRequest& request, const LossChoice& choice);

}  // namespace kvsim::analysis
