// Study files: defaults, what is refused and where, the effective text, and edits between two runs.
#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "analysis/study/config/study_changes.hpp"
#include "analysis/study/config/study_config.hpp"
#include "analysis/study/config/study_fields.hpp"
#include "sim/base/error.hpp"

namespace kvsim::analysis::test_study_config {

using Catch::Contains;

namespace {

StudyConfig study(const std::string& text) {
  return read_study(text, "s.json");
}

/// Sets every field there is to something that is not its default.
constexpr const char* kEveryField = R"json({
  "name": "n", "title": "t",
  "traces": [{"files": "a.h5", "name": "b", "workload": "needle", "sha256": "12"}],
  "capture": {"model": "m", "workloads": [{"kind": "turns", "context": 7, "count": 2, "seed": 3, "facts": 5,
                                           "hops": 2, "examples": 1, "style": "sentences", "text": "x.txt"}],
              "prompts": [{"files": "p.txt", "name": "q", "workload": "own", "sha256": "34"}],
              "max_new_tokens": 9, "ignore_eos": true, "queries": "window:8", "attention": "full",
              "output_weights": true, "elem": "f32", "prefill_chunk": 64,
              "keep_traces": false},
  "loops": ["closed", "open"], "evaluate": {"mode": "greedy", "max_new_tokens": 5, "force": "full"},
  "policies": [{"policy": "h2o", "params": "h2o()"}], "budgets": ["10%"], "seeds": [4, 9007199254740992],
  "cuts": ["question", 70], "bounds": false,
  "scopes": ["head"], "metrics": ["r"], "analyses": [{"kind": "hash", "table": "short", "bits": [8, 16]}],
  "statistics": {"resamples": 500, "confidence": 0.9, "seed": 6, "least_full": 0.5},
  "machine": "./gpu.json", "model": "llama-3.1-8b", "price_prompts": [4096],
  "report": false})json";

}  // namespace

TEST_CASE("study: what is left out has a default") {
  const StudyConfig config = study(R"({"traces": "*.h5"})");
  CHECK(config.traces.size() == 1);
  CHECK(config.traces[0].files == "*.h5");
  CHECK_FALSE(config.capture);
  CHECK(config.policies.size() == 2);
  CHECK(config.policies[1].policy == "oracles");
  CHECK(config.budgets == std::vector<std::string>{"10%", "25%", "50%"});
  CHECK(config.seeds == std::vector<std::uint64_t>{0});
  CHECK(config.scopes == std::vector<std::string>{"all", "layer"});
  CHECK(config.cuts.empty());
  CHECK(config.metrics.front() == "evidence_loss");
  CHECK(config.has_loop("open"));
  CHECK_FALSE(config.has_loop("closed"));
  CHECK((config.evaluate.mode == "both" && config.evaluate.max_new_tokens == 8 &&
         config.evaluate.force == "answer" && config.statistics.least_full == 0.9));
  CHECK((config.statistics.resamples == 2000 && config.statistics.confidence == 0.95 && config.report));
}

TEST_CASE("study: shorthands mean what they stand for") {
  const StudyConfig config =
      study(R"({"traces": ["a.h5", {"files": "b.h5"}], "budgets": [128, "5%"], "seeds": 3,
    "policies": "h2o", "analyses": ["hash", {"kind": "hash", "table": "b", "bits": [8, 32], "skip": 1}]})");
  CHECK(config.traces[1].files == "b.h5");
  CHECK(config.budgets == std::vector<std::string>{"128", "5%"});
  CHECK(config.seeds == std::vector<std::uint64_t>{3});
  REQUIRE(config.analyses.size() == 2);
  CHECK(config.analyses[1].settings ==
        std::vector<std::pair<std::string, std::string>>{{"bits", "8,32"}, {"skip", "1"}});
}

