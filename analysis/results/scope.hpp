#pragma once
/// What a row of results speaks of.
#include <string_view>

namespace kvsim::analysis {

/// The whole model, a layer, one lane (a layer's KV head), or the whole model at one measured step.
enum class Scope { all, layer, head, step };
const char* scope_name(Scope scope);
/// Throws Error(usage) with the nearest names.
Scope parse_scope(std::string_view name);

}  // namespace kvsim::analysis
