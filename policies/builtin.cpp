#include "policies/builtin.hpp"

#include "policies/replacements.hpp"
#include "sim/base/split.hpp"

namespace kvsim::policy {

#define KVSIM_EVICTION(name) KVSIM_POLICY(name)
#define KVSIM_ALLOCATION(name) KVSIM_POLICY(name)
#define KVSIM_ORACLE(name) KVSIM_POLICY(name)
#define KVSIM_REPRESENTATION(name) KVSIM_POLICY(name)
#define KVSIM_SELECTION(name) KVSIM_POLICY(name)

#define KVSIM_POLICY(name) \
  namespace name {         \
  PolicySpec spec();       \
  }
#include "policies/builtin.def"
#undef KVSIM_POLICY

// absent.txt and presets.txt, compiled in (CMakeLists.txt).
std::string_view absent_text();
std::string_view presets_text();

const Registry& builtin() {
  static const Registry registry = [] {
    Registry list;
#define KVSIM_POLICY(name) list.add(name::spec());
#include "policies/builtin.def"
#undef KVSIM_POLICY
    for (const auto& of : text_rows(absent_text())) list.add(AbsentSpec{of.at(0), of.at(1), of.at(2)});
    for (const auto& of : text_rows(presets_text()))
      list.add(PresetSpec{of.at(0), of.at(1), of.at(2), of.at(3)});
    for (PolicySpec& spec : replacements()) list.add(std::move(spec));
    return list;
  }();
  return registry;
}

#undef KVSIM_EVICTION
#undef KVSIM_ALLOCATION
#undef KVSIM_ORACLE
#undef KVSIM_REPRESENTATION
#undef KVSIM_SELECTION

}  // namespace kvsim::policy
