#include <boost/json/value_to.hpp>
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/strict_json.hpp"
#include "tests/unit/model/gguf_bytes.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/model/chat_template.hpp"

namespace kvsim::model::test_chat_template {
namespace {

using Catch::Matchers::Contains;

const std::string kGolden = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/chat/";

/// What tests/golden/chat/make_chat.py made of every template of the folder with jinja2.
const boost::json::object& golden() {
  static const boost::json::value kAll =
      parse_strict_json(read_file(kGolden + "rendered.json", 1 << 20), "rendered.json", 100'000);
  return kAll.as_object();
}

std::string template_text(const std::string& name) {
  return read_file(kGolden + name + ".jinja", 1 << 20);
}

ChatSource source_of(const std::string& name, std::string text) {
  const boost::json::array& tokens = golden().at("tokens").at(name).as_array();
  return {std::move(text), name + ".jinja", "DIR", std::string(tokens[0].as_string()),
          std::string(tokens[1].as_string())};
}

std::vector<ChatMessage> conversation(const boost::json::value& json) {
  std::vector<ChatMessage> out;
  for (const boost::json::value& message : json.as_array())
    out.push_back(
        {std::string(message.at("role").as_string()), std::string(message.at("content").as_string())});
  return out;
}

std::string problem(const ChatTemplate& chat, const std::vector<ChatMessage>& messages) {
  try {
    chat.render(messages, "chat.json");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("published chat templates give what jinja2 makes of them") {
  const boost::json::array& conversations = golden().at("conversations").as_array();
  std::size_t rendered = 0;
  for (const auto& [name, texts] : golden().at("rendered").as_object()) {
    const ChatTemplate chat(source_of(name, template_text(name)));
    for (std::size_t i = 0; i < conversations.size(); ++i) {
      INFO(std::string(name) << ", conversation " << i);
      const std::vector<ChatMessage> messages = conversation(conversations[i]);
      // These two leave a system message out, without a word; kvsim says so.
      const bool drops = (name == "phi3_mini" || name == "phi3_medium") && messages[0].role == "system";
      const boost::json::value& expected = texts.at(i);
      if (drops || expected.is_null()) {
        CHECK_THAT(problem(chat, messages), Contains("no place for a system message"));
        continue;
      }
      const ChatText made = chat.render(messages, "chat.json");
      CHECK(made.text == std::string(expected.as_string()));
      REQUIRE(made.places.size() == messages.size());
      for (std::size_t m = 0; m < messages.size(); ++m) {
        const ChatText::Place& place = made.places[m];
        CHECK(made.text.substr(place.begin, place.end - place.begin) ==
              messages[m].text.substr(place.cut, place.end - place.begin));
      }
      ++rendered;
    }
  }
  CHECK(rendered == 21 * 5 - 2 * 5);  // five templates refuse or drop a system message, in two conversations
}

TEST_CASE("a template's spelling does not matter, its text does") {
  const std::string text = template_text("smollm2");
  const auto first = [&](std::string changed) {
    return ChatTemplate(source_of("smollm2", std::move(changed)))
        .render(std::vector<ChatMessage>{{"user", "Hi"}}, "x")
        .text;
  };
  const std::string standard = first(text);
  CHECK_THAT(standard,
             Contains("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by "
                      "Hugging Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
  std::string respelled = text + "\n";
  for (std::size_t at = 0; (at = respelled.find("\n'", at)) != std::string::npos;)
    respelled.replace(at, 1, "\\n");
  CHECK(respelled != text);
  CHECK(first(respelled) == standard);
  std::string renamed = text;
  renamed.replace(renamed.find("named SmolLM"), 12, "without name");
  CHECK_THAT(first(renamed), Contains("assistant without name, trained"));
  // Every other change of one character of any template is another template.
  for (const auto& [name, texts] : golden().at("rendered").as_object()) {
    const std::string whole = template_text(name);
    for (std::size_t at = 0; at < whole.size(); at += 7) {
      std::string changed = whole;
      changed[at] = changed[at] == 'x' ? 'y' : 'x';
      try {
        const ChatTemplate known(source_of(name, changed));
        INFO(std::string(name) << " at " << at);
        // Known it may be only by what it says of itself.
        const std::size_t system = whole.find("system\nYou are") == std::string::npos
                                       ? whole.find("system\\nYou are")
                                       : whole.find("system\nYou are");
        CHECK(system != std::string::npos);
        CHECK(at > system);
        CHECK(at < whole.find("<|im_end|>", system));
      } catch (const Error& error) {
        CHECK_THAT(error.what(), Contains("none that kvsim knows"));
      }
    }
  }
}

TEST_CASE("an unknown template is refused with the call of Python that renders it") {
  try {
    ChatTemplate unknown({"{{ messages }}", "DIR/chat_template.jinja", "DIR", "", ""});
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    CHECK(error.where() == "DIR/chat_template.jinja");
    CHECK_THAT(error.hint(), Contains("from_pretrained(\"DIR\").apply_chat_template(messages, "
                                      "add_generation_prompt=True, return_dict=False)") &&
                                 Contains("--tokens"));
  }
  CHECK_THROWS_WITH(ChatTemplate({"", "x", "DIR", "", ""}), Contains("has no chat template"));
  CHECK_THROWS_WITH(ChatTemplate({template_text("llama3"), "x", "DIR", "", ""}),
                    Contains("needs a bos_token"));
  CHECK_THROWS_WITH(ChatTemplate({template_text("mistral_v01"), "x", "DIR", "<s>", ""}),
                    Contains("needs a eos_token"));
}

TEST_CASE("conversations that a template would render otherwise are refused") {
  const ChatTemplate chat(source_of("qwen3", template_text("qwen3")));
  CHECK_THAT(problem(chat, {}), Contains("the last message must be the user's"));
  CHECK_THAT(problem(chat, {{"system", "a"}}), Contains("the last message must be the user's"));
  CHECK_THAT(problem(chat, {{"user", "a"}, {"assistant", "b"}}), Contains("the last message must be"));
  CHECK_THAT(problem(chat, {{"user", "a"}, {"user", "b"}}),
             Contains("message 1 is not one of the assistant"));
  CHECK_THAT(problem(chat, {{"tool", "a"}}), Contains("message 0 is not one of the user"));
  CHECK_THAT(problem(chat, {{"user", ""}}), Contains("message 0 is not one of the user with a text"));
  CHECK_THAT(problem(chat, {{"user", "a"}, {"assistant", "<think>b</think>c"}, {"user", "d"}}),
             Contains("message 1 holds </think>"));
  CHECK(problem(ChatTemplate(source_of("chatml", template_text("chatml"))),
                {{"user", "a"}, {"assistant", "<think>b</think>c"}, {"user", "d"}}) == "accepted");
  // Text of nothing but white space, which a template strips.
  CHECK(ChatTemplate(source_of("gemma3", template_text("gemma3")))
            .render(std::vector<ChatMessage>{{"user", " \n"}}, "x")
            .text == "<bos><start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\n");
}

TEST_CASE("a checkpoint's folder says its template") {
  test::Scratch folder;
  const std::string path = folder.file(".");
  const auto put = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
  };
  CHECK(chat_template_note(path).empty());
  CHECK_THROWS_WITH(load_chat_template(path), Contains("has no chat template"));
  put("tokenizer_config.json", "[]");
  CHECK(chat_template_note(path).empty());
  CHECK_THROWS_WITH(load_chat_template(path), Contains("tokenizer_config.json"));
  put("tokenizer_config.json",
      R"({"chat_template":"{{ x }}","bos_token":{"content":"<s>"},"eos_token":"</s>"})");
  CHECK_THAT(chat_template_note(path),
             Contains("has a chat template, which kvsim does not apply") && Contains("apply_chat_template"));
  put("tokenizer_config.json",
      R"({"chat_template":[{"name":"tool_use","template":"{{ x }}"},{"name":"default","template":"{{ y }}"}]})");
  CHECK(find_chat_template(path).text == "{{ y }}");
  put("tokenizer_config.json",
      R"({"chat_template":"{{ x }}","bos_token":{"content":"<s>"},"eos_token":"</s>"})");
  put("chat_template.jinja", template_text("mistral_v02"));
  CHECK_THAT(chat_template_note(path),
             Contains("has a chat template, which kvsim does not apply") && Contains("--chat applies it"));
  CHECK(load_chat_template(path).render(std::vector<ChatMessage>{{"user", "a"}}, "x").text ==
        "<s>[INST] a [/INST]");
}

TEST_CASE("a GGUF file carries its chat template") {
  using test::entry;
  test::Scratch folder;
  const auto file = [&](const std::vector<std::string>& more) {
    std::vector<std::string> entries{
        test::array("tokenizer.ggml.tokens", std::vector<std::string>{"<unk>", "<s>", "</s>"}),
        entry("tokenizer.ggml.eos_token_id", 2u)};
    entries.insert(entries.end(), more.begin(), more.end());
    std::ofstream(folder.file("x.gguf"), std::ios::binary) << test::gguf(entries);
    return folder.file("x.gguf");
  };
  const std::string bos = entry("tokenizer.ggml.bos_token_id", 1u), key = "tokenizer.chat_template";
  const std::string mistral = template_text("mistral_v01");
  const std::vector<ChatMessage> messages{{"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  const std::string known = file({bos, entry(key, mistral)});
  CHECK(load_chat_template(known).render(messages, "x").text == "<s>[INST] a [/INST]b</s> [INST] c [/INST]");
  CHECK_THAT(chat_template_note(known), Contains("--chat applies it"));
  CHECK_THAT(chat_template_note(file({bos, entry(key, std::string("{{ x }}"))})),
             Contains("gguf_file=\"x.gguf\""));
  CHECK(chat_template_note(file({bos})).empty());
  CHECK_THROWS_WITH(load_chat_template(file({bos})), Contains("has no chat template"));
  CHECK_THROWS_WITH(load_chat_template(file({entry("tokenizer.ggml.bos_token_id", 3u), entry(key, mistral)})),
                    Contains("names a token that is not there"));
}

}  // namespace kvsim::model::test_chat_template
