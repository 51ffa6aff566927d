#include "policies/replacements.hpp"

namespace kvsim::policy {

std::vector<PolicySpec> replacements() {
  return {};
}

}  // namespace kvsim::policy
