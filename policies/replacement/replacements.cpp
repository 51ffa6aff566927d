#include "policies/replacements.hpp"

namespace kvsim::policy {

#define KVSIM_REPLACEMENT(name) \
  namespace name {              \
  PolicySpec spec();            \
  }
#include "policies/replacements.def"
#undef KVSIM_REPLACEMENT

std::vector<PolicySpec> replacements() {
  return {
#define KVSIM_REPLACEMENT(name) name::spec(),
#include "policies/replacements.def"
#undef KVSIM_REPLACEMENT
  };
}

}  // namespace kvsim::policy
