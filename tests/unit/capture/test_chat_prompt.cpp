#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "tests/unit/traces/scratch.hpp"
#include "traces/capture/chat_prompt.hpp"

namespace kvsim::capture::test_chat_prompt {
namespace {

using Catch::Matchers::Contains;
using workload::Expect;
using workload::Role;
using workload::RoleSpan;

const std::string kBefore = "<|im_start|>user\n", kAfter = "<|im_end|>\n<|im_start|>assistant\n";

/// A checkpoint's folder that has only a template of tests/golden/chat.
struct Model {
  explicit Model(const std::string& name) {
    const std::string from = std::string(KVSIM_SOURCE_DIR) + "/tests/golden/chat/" + name + ".jinja";
    std::ofstream(folder.file("chat_template.jinja")) << read_file(from, 1 << 20);
    std::ofstream(folder.file("tokenizer_config.json")) << R"({"bos_token":"<bos>","eos_token":"<eos>"})";
  }
  std::string path() const { return folder.file("."); }
  test::Scratch folder;
};

WorkloadItem fact() {
  //          0         1         2
  //          0123456789012345678901234567
  return {.id = "needle",
          .prompt = "  Text << a b >> more << a",
          .spans = {{0, 21, Role::context}, {7, 16, Role::evidence}, {21, 26, Role::question}},
          .expect = Expect::first,
          .answers = {" b"}};
}

std::string text_of(const WorkloadItem& item, Role role) {
  std::string out;
  for (const RoleSpan& span : item.spans)
    if (span.role == role) out += item.prompt.substr(span.begin, span.end - span.begin) + '|';
  return out;
}

}  // namespace

TEST_CASE("a prompt's parts are where they were in the message of the user") {
  WorkloadItem item = fact();
  put_into_chat(item, model::load_chat_template(Model("chatml").path()));
  CHECK(item.prompt == kBefore + fact().prompt + kAfter);
  CHECK(text_of(item, Role::context) == "  Text << a b >> more|");
  CHECK(text_of(item, Role::evidence) == "<< a b >>|");
  CHECK(text_of(item, Role::question) == " << a|");
  CHECK(text_of(item, Role::markup) == kBefore + "|" + kAfter + "|");
  CHECK(item.expect == Expect::holds_any);
  CHECK(item.answers == std::vector<std::string>{"b"});
  CHECK(item.chat.size() == 64);
}

TEST_CASE("a template that strips a text moves its parts") {
  WorkloadItem item = fact();
  item.prompt += " \n";
  item.spans[2].end += 2;
  put_into_chat(item, model::load_chat_template(Model("gemma2").path()));
  CHECK(item.prompt ==
        "<bos><start_of_turn>user\nText << a b >> more << a<end_of_turn>\n<start_of_turn>model\n");
  CHECK(text_of(item, Role::context) == "Text << a b >> more|");
  CHECK(text_of(item, Role::evidence) == "<< a b >>|");
  CHECK(text_of(item, Role::question) == " << a|");
}

TEST_CASE("the begin of an answer follows the template's opening") {
  WorkloadItem item = fact();
  item.answer_prefix = 4;  // "<< a"
  item.expect = Expect::holds_all;
  put_into_chat(item, model::load_chat_template(Model("chatml").path()));
  CHECK(item.prompt == kBefore + "  Text << a b >> more " + kAfter + "<< a");
  CHECK(text_of(item, Role::question) == " |<< a|");
  CHECK(text_of(item, Role::markup) == kBefore + "|" + kAfter + "|");
  CHECK(item.answers == std::vector<std::string>{" b"});  // which goes on
}

TEST_CASE("a conversation's last message is the question, what came before the context") {
  WorkloadItem item;
  item.id = "chat.json";
  item.prompt =
      R"( [{"role":"system","content":"S"},{"role":"user","content":"U"},{"role":"assistant","content":"A"},
                     {"role":"user","content":"Q"}])";
  SECTION("turns") {
    put_into_chat(item, model::load_chat_template(Model("chatml").path()));
    CHECK(
        item.prompt ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
    CHECK(text_of(item, Role::context) == "S|U|A|");
    CHECK(text_of(item, Role::question) == "Q|");
    CHECK(text_of(item, Role::markup) ==
          "<|im_start|>system\n|<|im_end|>\n<|im_start|>user\n|<|im_end|>\n<|im_start|>assistant\n|"
          "<|im_end|>\n<|im_start|>user\n|<|im_end|>\n<|im_start|>assistant\n|");
  }
  SECTION("a system message inside the last turn") {
    put_into_chat(item, model::load_chat_template(Model("mistral_nemo").path()));
    CHECK(item.prompt == "<bos>[INST]U[/INST]A<eos>[INST]S\n\nQ[/INST]");
    CHECK(text_of(item, Role::context) == "U|A|S|");
    CHECK(text_of(item, Role::question) == "Q|");
  }
  SECTION("one message has no parts") {
    item.prompt = R"([{"role":"user","content":"Q"}])";
    put_into_chat(item, model::load_chat_template(Model("chatml").path()));
    CHECK(item.prompt == kBefore + "Q" + kAfter);
    CHECK(text_of(item, Role::question).empty());
    CHECK(text_of(item, Role::markup) == kBefore + "|" + kAfter + "|");
  }
  SECTION("what is no conversation is a text") {
    for (const char* text : {"[1, 2]", "[", "[]", "[{\"a\": 1}]", "{\"role\": 1}"}) {
      item.spans.clear();
      item.prompt = text;
      put_into_chat(item, model::load_chat_template(Model("chatml").path()));
      CHECK(item.prompt == kBefore + text + kAfter);
    }
    item.spans.clear();
    item.prompt = R"([{"role":"user","content":1}])";
    CHECK_THROWS_WITH(put_into_chat(item, model::load_chat_template(Model("chatml").path())),
                      Contains("chat.json message 0 content"));
  }
}

TEST_CASE("who reads prompts as they are is told of a template, once, and of another one") {
  const Model model("chatml"), other("gemma2");
  std::vector<WorkloadItem> items{fact(), fact()};
  std::vector<std::string> notes;
  apply_chat(items, model.path(), false, notes);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Contains("has a chat template, which kvsim does not apply"));
  CHECK(items[1].prompt == fact().prompt);
  notes.clear();
  apply_chat(items, model.path(), true, notes);
  CHECK(notes.empty());
  CHECK(items[1].prompt == kBefore + fact().prompt + kAfter);
  apply_chat(items, model.path(), false, notes);  // they went through it
  CHECK(notes.empty());
  apply_chat(items, other.path(), false, notes);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Contains("went through a chat template that is not the one of"));
  CHECK_THROWS_WITH(apply_chat(items, model.path(), true, notes),
                    Contains("went through a chat template when it was made"));
  std::vector<WorkloadItem> dated{fact()};
  notes.clear();
  apply_chat(dated, Model("llama3_2").path(), true, notes);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Contains("26 Jul 2024"));
}

}  // namespace kvsim::capture::test_chat_prompt
