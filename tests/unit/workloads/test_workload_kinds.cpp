// Tests prompts of every kind, counted with the sample model's tokenizer, against their specification.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <sstream>

#include "sim/base/error.hpp"
#include "sim/base/sha256.hpp"
#include "tests/unit/workloads/sample_tokenizer.hpp"
#include "traces/workloads/passages.hpp"
#include "traces/workloads/workload.hpp"

namespace kvsim::workload::test_workload_kinds {
namespace {

std::uint64_t count_tokens(const SpannedText& text) {
  return sample_tokenizer().encode(text.text()).size();
}

WorkloadOptions options_of(std::uint64_t tokens, std::uint64_t count, std::uint64_t seed = 1) {
  WorkloadOptions options;
  options.context_tokens = tokens;
  options.count = count;
  options.seed = seed;
  options.task.passages = &builtin_passages();
  return options;
}

std::vector<PromptItem> made(const std::string& kind, const WorkloadOptions& options) {
  std::vector<PromptItem> items;
  make_workload(kind_named(kind), options, count_tokens,
                [&](const PromptItem& item) { items.push_back(item); });
  return items;
}

std::string text_of(const PromptItem& item, Role role) {
  std::string text;
  for (const RoleSpan& span : item.spans)
    if (span.role == role) text += item.prompt.substr(span.begin, span.end - span.begin);
  return text;
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// The smallest of the lengths of tests that holds a kind's prompt: some ask in many words.
std::uint64_t least_length(const Kind& kind) {
  const std::string name = kind.name;
  return name == "needle-multi-query" || name == "documents-two" || name == "passage-question" ? 600 : 120;
}

/// Whether a question and an answer of the same conversation come later, in a longer prompt.
bool has_more_to_come(const PromptItem& item) {
  return item.kind == "conversation" && item.turn + 1 < item.turns;
}

}  // namespace

TEST_CASE("prompts of every kind keep to every length") {
  for (const Kind& kind : kinds()) {
    for (const std::uint64_t tokens : {160, 333, 1000, 2048, 3001}) {
      if (tokens < least_length(kind)) continue;
      for (const PromptItem& item : made(kind.name, options_of(tokens, 4))) {
        INFO(item.id);
        CHECK(item.tokens == sample_tokenizer().encode(item.prompt).size());
        CHECK(item.tokens <= tokens);
        // The longest word of the passages has about ten tokens.
        if (!has_more_to_come(item)) CHECK(item.tokens + 12 > tokens);
        CHECK(item.context_tokens == tokens);
      }
    }
  }
}

TEST_CASE("lengths are in tokens of any tokenizer, here words") {
  const auto words = [](const SpannedText& text) { return words_of(text.text()).size(); };
  for (const Kind& kind : kinds()) {
    make_workload(kind, options_of(300, 4), words, [&](const PromptItem& item) {
      INFO(item.id);
      if (!has_more_to_come(item)) CHECK(item.tokens == 300);  // no cut of a text adds more than one word
    });
  }
}

TEST_CASE("question and context cover the prompt, evidence lies in the context") {
  for (const Kind& kind : kinds()) {
    for (const PromptItem& item : made(kind.name, options_of(600, 4))) {
      INFO(item.id);
      std::uint64_t covered = 0;
      RoleSpan context;
      bool evidence = false;
      for (const RoleSpan& span : item.spans) {
        CHECK(span.begin < span.end);
        CHECK(span.end <= item.prompt.size());
        if (span.role == Role::evidence) {
          evidence = true;
          CHECK(span.begin >= context.begin);
          CHECK(span.end <= context.end);
          continue;
        }
        CHECK(span.begin == covered);
        covered = span.end;
        if (span.role == Role::context) context = span;
      }
      CHECK(covered == item.prompt.size());
      CHECK(evidence == (item.expect != Expect::nothing));
      CHECK((item.expect == Expect::nothing || item.spans.back().role == Role::question ||
             item.spans[item.spans.size() - 1].end == item.prompt.size()));
    }
  }
}

TEST_CASE("the evidence contains the answer after the question's own words") {
  for (const char* kind : {"needle", "needle-multi-key", "turns", "copy"}) {
    for (const PromptItem& item : made(kind, options_of(700, 6))) {
      INFO(item.id);
      const std::string asked = text_of(item, Role::question) + item.answers.at(0);
      CHECK(item.answers.size() == 1);
      CHECK(occurrences(text_of(item, Role::evidence), asked) == 1);
      CHECK(occurrences(item.prompt, text_of(item, Role::question)) == 2);  // once in the context, once at
                                                                            // the end
      CHECK(item.prompt.ends_with(text_of(item, Role::question)));
    }
  }
}

TEST_CASE("needles: number of facts and keys") {
  WorkloadOptions options = options_of(900, 3);
  options.task.facts = 7;
  for (const auto& [kind, facts, evidence] : {std::tuple{"needle", 1U, 1U},
                                              {"needle-multi-key", 7U, 1U},
                                              {"needle-multi-value", 7U, 7U},
                                              {"turns", 7U, 1U}}) {
    for (const PromptItem& item : made(kind, options)) {
      INFO(item.id);
      CHECK(occurrences(text_of(item, Role::context), " >>") == facts);
      CHECK(occurrences(text_of(item, Role::evidence), " >>") == evidence);
      CHECK(item.answers.size() == (item.expect == Expect::any ? 7U : 1U));
      for (const std::string& answer : item.answers)
        CHECK(occurrences(text_of(item, Role::evidence), answer + " >>") == 1);
    }
  }
}

TEST_CASE("two documents: their numbers are asked for, and both are evidence") {
  for (const PromptItem& item : made("documents-two", options_of(900, 12))) {
    REQUIRE(item.documents.size() == 4);
    REQUIRE(item.answers.size() == 2);
    CHECK(item.expect == Expect::holds_all);
    std::vector<std::size_t> holding;
    for (const std::string& answer : item.answers)
      for (std::size_t i = 0; i < item.documents.size(); ++i) {
        const ByteSpan& place = item.documents[i];
        const std::string document = item.prompt.substr(place.begin, place.end - place.begin);
        CHECK(occurrences(document, " One of the special magic numbers for ") == 1);
        if (document.find(answer) != std::string::npos) holding.push_back(i);
      }
    REQUIRE(holding.size() == 2);
    CHECK(holding[0] < holding[1]);
    for (const std::string& answer : item.answers)
      CHECK(occurrences(text_of(item, Role::evidence), answer) == 1);
    CHECK(occurrences(text_of(item, Role::evidence), " One of the special") == 2);
  }
}

TEST_CASE("needles as sentences") {
  WorkloadOptions options = options_of(900, 3);
  options.task.style = Style::sentences;
  for (const PromptItem& item : made("needle", options)) {
    const std::string question = text_of(item, Role::question);
    CHECK(question.starts_with(" The code of "));
    CHECK(question.ends_with(" is"));
    CHECK(text_of(item, Role::evidence) == question + item.answers.at(0) + ".");
  }
  for (const PromptItem& item : made("needle-multi-value", options)) {
    CHECK(item.expect == Expect::all);
    CHECK(item.answers.size() == 4);
    CHECK(occurrences(text_of(item, Role::evidence), " The code of ") == 4);
  }
}

/// RULER's template of a prompt and of its answer's beginning (scripts/data/synthetic/constants.py), and what
/// its script makes of them where one number is asked for.
std::pair<std::string, std::string> ruler_template(bool several) {
  std::string text =
      "Some special magic {what} are hidden within the following text. Make sure to memorize it. I will quiz "
      "you "
      "about the {what} afterwards.\n{context}\nWhat are all the special magic {what} for {query} mentioned "
      "in "
      "the provided text?";
  std::string prefix = " The special magic {what} for {query} mentioned in the provided text are";
  const auto replace = [&](const std::string& from, const std::string& to) {
    for (std::string* each : {&text, &prefix})
      for (std::size_t at = each->find(from); at != std::string::npos; at = each->find(from, at + to.size()))
        each->replace(at, from.size(), to);
  };
  if (!several) {
    replace("Some", "A");
    replace("are all", "is");
    replace("are", "is");
  }
  replace("{what}", several ? "numbers" : "number");
  return {text, prefix};
}

std::string filled(std::string text, const std::string& name, const std::string& value) {
  const std::size_t at = text.find(name);
  REQUIRE(at != std::string::npos);
  return text.replace(at, name.size(), value);
}

TEST_CASE("needles in RULER's words") {
  WorkloadOptions options = options_of(1200, 4);
  options.task.style = Style::ruler;
  for (const auto& [kind, facts, asked] : {std::tuple{"needle", 1U, 1U},
                                           {"needle-multi-key", 4U, 1U},
                                           {"needle-multi-value", 4U, 4U},
                                           {"needle-multi-query", 4U, 4U},
                                           {"turns", 4U, 1U}}) {
    for (const PromptItem& item : made(kind, options)) {
      INFO(item.id);
      const std::string context = text_of(item, Role::context), evidence = text_of(item, Role::evidence);
      CHECK(occurrences(context, " One of the special magic numbers for ") == facts);
      CHECK(occurrences(evidence, " One of the special magic numbers for ") == asked);
      CHECK(item.expect == Expect::holds_all);
      REQUIRE(item.answers.size() == asked);
      // Each answer is a number of seven digits, and its fact names the key.
      std::vector<std::string> keys;
      for (const std::string& answer : item.answers) {
        CHECK((answer.size() == 8 && std::stoull(answer) >= 1'000'000));
        const std::string end = " is:" + answer + ".";
        const std::size_t at = evidence.find(end);
        REQUIRE(at != std::string::npos);
        const std::string key =
            evidence.substr(evidence.rfind(' ', at - 1) + 1, at - evidence.rfind(' ', at - 1) - 1);
        if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
      }
      CHECK(keys.size() == (std::string(kind) == "needle-multi-query" ? 4U : 1U));
      std::string query = keys[0];
      if (keys.size() > 1) query = keys[0] + ", " + keys[1] + ", " + keys[2] + ", and " + keys[3];
      const auto [text, prefix] = ruler_template(asked > 1);
      CHECK(item.prompt ==
            filled(filled(text, "{query}", query), "{context}", context) + filled(prefix, "{query}", query));
    }
  }
  // In a conversation the earlier questions stand with their answers.
  const std::vector<PromptItem> turns = made("conversation", options);
  for (const PromptItem& item : turns)
    CHECK(occurrences(text_of(item, Role::question), "\nWhat is the special magic number for ") ==
          item.turn + 1);
  CHECK(occurrences(turns[1].prompt, "text is" + turns[0].answers.at(0) + ".\nWhat is the") == 1);
}

TEST_CASE("examples stand before the prompt, with their answers and words of their own") {
  for (const char* kind : {"copy", "variables", "common-words", "frequent-words", "needle-multi-key"}) {
    const std::vector<PromptItem> without = made(kind, options_of(700, 3));
    WorkloadOptions options = options_of(2000, 3);
    options.task.examples = 2;
    const std::vector<PromptItem> with = made(kind, options);
    for (std::size_t i = 0; i < with.size(); ++i) {
      INFO(with[i].id);
      CHECK(with[i].answers == without[i].answers);  // the task is the same
      const std::string question = text_of(without[i], Role::question);
      const bool counts = question.starts_with("Below is a list of words.");
      if (!counts) CHECK(text_of(with[i], Role::evidence) == text_of(without[i], Role::evidence));
      REQUIRE(with[i].spans.front().role == Role::question);
      const std::string shown = with[i].prompt.substr(0, with[i].spans.front().end);
      CHECK(with[i].spans.front().begin == 0);
      // What is asked at the end of the prompt is asked in each example, too, in other words.
      if (counts) CHECK(occurrences(with[i].prompt, question.substr(question.rfind("\n\n"))) == 3);
      if (std::string(kind) == "variables") CHECK(occurrences(with[i].prompt, " get ") == 3);
      const std::string examples = shown.substr(0, shown.rfind("\n\n"));
      const std::string last = examples.substr(examples.rfind("\n\n") + 2);
      for (const std::string& answer : with[i].answers) CHECK(last.find(answer + " ") == std::string::npos);
    }
  }
  WorkloadOptions options = options_of(600, 1);
  options.task.examples = 1;
  CHECK_THROWS_WITH(made("text", options), Catch::Contains("--examples"));
  options.task.examples = kMaxExamples + 1;
  CHECK_THROWS_WITH(made("copy", options), Catch::Contains("--examples"));
  // Thirteen names: eleven for a chain of eight copies and two others, and no eleven more.
  options.task.examples = 1;
  options.task.hops = 8;
  CHECK_THROWS_WITH(made("variables", options), Catch::Contains("--examples"));
}

TEST_CASE("an example of variables is solved by running its settings, with other names than the prompt's") {
  WorkloadOptions options = options_of(900, 6);
  options.task.examples = 2;
  for (const PromptItem& item : made("variables", options)) {
    INFO(item.id);
    std::map<std::string, std::string> value;
    std::set<std::string> names;
    std::uint64_t solved = 0;
    const std::vector<std::string> words = words_of(item.prompt);
    for (std::size_t i = 0; i + 2 < words.size(); ++i) {
      if (words[i] == "set" && words[i + 1].size() == 1 && words[i + 2].find(';') != std::string::npos) {
        const std::string right = words[i + 2].substr(0, words[i + 2].find(';'));
        CHECK(names.insert(words[i + 1]).second);  // set once, in one example or the prompt
        value[words[i + 1]] = right;
      }
      if (words[i] != "get" || words[i + 1].size() != 1) continue;
      const std::string& first = value[words[i + 1]];
      if (words[i + 2] == first && i + 3 < words.size() && words[i + 3] == value[first]) ++solved;
    }
    CHECK(names.size() == 12);
    CHECK(solved == 2);
  }
}

TEST_CASE(
    "questions about passages: the paragraph holds the answer, and the text around it does not say it "
    "again") {
  for (const PassageQuestion& question : passage_questions()) {
    INFO(question.question);
    std::size_t times = 0;
    for (const Passage& passage : builtin_passages()) times += occurrences(passage.text, question.clue);
    CHECK(times == 1);
    const std::string paragraph = paragraph_of(question);
    CHECK(paragraph.find(question.clue) != std::string::npos);
    CHECK(paragraph.find("\n\n") == std::string::npos);
    for (const std::string& answer : question.answers)
      CHECK(question.question.find(answer) == std::string::npos);
    CHECK(std::any_of(question.answers.begin(), question.answers.end(), [&](const std::string& answer) {
      return paragraph.find(answer) != std::string::npos;
    }));
  }
  std::set<std::string> asked;
  for (const PromptItem& item : made("passage-question", options_of(1500, 24))) {
    INFO(item.id);
    const std::string evidence = text_of(item, Role::evidence);
    CHECK(occurrences(item.prompt, evidence) == 1);
    CHECK(is_right(evidence, item.expect, item.answers));
    const std::string question = text_of(item, Role::question);
    asked.insert(question);
    CHECK(occurrences(question, "Only give me the answer and do not output any other words.\n\n") == 2);
    CHECK(question.ends_with("? Answer:"));
  }
  CHECK(asked.size() >= 12);
}

TEST_CASE("long answers are asked for, and none is right") {
  for (const char* kind : {"summary", "continuation", "list", "explanation"})
    for (const PromptItem& item : made(kind, options_of(400, 2))) {
      CHECK((item.expect == Expect::nothing && item.answers.empty() && item.answer_tokens == 0));
      CHECK(text_of(item, Role::question).starts_with("\n\n"));
      CHECK(item.prompt.ends_with(text_of(item, Role::question)));
    }
}

TEST_CASE("answers of successive needles are at many depths") {
  std::set<std::uint64_t> tenths;
  for (const PromptItem& item : made("needle", options_of(2000, 20))) {
    for (const RoleSpan& span : item.spans)
      if (span.role == Role::evidence) tenths.insert(span.begin * 10 / item.prompt.size());
  }
  CHECK(tenths.size() >= 9);
}

TEST_CASE("passkey: the number occurs once, with its reminder") {
  std::set<std::string> numbers;
  for (const PromptItem& item : made("passkey", options_of(400, 5))) {
    const std::string number = item.answers.at(0).substr(1);
    numbers.insert(number);
    CHECK(number.size() == 5);
    CHECK(text_of(item, Role::evidence) == " The pass key is " + number + ". Keep " + number + " in mind.");
    CHECK(occurrences(item.prompt, number) == 2);
    CHECK(item.spans.front().role == Role::question);  // the instruction
  }
  CHECK(numbers.size() == 5);
}

TEST_CASE("variables: the answer follows from running the settings") {
  for (const std::uint64_t hops : {0, 1, 3, 8}) {
    WorkloadOptions options = options_of(700, 5);
    options.task.hops = hops;
    for (const PromptItem& item : made("variables", options)) {
      INFO(item.id << " hops " << hops);
      std::map<std::string, std::string> value;  // for each variable: the names that lead to its value, and
                                                 // the value
      const std::vector<std::string> words = words_of(text_of(item, Role::context));
      std::size_t settings = 0;
      for (std::size_t i = 0; i + 2 < words.size(); ++i) {
        if (words[i] != "set" || words[i + 1].size() != 1 || !words[i + 2].ends_with(';')) continue;
        const std::string right = words[i + 2].substr(0, words[i + 2].size() - 1);
        value[words[i + 1]] = " " + right + (value.contains(right) ? value[right] : "");
        ++settings;
      }
      CHECK(settings == hops + 3);
      CHECK(item.answers.at(0) == value.at(words_of(text_of(item, Role::question)).at(1)));
      CHECK(words_of(item.answers[0]).size() == hops + 1);
      CHECK(occurrences(text_of(item, Role::evidence), " set ") == hops + 1);
    }
  }
}

TEST_CASE("word counts: the answers are the most frequent words, by a margin") {
  for (const auto& [kind, asked] : {std::pair{"common-words", 10U}, {"frequent-words", 3U}}) {
    for (const std::uint64_t tokens : {120, 200, 1000, 8000}) {
      for (const PromptItem& item : made(kind, options_of(tokens, 2))) {
        INFO(item.id);
        std::map<std::string, std::uint64_t> times;
        for (const std::string& word : words_of(text_of(item, Role::context))) ++times[word];
        std::vector<std::uint64_t> of_answers, of_others;
        for (const std::string& answer : item.answers) {
          of_answers.push_back(times.at(answer.substr(1)));
          times.erase(answer.substr(1));
        }
        for (const auto& [word, n] : times) of_others.push_back(n);
        CHECK(of_answers.size() == asked);
        const std::uint64_t least = *std::min_element(of_answers.begin(), of_answers.end());
        const std::uint64_t most = *std::max_element(of_others.begin(), of_others.end());
        CHECK(2 * least >= 3 * most);
        if (asked == 3) {
          CHECK(std::is_sorted(of_answers.rbegin(), of_answers.rend()));
          CHECK(of_answers[0] >= 3 * of_answers[1]);  // shares of 1 against 1/4, rounded down
        }
      }
    }
  }
}

TEST_CASE("turns: each question about a context is a prompt") {
  const std::vector<PromptItem> items =
      made("turns", options_of(600, 10));  // contexts of 4, 4 and 2 questions
  std::map<std::string, std::set<std::string>> contexts, questions;
  for (std::size_t i = 0; i < items.size(); ++i) {
    CHECK(items[i].turn == i % 4);
    CHECK(items[i].turns == 4);
    contexts[items[i].context_id].insert(text_of(items[i], Role::context));
    questions[items[i].context_id].insert(text_of(items[i], Role::question));
  }
  CHECK(contexts.size() == 3);
  for (const auto& [id, texts] : contexts) CHECK(texts.size() == 1);
  CHECK(questions.at("turns-600-s1-c0").size() == 4);
}

TEST_CASE("a prompt does not depend on the number of prompts, nor its task on the length") {
  for (const Kind& kind : kinds()) {
    const std::uint64_t tokens = std::max<std::uint64_t>(300, least_length(kind));
    const std::vector<PromptItem> few = made(kind.name, options_of(tokens, 2)),
                                  many = made(kind.name, options_of(tokens, 5)),
                                  longer = made(kind.name, options_of(2 * tokens, 2));
    for (std::size_t i = 0; i < few.size(); ++i) {
      CHECK(json_line(few[i]) == json_line(many[i]));
      CHECK(few[i].answers == longer[i].answers);
    }
    CHECK(made(kind.name, options_of(tokens, 1, 2)).at(0).prompt != few.at(0).prompt);
    CHECK(many[0].prompt != many[4].prompt);
  }
}

TEST_CASE("the bytes of a workload do not change") {
  // A change of a digest changes the prompts of every seed: the change's message must say so.
  kvsim::Sha256 short_prompts, wordy, documents, two;
  for (const Kind& kind : kinds()) {
    const std::string name = kind.name;
    const bool asks_in_words = name == "needle-multi-query" || name == "documents-two" ||
                               name == "passage-question" || name == "summary" || name == "continuation" ||
                               name == "list" || name == "explanation";
    for (const PromptItem& item : made(kind.name, options_of(asks_in_words ? 600 : 256, 3))) {
      const std::string line = json_line(item) + "\n";
      (name == "documents"       ? documents
       : name == "documents-two" ? two
       : asks_in_words           ? wordy
                                 : short_prompts)
          .update(line.data(), line.size());
    }
  }
  for (const char* kind :
       {"needle-multi-key", "needle-multi-value", "conversation", "common-words", "variables"}) {
    WorkloadOptions options = options_of(900, 3);
    options.task.style = Style::ruler;
    options.task.examples = 1;
    for (const PromptItem& item : made(kind, options)) {
      const std::string line = json_line(item) + "\n";
      wordy.update(line.data(), line.size());
    }
  }
  CHECK(short_prompts.hex() == "c6608e2dda86b530b469c5d11d5973c8d4581ed3565d9b8b9bae02224332fb67");
  CHECK(documents.hex() == "831293b41cac89936e4e7ea5b3de0320f2e793cc378c19174ecc2030a37872a5");
  CHECK(two.hex() == "de497a043574d580ee64ad683e2c98510a5f8ae193be6b07c87516d12f894bc5");
  CHECK(wordy.hex() == "f80a80f1f4a549f9d1925d659c5b9de07839d33e7eebb7277066c3b7f5544745");
}

TEST_CASE("a context too small for its task is refused with the smallest that works") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    std::string message;
    try {
      made(kind.name, options_of(1, 1));
    } catch (const kvsim::Error& error) {
      CHECK(error.kind() == kvsim::ErrorKind::usage);
      message = error.what();
    }
    CHECK(message.find("--context") != std::string::npos);
    const std::size_t at = message.find("At least ");
    REQUIRE(at != std::string::npos);
    const std::uint64_t least = std::stoull(message.substr(at + 9));
    const std::uint64_t turns = std::string(kind.name) == "conversation" ? 4 : 1;
    CHECK(made(kind.name, options_of(least, turns)).back().tokens == least);
    CHECK_THROWS_AS(made(kind.name, options_of(least - 1, 1)), kvsim::Error);
  }
}

TEST_CASE("options out of range are refused by name") {
  const auto refused = [](const WorkloadOptions& options) {
    try {
      made("needle-multi-key", options);
    } catch (const kvsim::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  WorkloadOptions options = options_of(500, 0);
  CHECK_THAT(refused(options), Catch::Contains("--count"));
  options = options_of(kMaxContextTokens + 1, 1);
  CHECK_THAT(refused(options), Catch::Contains("--context"));
  options = options_of(500, 1);
  options.task.facts = 0;
  CHECK_THAT(refused(options), Catch::Contains("--facts"));
  options.task.facts = kMaxFacts + 1;
  CHECK_THAT(refused(options), Catch::Contains("--facts"));
  options.task.facts = 1;
  options.task.hops = kMaxHops + 1;
  CHECK_THAT(refused(options), Catch::Contains("--hops"));
  CHECK_THROWS_WITH(kind_named("nedle"), Catch::Contains("Did you mean needle"));
}

}  // namespace kvsim::workload::test_workload_kinds
