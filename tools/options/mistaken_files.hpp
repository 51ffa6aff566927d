#pragma once
/// Arguments that are something else than what the command reads, told before the file is opened in vain.
#include <string>

namespace kvsim::tools {

/// Where a trace is wanted: throws Error(usage) for a policy or a budget that slipped out of its option, and
/// for a file that is a study, a workload or results.
void require_trace(const std::string& path);

/// Where a study's file is wanted: throws Error(usage) for HDF5.
void require_study(const std::string& path);

/// Where a file with a prompt is wanted: throws Error(input) if there is nothing at PATH, and says how to
/// pass a text. "-" is standard input.
void require_prompt_file(const std::string& path);

/// Where a checkpoint is wanted: the folder or GGUF file called `model`, in the hub's cache too
/// (hub_cache.hpp). Throws Error(input) if there is none.
std::string checkpoint_at(const std::string& model);

}  // namespace kvsim::tools
