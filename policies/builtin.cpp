#include "policies/builtin.hpp"

#include "policies/replacements.hpp"

namespace kvsim::policy {

#define KVSIM_POLICY(name) \
  namespace name {         \
  PolicySpec spec();       \
  }
#define KVSIM_EVICTION(name) KVSIM_POLICY(name)
#define KVSIM_ALLOCATION(name) KVSIM_POLICY(name)
#define KVSIM_ORACLE(name) KVSIM_POLICY(name)
#define KVSIM_REPRESENTATION(name) KVSIM_POLICY(name)
#define KVSIM_SELECTION(name) KVSIM_POLICY(name)
#define KVSIM_PRESET(name, expansion, summary, paper)
#define KVSIM_ABSENT(name, needs, instead)
#include "policies/builtin.def"
#undef KVSIM_EVICTION
#undef KVSIM_ALLOCATION
#undef KVSIM_ORACLE
#undef KVSIM_REPRESENTATION
#undef KVSIM_SELECTION
#undef KVSIM_PRESET
#undef KVSIM_ABSENT

const Registry& builtin() {
  static const Registry registry = [] {
    Registry list;
#define KVSIM_EVICTION(name) list.add(name::spec());
#define KVSIM_ALLOCATION(name) list.add(name::spec());
#define KVSIM_ORACLE(name) list.add(name::spec());
#define KVSIM_REPRESENTATION(name) list.add(name::spec());
#define KVSIM_SELECTION(name) list.add(name::spec());
#define KVSIM_PRESET(name, expansion, summary, paper) list.add(PresetSpec{#name, expansion, summary, paper});
#define KVSIM_ABSENT(name, needs, instead) list.add(AbsentSpec{#name, needs, instead});
#include "policies/builtin.def"
#undef KVSIM_EVICTION
#undef KVSIM_ALLOCATION
#undef KVSIM_ORACLE
#undef KVSIM_REPRESENTATION
#undef KVSIM_SELECTION
#undef KVSIM_PRESET
#undef KVSIM_ABSENT
    for (PolicySpec& spec : replacements()) list.add(std::move(spec));
    return list;
  }();
  return registry;
}

}  // namespace kvsim::policy
