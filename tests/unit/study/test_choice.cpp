// The parts of kvsim choose that need no model: what is drawn, and who goes on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "analysis/choice/candidates.hpp"
#include "analysis/choice/choice_report.hpp"
#include "analysis/choice/engine_recipes.hpp"
#include "policies/builtin.hpp"
#include "sim/base/csv_records.hpp"
#include "sim/base/error.hpp"
#include "sim/base/files.hpp"
#include "sim/base/param_value.hpp"
#include "tests/support/source_folder.hpp"

using namespace kvsim;
using namespace kvsim::analysis;

TEST_CASE("drawn settings are different, the same for a seed, and begin with all that is known") {
  const policy::Registry& registry = policy::builtin();
  const bool second_pass = GENERATE(false, true);
  const auto draw = [&](std::size_t count, std::uint64_t seed) {
    return draw_settings(registry, count, seed, second_pass);
  };
  const std::vector<AskedPolicy> settings = draw(250, 7);
  REQUIRE(settings.size() == 250);
  std::set<std::string> params, evictions, systems;
  for (const AskedPolicy& setting : settings) {
    params.insert(setting.composition.params);
    CHECK(setting.composition.params == policy::parse_composition(setting.text, registry).params);
    CHECK((second_pass || !setting.composition.needs().second_pass));
    const policy::PolicySpec& eviction = *setting.composition.eviction.spec;
    CHECK_FALSE(eviction.is_oracle());
    CHECK(policy::complete(eviction, second_pass));
    CHECK(eviction.keeps_all() <= setting.composition.representation.has_value());
    if (registry.find_preset(setting.text))
      systems.insert(setting.text);
    else if (evictions.insert(eviction.name).second && !eviction.keeps_all())
      CHECK(setting.text == eviction.name);
  }
  CHECK((systems.count("lava.layers") > 0 && systems.count("adakv") > 0));
  CHECK(systems.count("kvzip.layers") == (second_pass ? 1 : 0));
  CHECK(params.size() == settings.size());
  const auto served = std::count_if(
      registry.policies().begin(), registry.policies().end(), [&](const policy::PolicySpec& spec) {
        return spec.kind() == policy::Kind::eviction && !spec.is_oracle() && complete(spec, second_pass);
      });
  CHECK(evictions.size() == static_cast<std::size_t>(served));
  const auto texts = [](const std::vector<AskedPolicy>& all) {
    std::vector<std::string> out;
    for (const AskedPolicy& each : all) out.push_back(each.text);
    return out;
  };
  CHECK(texts(draw(250, 7)) == texts(settings));
  CHECK(texts(draw(250, 8)) != texts(settings));
  // Fewer are the first of more.
  std::vector<std::string> first = texts(settings);
  first.resize(40);
  CHECK(texts(draw(40, 7)) == first);
}

TEST_CASE("a drawn value is legal and another than the default, where there is one") {
  const ParamSpec window = count_param("window", "32", {1, 64}, "");
  std::set<std::string> seen;
  for (std::uint64_t key = 0; key < 200; ++key) seen.insert(drawn_value(window, key));
  CHECK(seen == std::set<std::string>{"8", "16", "64"});  // 128 is out of range
  seen.clear();
  for (std::uint64_t key = 0; key < 200; ++key)
    seen.insert(drawn_value(share_param("recent", "0.5", ""), key));
  CHECK(seen == std::set<std::string>{"0.25", "0.75"});
  CHECK(drawn_value(flag_param("decode", "true", ""), 1) == "false");
  CHECK(drawn_value(count_param("sinks", "0", {0, 8}, ""), 1) == "0");  // times nothing is nothing
  CHECK(drawn_value(required_param("file", ""), 1) == "");
}

TEST_CASE("a race orders by what is kept, then by KL") {
  const auto answers = [](std::initializer_list<int> kept, double kl) {
    std::vector<Answered> out;
    for (const int each : kept) out.push_back({each < 0 ? std::nullopt : std::optional(each == 1), kl});
    return out;
  };
  // -1: the full cache is wrong.
  const std::vector<std::vector<Answered>> settings{
      answers({1, 1, 0, 0, -1}, 0.1), answers({1, 1, 1, 1, -1}, 0.9), answers({1, 1, 1, 1, -1}, 0.5),
      answers({0, 0, 0, 0, -1}, 0.0)};
  CHECK(*standing(settings[0]).kept == 0.5);
  CHECK(best_first(settings) == std::vector<std::size_t>{2, 1, 0, 3});

  SECTION("and lets go on who is not surely worse") {
    // 2 beats 0 on two prompts of four: a resample without either has the chance (2/4)^4 = 1/16, so that the
    // interval of 95 % begins at 0. It beats 3 on all four.
    CHECK(survivors(settings, 4) == std::vector<std::size_t>{2, 1, 0});
    CHECK(survivors(settings, 2) == std::vector<std::size_t>{2, 1});
    CHECK(survivors(settings, 1) == std::vector<std::size_t>{2});
    CHECK(survivors({}, 3).empty());
  }
  SECTION("by KL alone where nothing is judged") {
    const std::vector<std::vector<Answered>> open{answers({-1, -1, -1}, 0.5), answers({-1, -1, -1}, 0.2),
                                                  answers({-1, -1, -1}, 0.2)};
    CHECK_FALSE(standing(open[0]).kept);
    CHECK(survivors(open, 3) == std::vector<std::size_t>{1, 2});
  }
  SECTION("and one prompt makes nobody surely worse") {
    const std::vector<std::vector<Answered>> one{answers({1}, 0.1), answers({0}, 0.2)};
    CHECK(survivors(one, 2) == std::vector<std::size_t>{0, 1});
  }
}