TEST_CASE("study: every field survives, and the text of a study is a study") {
  const StudyConfig config = study(kEveryField);
  const boost::json::object document = study_document(config);
  const std::string text = readable_json(document);
  CHECK(readable_json(study_document(study(text))) == text);
  // Every field of the registry stands in the document, and none at its default.
  for (const Field& field : study_fields()) {
    if (field.shape == FieldShape::ignored || field.shape == FieldShape::anything) continue;
    boost::json::value at = document;
    std::string path = field.path;
    std::size_t from = 0;
    while (from <= path.size()) {
      const std::size_t end = std::min(path.find('.', from), path.size());
      std::string name = path.substr(from, end - from);
      const bool list = name.ends_with("[]");
      if (list) name.resize(name.size() - 2);
      INFO(path);
      REQUIRE(at.as_object().contains(name));
      boost::json::value next = at.as_object().at(name);
      at = list ? next.as_array().at(0) : next;
      from = end + 1;
    }
    if (!field.param.required) CHECK(at != default_of(field));
  }
}

TEST_CASE("study: errors say which field") {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"tracs": 1})", "s.json tracs: no such field"},
      {R"({"capture": {"model": "m", "workloads": [{"kind": "a"}, {"kind": "b", "contxt": 1}]}})",
       "s.json capture.workloads[1].contxt: no such field\n  Did you mean context or count?"},
      {R"({"capture": {}})", "s.json capture.model: must be given"},
      {R"({"capture": {"model": 3}})", "s.json capture.model: model=3 is not legal: model must be text"},
      {R"({"capture": {"model": "m", "elem": "f8"}})",
       "s.json capture.elem: elem=f8 is not legal: elem must be one of auto, f32, bf16, f16"},
      {R"({"capture": {"model": "m", "prefill_chunk": 0}})",
       "capture.prefill_chunk: prefill_chunk=0 is not legal: prefill_chunk must be a whole number from 1 to"},
      {R"({"traces": [{}]})", "s.json traces[0].files: must be given"},
      {R"({"traces": [3]})", "s.json traces[0]: expected an object"},
      {R"({"seeds": [0, -1]})", "s.json seeds[1]: seeds=-1 is not legal: seeds must be a whole number"},
      {R"({"seeds": [1e300]})", "s.json seeds[0]"},
      {R"({"seeds": [9007199254740994]})", "s.json seeds[0]"},
      {R"({"budgets": [0.5]})", "s.json budgets[0]: budgets=5E-1 is not legal: budgets must be text"},
      {R"({"budgets": {}})",
       "s.json budgets: budgets={} is not legal: budgets must be a list, each item text"},
      {R"({"statistics": {"confidence": 1}})",
       "s.json statistics.confidence: confidence=1 is not legal: confidence must be a number from 0.5 to "
       "0.999"},
      {R"({"scopes": ["all", "lyer"]})",
       "s.json scopes[1]: scopes=lyer is not legal: scopes must be one of all, layer, head, step\n  Did you "
       "mean layer?"},
      {R"({"metrics": "attention_los"})", "s.json metrics: metrics=attention_los is not legal"},
      {R"({"loops": ["open", "closd"]})",
       "s.json loops[1]: loops=closd is not legal: loops must be one of open, closed\n  Did you mean "
       "closed?"},
      {R"({"evaluate": {"mod": "both"}})", "s.json evaluate.mod: no such field\n  Did you mean mode?"},
      {R"({"evaluate": {"mode": "greed"}})", "Did you mean greedy?"},
      {R"({"evaluate": {"max_new_tokens": 0}})",
       "s.json evaluate.max_new_tokens: max_new_tokens=0 is not legal"},
      {R"({"statistics": {"least_full": 1.5}})", "s.json statistics.least_full: least_full=1.5 is not legal"},
      {R"({"report": 1})", "s.json report: report=1 is not legal: report must be true or false"},
      {R"({"analyses": [{"kind": "hash", "bits": {}}]})", "s.json analyses[0].bits: expected text, a number"},
      {R"({"analyses": [{"*": 1, "kind": "hash"}]})", "s.json analyses[0].*: no such field"},
      {R"([])", "s.json: expected an object"},
  };
  for (const auto& [text, message] : cases) {
    INFO(text);
    CHECK_THROWS_WITH(study(text), Contains(message));
  }
  CHECK_THROWS_WITH(study(R"({"a": 1, "a": 2})"), Contains("twice"));
}

