#pragma once
/// The policies that ship with kvsim, from builtin.def.
#include "policies/api/registry.hpp"

namespace kvsim::policy {

const Registry& builtin();

}  // namespace kvsim::policy