namespace {

EngineRecipe found_recipe(const std::string& setting, const std::string& engine, double share = 0.25) {
  for (const EngineRecipe& recipe :
       engine_recipes(policy::parse_composition(setting, policy::builtin()).params, share))
    if (recipe.engine == engine) return recipe;
  return {};
}

std::string recipe_of(const std::string& setting, const std::string& engine, double share = 0.25) {
  return found_recipe(setting, engine, share).words;
}

}  // namespace

TEST_CASE(
    "a press that kvpress.csv calls equal has a recipe, and one that departs says there what the file says") {
  const std::string path = test::source_folder() + "/policies/kvpress.csv";
  const std::string text = read_file(path, 1 << 20);
  CsvRecords rows(text, path);
  std::set<std::string> equal;
  for (rows.record(); !rows.done();) {
    const std::vector<std::string> row = rows.record();
    EngineRecipe recipe;
    try {
      if (!row[1].empty()) recipe = found_recipe(row[1], "kvpress");
    } catch (const Error&) {
      continue;  // refused by name: a trace cannot have it
    }
    if (row[2].empty() || recipe.words.starts_with(row[0] + "(")) {
      INFO(row[0]);
      CHECK(recipe.words.starts_with(row[0] + "("));
      CHECK(recipe.apart == row[2]);
      equal.insert(row[0]);
    }
  }
  CHECK(equal.size() == 13);
}

TEST_CASE("a recipe has the setting's numbers, and another setting has none") {
  CHECK(recipe_of("snapkv(window=16,pool=avg:7)", "kvpress") ==
        "SnapKVPress(compression_ratio=0.750, window_size=16, kernel_size=7)");
  CHECK(recipe_of("snapkv(window=16,pool=max:7)", "kvpress").empty());
  CHECK(recipe_of("snapkv(sinks=4)", "kvpress").empty());
  CHECK(recipe_of("streaming_llm(sinks=8,decode=false)", "kvpress", 0.1) ==
        "StreamingLLMPress(compression_ratio=0.900, n_sink=8)");
  CHECK(recipe_of("streaming_llm(sinks=8)", "kvpress").empty());
  CHECK(recipe_of("cap_kv(tau=3,sinks=8)", "kvpress") ==
        "CapPress(compression_ratio=0.750, tau=3, n_future_positions=512, n_sink=8)");
  CHECK(recipe_of("cur_dkv(of=keys)", "kvpress").empty());
  CHECK(recipe_of("blockwise(size=64)", "kvpress") ==
        "BlockPress(KeyDiffPress(compression_ratio=0.750), block_size=64)");
  CHECK(recipe_of("full+fp8(format=e5m2)", "vLLM") == "--kv-cache-dtype fp8_e5m2");
  CHECK(recipe_of("full+fp8(format=e5m2)", "SGLang") == "--kv-cache-dtype fp8_e5m2");
  CHECK(recipe_of("full+fp8(scale=head)", "vLLM").empty());
  CHECK(recipe_of("full+int8", "vLLM").empty());
  CHECK(recipe_of("turboquant.vllm", "vLLM") == "--kv-cache-dtype turboquant_4bit_nc");
  CHECK(recipe_of("full+llama_cpp(keys=q5_1,values=f16,rotate=true)", "llama.cpp") ==
        "-fa on -ctk q5_1 -ctv f16");
  CHECK(recipe_of("full+q4_0", "llama.cpp") == "-fa on -ctk q4_0 -ctv q4_0, and LLAMA_ATTN_ROT_DISABLE=1");
  CHECK(recipe_of("openvino(recent=2)", "OpenVINO GenAI") ==
        "CacheEvictionConfig(32 * 1, 32 * 2, int(0.250 * prompt_tokens) // 32 * 32, "
        "AggregationMode.NORM_SUM, snapkv_window_size=8)");
  CHECK(recipe_of("openvino.gpu", "OpenVINO GenAI").empty());
  CHECK(recipe_of("kvzip.layers", "kvpress") == "KVzipPress(compression_ratio=0.750, n_sink=0)");
  CHECK(engine_recipes("keydiff", 0.5).empty());
}

TEST_CASE("a choice is asked of kvsim.hf.Cache where that does it, and of engines") {
  const auto said = [](const std::string& setting) {
    Choice choice;
    choice.winner.policy =
        choice.confirmed.policy = {setting, policy::parse_composition(setting, policy::builtin())};
    choice.confirmed.budget_share.add(0.25);
    ChoiceRequest request;
    request.evaluation.cuts = {trace::parse_cut("question")};
    std::map<std::string, ChoiceFact> out;
    for (const ChoiceFact& fact : facts_of(request, choice)) out[fact.name] = fact;
    return out;
  };
  CHECK(said("tova")["Python"].text == "kvsim.hf.Cache(model, \"tova\", \"25%\")");
  CHECK(said("tova")["Python"].code);
  for (const char* other : {"kvzip.layers", "sirllm", "full+kivi", "full+quest"}) {
    INFO(other);
    CHECK_THAT(said(other)["Python"].text, Catch::StartsWith("kvsim.hf.Cache does not do this: "));
  }
  CHECK_THAT(said("kvzip.layers")["engine"].text,
             Catch::StartsWith("kvpress: KVzipPress(compression_ratio=0.750, n_sink=0) (repeats chunks"));
  CHECK_THAT(said("sirllm")["engine"].text, Catch::StartsWith("none of those that kvsim knows"));
}
