#pragma once
/// A choice as one page of HTML that fetches nothing: what was chosen, how it stands where it was found and
/// where nothing was tried, how it is asked for, and what became of every other setting.
#include <string>

#include "analysis/choice/choose.hpp"
#include "analysis/choice/choose_by_losses.hpp"

namespace kvsim::analysis {

inline constexpr const char* kChoicePage = "choice.html";  ///< in the folder of the choice

/// The same choice gives the same bytes.
std::string choice_page(const ChoiceRequest& request, const Choice& choice);
std::string choice_page(const LossChoiceRequest& request, const LossChoice& choice);

}  // namespace kvsim::analysis
