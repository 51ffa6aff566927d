#include "traces/model/chat_template.hpp"

#include <boost/json/parse.hpp>
#include <filesystem>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/sha256.hpp"
#include "sim/base/strict_json.hpp"
#include "traces/model/gguf_file.hpp"
#include "traces/model/tokenizer.hpp"
#include "traces/model/unicode_text.hpp"

namespace kvsim::model {

/// Where a system message goes.
enum class SystemPlace {
  turn,        ///< a turn of its own
  first_user,  ///< before the first user's message, an empty line between
  last_user,   ///< the same before the last
  nowhere,
};

/// What a family writes around messages.
struct ChatFamily {
  const char *before_system, *after_system, *before_user, *after_user, *before_answer, *after_answer;
  const char* opening;  ///< of the answer that is to come
};

/// One published template.
struct ChatForm {
  const char* sha256;  ///< first 16 digits, of its normal form
  const char* name;
  ChatFamily family;
  SystemPlace system = SystemPlace::turn;
  bool bos = false, eos = false;  ///< bos_token at the begin; eos_token after each answer
  bool strips_user = false,
       strips_answer =
           false;  ///< white space around the texts; the system's as the user's where it is a turn
  const char* dated = nullptr;  ///< what always begins the system's message
  bool thinks = false;          ///< earlier answers lose what stands before </think>
};

namespace {

namespace json = boost::json;

constexpr ChatFamily kChatMl{
    "<|im_start|>system\n",    "<|im_end|>\n", "<|im_start|>user\n",     "<|im_end|>\n",
    "<|im_start|>assistant\n", "<|im_end|>\n", "<|im_start|>assistant\n"};
constexpr ChatFamily kLlama3{"<|start_header_id|>system<|end_header_id|>\n\n",    "<|eot_id|>",
                             "<|start_header_id|>user<|end_header_id|>\n\n",      "<|eot_id|>",
                             "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>",
                             "<|start_header_id|>assistant<|end_header_id|>\n\n"};
constexpr ChatFamily kGemma{"",
                            "",
                            "<start_of_turn>user\n",
                            "<end_of_turn>\n",
                            "<start_of_turn>model\n",
                            "<end_of_turn>\n",
                            "<start_of_turn>model\n"};
constexpr ChatFamily kPhi3{"<|system|>\n",    "<|end|>\n", "<|user|>\n",     "<|end|>\n",
                           "<|assistant|>\n", "<|end|>\n", "<|assistant|>\n"};
constexpr const char* kLlamaDate = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

constexpr ChatFamily mistral(const char* before_user, const char* after_user, const char* before_answer,
                             const char* after_answer) {
  return {"", "", before_user, after_user, before_answer, after_answer, ""};
}

constexpr ChatForm kForms[] = {
    {"153280e3ff55d19d", "ChatML", kChatMl},
    {"69e73d1f8a0ee039", "ChatML with a system message of its own", kChatMl},
    {"6aedb82a18c86c3c", "Qwen 2.5", kChatMl},
    {"7e2d97101d6e79c7", "Qwen 3", kChatMl, SystemPlace::turn, false, false, false, false, nullptr, true},
    {"ba03a121d097859c", "Llama 3", kLlama3, SystemPlace::turn, true, false, true, true},
    {"b48c47f644389271", "Llama 3, first revision", kLlama3, SystemPlace::turn, true, false, true, true},
    {"183c97c5d1eeab43", "Llama 3.1", kLlama3, SystemPlace::turn, true, false, true, true, kLlamaDate},
    {"171a71249db559e2", "Llama 3.2", kLlama3, SystemPlace::turn, true, false, true, true, kLlamaDate},
    {"7e995b379ec01747", "Mistral 0.1", mistral("[INST] ", " [/INST]", "", " "), SystemPlace::nowhere, true,
     true},
    {"26a59556925c9873", "Mistral 0.2", mistral("[INST] ", " [/INST]", "", ""), SystemPlace::nowhere, true,
     true},
    {"1c6594f8393552ef", "Mistral 0.2, second revision", mistral(" [INST] ", " [/INST]", " ", ""),
     SystemPlace::first_user, true, true},
    {"9afff3ef0c3149d8", "Mistral 0.3", mistral("[INST] ", "[/INST]", " ", ""), SystemPlace::last_user, true,
     true, false, true},
    {"df6e6822032099b8", "Mistral Nemo", mistral("[INST]", "[/INST]", "", ""), SystemPlace::last_user, true,
     true},
    {"ecd6ae513fe103f0", "Gemma", kGemma, SystemPlace::nowhere, true, false, true, true},
    {"5c8d822e96977db5", "Gemma 3", kGemma, SystemPlace::first_user, true, false, true, true},
    {"268b6082ceb7176d", "Phi-3-mini", kPhi3, SystemPlace::nowhere, true},
    {"605841622bcb6572", "Phi-3-medium", kPhi3, SystemPlace::nowhere},
    {"b0e53f5e7bae6fdb", "Phi-3-small", kPhi3, SystemPlace::turn, true},
    {"dcaee66df77bfbb7", "Phi-3-mini, second revision", kPhi3},
    {"78d976a442bcde2f", "Phi-3.5", kPhi3},
};

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// What ChatML templates say where a conversation has no system message; empty: nothing.
std::string system_of(const std::string& normal) {
  const std::string begin = kChatMl.before_system, end = "<|im_end|>";
  for (std::size_t at = 0; (at = normal.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    const std::string text = normal.substr(at, normal.find_first_of("'{}<\\", at) - at);
    if (!text.empty() && normal.compare(at + text.size(), end.size(), end) == 0) return text;
  }
  return {};
}

/// A template's text without what publishers spell in several ways and no conversation shows: quotes, line
/// breaks inside strings, white space at the end, a default for add_generation_prompt, which is always given.
std::string normal_form(std::string text) {
  replace(text, "\\n", "\n");
  replace(text, "\"", "'");
  replace(text,
          "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}",
          "");
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

/// Bytes of white space in front, or behind, as Python's strip() takes them: four separators beside
/// Unicode's.
std::size_t stripped_front(std::string_view text) {
  std::size_t cut = 0;
  for (std::size_t more = 1; more > 0; cut += more) {
    const std::string_view rest = text.substr(cut);
    more = !rest.empty() && rest[0] >= '\x1c' && rest[0] <= '\x1f' ? 1 : leading_space(rest);
  }
  return cut;
}
std::size_t stripped_back(std::string_view text) {
  std::size_t cut = 0;
  for (std::size_t more = 1; more > 0; cut += more) {
    const std::string_view rest = text.substr(0, text.size() - cut);
    more = !rest.empty() && rest.back() >= '\x1c' && rest.back() <= '\x1f' ? 1 : trailing_space(rest);
  }
  return cut;
}

/// Puts a message's text behind what is there.
void put(ChatText& out, std::string_view text, bool strips) {
  const std::size_t front = strips ? stripped_front(text) : 0;
  text.remove_prefix(front);
  if (strips) text.remove_suffix(stripped_back(text));
  out.places.push_back({out.text.size(), out.text.size() + text.size(), front});
  out.text += text;
}

void check_roles(std::span<const ChatMessage> messages, const std::string& where) {
  const std::size_t first = !messages.empty() && messages[0].role == "system" ? 1 : 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string wanted = i < first ? "system" : (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != wanted || messages[i].text.empty())
      input_error("message " + std::to_string(i) + " is not one of the " + wanted + " with a text", where,
                  "A conversation is perhaps a system message, then user and assistant in turn.");
  }
  if ((messages.size() - first) % 2 == 0)
    input_error("the last message must be the user's, which the model answers", where);
}

/// The text of a member that is a text, or has one as `content`.
std::string text_of(const JsonObject& config, const char* key) {
  const json::value* const found = config.find(key);
  if (found == nullptr) return {};
  return found->is_object() ? JsonObject(*found, config.path(key)).text("content") : config.text(key);
}

std::string python_call(const std::string& model) {
  const std::filesystem::path path(model);
  const std::string named = is_gguf(model) ? (path.has_parent_path() ? path.parent_path().string() : ".") +
                                                 "\", gguf_file=\"" + path.filename().string()
                                           : model;
  return "Render it with Python, AutoTokenizer.from_pretrained(\"" + named +
         "\").apply_chat_template(messages, add_generation_prompt=True, return_dict=False), and pass the ids "
         "with --tokens.";
}

const ChatForm* form_of(const std::string& text) {
  std::string normal = normal_form(text);
  const std::string system = system_of(normal);
  if (!system.empty()) replace(normal, system, "@");
  const std::string sha256 = sha256_of(normal);
  for (const ChatForm& form : kForms)
    if (sha256.starts_with(form.sha256)) return &form;
  return nullptr;
}

ChatSource template_of(const Gguf& file, const std::string& model) {
  constexpr const char* kKey = "tokenizer.chat_template";
  ChatSource source{std::string(file.text_or(kKey, "")), file.where(kKey), model, {}, {}};
  for (const auto& [key, token] : {std::pair{"tokenizer.ggml.bos_token_id", &source.bos},
                                   {"tokenizer.ggml.eos_token_id", &source.eos}}) {
    if (source.text.empty() || !file.has(key)) continue;
    const std::vector<std::string_view> tokens = file.texts("tokenizer.ggml.tokens");
    if (file.integer(key) >= tokens.size()) input_error("names a token that is not there", file.where(key));
    *token = tokens[file.integer(key)];
  }
  return source;
}

/// A template, if a checkpoint has one; what cannot be read is refused by whoever needs it.
std::string text_if_any(const std::string& model) {
  try {
    return find_chat_template(model).text;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

ChatSource find_chat_template(const std::string& model) {
  if (is_gguf(model)) return template_of(GgufFile(model).content, model);
  ChatSource source;
  source.model = model;
  const auto is_there = [&](const char* name) { return std::filesystem::is_regular_file(model + name); };
  const std::string alone = model + "/chat_template.jinja", path = model + "/tokenizer_config.json";
  source.where = path;
  if (is_there("/tokenizer_config.json")) {
    constexpr std::size_t kMaxValues = 1'000'000;
    const json::value document = parse_strict_json(read_file(path, kMaxTokenizerBytes), path, kMaxValues);
    const JsonObject config(document, path);
    source.bos = text_of(config, "bos_token");
    source.eos = text_of(config, "eos_token");
    const json::value* const found = config.find("chat_template");
    if (found != nullptr && found->is_array()) {  // several, with names
      for (const json::value& value : found->get_array())
        if (const JsonObject named(value, config.path("chat_template")); named.text("name") == "default")
          source.text = named.text("template");
    } else if (found != nullptr) {
      source.text = config.text("chat_template");
    }
  }
  if (is_there("/chat_template.jinja")) {
    source.where = alone;
    source.text = read_file(alone, kMaxTokenizerBytes);
  }
  return source;
}

ChatTemplate::ChatTemplate(ChatSource source)
    : source_(std::move(source)), sha256_(sha256_of(normal_form(source_.text))) {
  if (source_.text.empty())
    input_error("has no chat template", source_.model,
                "Leave --chat out: the model reads texts as they are.");
  form_ = form_of(source_.text);
  if (form_ == nullptr)
    input_error(
        "the chat template is none that kvsim knows (those of ChatML, Llama 3, Mistral, Gemma, Phi-3)",
        source_.where, python_call(source_.model));
  system_ = system_of(normal_form(source_.text));
  for (const auto& [needed, token, name] :
       {std::tuple{form_->bos, &source_.bos, "bos_token"}, {form_->eos, &source_.eos, "eos_token"}})
    if (needed && token->empty())
      input_error(std::string("the chat template needs a ") + name, source_.where);
}

ChatText ChatTemplate::render(std::span<const ChatMessage> messages, const std::string& where) const {
  check_roles(messages, where);
  const ChatForm& form = *form_;
  const ChatFamily& says = form.family;
  const bool has_system = messages[0].role == "system";
  if (has_system && form.system == SystemPlace::nowhere)
    input_error(std::string("the template of ") + form.name + " has no place for a system message", where,
                "Say it in the user's first message.");
  ChatText out;
  if (form.bos) out.text = source_.bos;
  if (form.system == SystemPlace::turn && (has_system || form.dated != nullptr || !system_.empty())) {
    out.text.append(says.before_system).append(form.dated != nullptr ? form.dated : "");
    if (has_system) put(out, messages[0].text, form.strips_user);
    out.text.append(has_system ? "" : system_).append(says.after_system);
  }
  const bool folds = has_system && form.system != SystemPlace::turn;
  if (folds) out.places.emplace_back();
  for (std::size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant") {
      if (form.thinks && messages[i].text.find("</think>") != std::string::npos)
        input_error("message " + std::to_string(i) + " holds </think>", where,
                    "Leave the thoughts of earlier answers out, as the template does.");
      out.text += says.before_answer;
      put(out, messages[i].text, form.strips_answer);
      out.text.append(form.eos ? source_.eos : "").append(says.after_answer);
      continue;
    }
    out.text += says.before_user;
    if (folds && (form.system == SystemPlace::first_user ? i == 1 : i + 1 == messages.size())) {
      out.places[0] = {out.text.size(), out.text.size() + messages[0].text.size(), 0};
      out.text.append(messages[0].text).append("\n\n");
    }
    put(out, messages[i].text, form.strips_user);
    out.text += says.after_user;
  }
  out.text += says.opening;
  return out;
}

std::string ChatTemplate::note() const {
  if (form_->dated == nullptr) return {};
  return "the chat template of " + std::string(form_->name) +
         " says today's date: kvsim writes 26 Jul 2024, the template's own where none is given, so that "
         "results can be repeated";
}

ChatTemplate load_chat_template(const std::string& model) {
  return ChatTemplate(find_chat_template(model));
}

std::string chat_template_digest(const std::string& model) {
  const std::string text = text_if_any(model);
  return text.empty() ? "" : sha256_of(normal_form(text));
}

std::string chat_template_note(const std::string& model) {
  const std::string text = text_if_any(model);
  if (text.empty()) return {};
  return model + " has a chat template, which kvsim does not apply: the model reads the prompt as it is. " +
         (form_of(text) != nullptr ? "--chat applies it." : python_call(model));
}

}  // namespace kvsim::model
