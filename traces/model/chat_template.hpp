#pragma once
/// Whether a checkpoint expects its prompts in a chat template. kvsim does not apply one: the templates are
/// programs in Jinja, for which Debian has no C++ library; the Hugging Face hook has transformers' own.
#include <string>

namespace kvsim::model {

/// What to tell whoever gives such a checkpoint a text; empty where the folder holds no template
/// (chat_template.jinja, or chat_template in tokenizer_config.json).
std::string chat_template_note(const std::string& folder);

}  // namespace kvsim::model