TEST_CASE("study: null is nothing, and what kvsim found is not read as a wish") {
  CHECK(study(R"({"capture": null, "traces": "a", "result": {"what": ["ever"]}})").traces.size() == 1);
}

TEST_CASE("study: paths change together") {
  StudyConfig config = study(kEveryField);
  change_paths(config, [](const std::string& path) { return "x/" + path; });
  CHECK(config.traces[0].files == "x/a.h5");
  CHECK(config.capture->model == "x/m");
  CHECK(config.capture->prompts[0].files == "x/p.txt");
  CHECK(config.capture->workloads[0].text == "x/x.txt");
}

namespace {

StudyChanges changes(const std::string& was, const std::string& is) {
  return study_changes(study_document(study(was)), study_document(study(is)));
}

std::string conflict(const std::string& was, const std::string& is) {
  const StudyChanges found = changes(was, is);
  return found.conflict ? found.conflict->path + ": " + found.conflict->was + " -> " + found.conflict->is
                        : "";
}

const std::string kOne =
    R"({"traces": [{"files": "a", "name": "a", "sha256": "1"}], "budgets": ["5%"], "policies": ["h2o"],
        "capture": {"model": "m", "workloads": [{"kind": "needle", "count": 2}]})";

}  // namespace

TEST_CASE("study changes: what would mix results is found") {
  CHECK(conflict(kOne + "}", kOne + "}") == "");
  CHECK(conflict(R"({"budgets": ["5%"]})", R"({"budgets": ["5%", "9%"]})") ==
        R"(budgets[1]: nothing -> "9%")");
  CHECK(conflict(R"({"budgets": ["5%", "9%"]})", R"({"budgets": ["5%"]})") ==
        R"(budgets[1]: "9%" -> nothing)");
  CHECK(conflict(R"({"policies": ["h2o", "tova"]})", R"({"policies": ["h2o", "xkv"]})") ==
        R"(policies[1].policy: "tova" -> "xkv")");
  CHECK(conflict(R"({"capture": {"model": "m"}})", R"({"capture": {"model": "n"}})") ==
        R"(capture.model: "m" -> "n")");
  CHECK(conflict(R"({"capture": {"model": "m", "workloads": ["needle"]}})",
                 R"({"capture": {"model": "m", "workloads": ["copy", "needle"]}})") ==
        R"(capture.workloads[0].kind: "needle" -> "copy")");
  CHECK(conflict(R"({"traces": [{"files": "a", "name": "a", "sha256": "1"}]})",
                 R"({"traces": [{"files": "z", "name": "z", "sha256": "3"},
                                {"files": "a", "name": "a", "sha256": "2"}]})") ==
        R"(traces[a].sha256: "1" -> "2")");
}

TEST_CASE("study changes: what leaves finished tasks as they are is taken over") {
  // More prompts of a workload, another workload behind it, other traces, other statistics.
  const StudyChanges found = changes(
      kOne + "}",
      R"({"traces": [{"files": "b", "name": "b", "sha256": "2"}], "budgets": ["5%"], "policies": ["h2o"], "title": "T",
          "statistics": {"seed": 3},
          "capture": {"model": "m", "workloads": [{"kind": "needle", "count": 5}, {"kind": "copy"}]}})");
  CHECK_FALSE(found.conflict);
  CHECK(found.taken_over == std::vector<std::string>{"more traces: b", "no longer studied: a",
                                                     "other prompts to capture",
                                                     "changed: title, statistics"});
  // The other loop is work of its own, and so are other settings of the closed one.
  CHECK(changes(R"({"loops": ["open"]})", R"({"loops": ["open", "closed"], "evaluate": {"mode": "greedy"}})")
            .taken_over == std::vector<std::string>{"changed: loops, evaluate"});
  // A trace that could not be read the first time has no content to differ from.
  CHECK(conflict(R"({"traces": [{"files": "a", "name": "a"}]})",
                 R"({"traces": [{"files": "a", "name": "a", "sha256": "2"}]})") == "");
}

}  // namespace kvsim::analysis::test_study_config
