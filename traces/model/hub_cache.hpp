#pragma once
/// Checkpoints that the Hugging Face hub's tools have downloaded to this machine.
#include <string>

namespace kvsim::model {

/// Where the checkpoint called `model` lies: `model` itself where there is such a file or folder; else, of a
/// name such as ORG/NAME, the snapshot that the hub's local cache calls main (under HF_HUB_CACHE,
/// HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub), or the only GGUF file of it
/// where it has no config.json. Nothing is downloaded. `model` as it is where there is neither.
std::string local_checkpoint(const std::string& model);

/// Whether it is written as ORG/NAME.
bool is_hub_name(const std::string& model);

/// The NAME of a snapshot's folder or of a file in it; empty: `path` lies in no hub cache.
std::string hub_name_of(const std::string& path);

}  // namespace kvsim::model
