#include <catch2/catch.hpp>

#include "policies/api/composition.hpp"
#include "policies/builtin.hpp"
#include "sim/base/error.hpp"

namespace kvsim::policy::test_composition {

namespace {

Composition parse(std::string_view text) {
  return parse_composition(text, builtin());
}

/// Returns the message of the usage error that `text` must cause.
std::string refusal(std::string_view text, const Registry& registry = builtin()) {
  try {
    parse_composition(text, registry);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

using Catch::Contains;

}  // namespace

TEST_CASE("a composition is an eviction, and uniform unless it says otherwise") {
  const Composition plain = parse("tova");
  CHECK(plain.name == "tova");
  CHECK(plain.params ==
        "tova(unit=layer,sinks=0,window=0,granularity=1,decode=true,phase=pre,prompt=rank,tie=oldest)+"
        "uniform()");
  CHECK(plain.eviction.spec->name == "tova");
  CHECK(plain.allocation.spec->name == "uniform");

  const Composition both = parse("snapkv(window=16,pool=max:7)+pyramid(beta=10)");
  CHECK(both.name == "snapkv+pyramid");
  CHECK(both.params ==
        "snapkv(window=16,pool=max:7,group=mean,unit=lane,sinks=0,granularity=1,tie=oldest)+pyramid(beta=10,"
        "variant=exact)");
  CHECK(both.eviction.params.count("window") == 16);
  CHECK(both.eviction.params.word("pool") == "max:7");
  CHECK(both.allocation.params.real("beta") == 10);
  CHECK(parse("tova+uniform").name == "tova");
}

TEST_CASE("the order of parameters, white space and spelling of numbers do not matter") {
  const std::string canonical = parse("snapkv(window=16,pool=max:7)+pyramid(beta=12.5)").params;
  CHECK(parse(" snapkv ( pool = max:7 , window=16 )\t+ pyramid( beta=1.25e1 ) \n").params == canonical);
  CHECK(parse("snapkv(window=016,pool=max:07)+pyramid(beta=12.50)").params == canonical);
  CHECK(parse("h2o(recent=-0)").params == parse("h2o(recent=0)").params);
  CHECK(parse("h2o()").params == parse("h2o").params);
}

TEST_CASE("the canonical text parses to itself") {
  for (const char* text :
       {"full", "window", "random(redraw=true)", "tova+xkv(r_avg=0.9)", "pyramidkv", "xkv"}) {
    const Composition once = parse(text);
    CHECK(parse(once.params).params == once.params);
  }
}

TEST_CASE("aliases are other spellings of one policy") {
  CHECK(parse("streamingllm(sinks=2)").params == parse("streaming_llm(sinks=2)").params);
  CHECK(parse("streamingllm").name == "streaming_llm");
}

TEST_CASE("presets keep their name and show their expansion") {
  const Composition pyramidkv = parse("pyramidkv");
  CHECK(pyramidkv.name == "pyramidkv");
  CHECK(pyramidkv.params == parse("snapkv(window=8,pool=max:7)+pyramid(beta=20)").params);
  CHECK(parse("xkv").params == parse("snapkv(window=8,pool=avg:7,unit=layer)+xkv").params);
  CHECK(parse("xkv").layer_unit());
}

TEST_CASE("a parameter of a preset goes to the part that has it") {
  CHECK(parse("xkv(window=16)").params == parse("snapkv(window=16,pool=avg:7,unit=layer)+xkv").params);
  CHECK(parse("xkv(r_avg=0.8)").params ==
        parse("snapkv(window=8,pool=avg:7,unit=layer)+xkv(r_avg=0.8)").params);
  CHECK(parse("pyramidkv(beta=10,group=max)").params ==
        parse("snapkv(window=8,pool=max:7,group=max)+pyramid(beta=10)").params);
  CHECK(parse("pyramidkv(beta=10)").name == "pyramidkv");
}

TEST_CASE("the first name is an eviction or a preset, the second an allocation") {
  CHECK(parse("xkv").name == "xkv");
  CHECK(parse("snapkv+xkv").name == "snapkv+xkv");
  CHECK(parse("snapkv+xkv").allocation.spec->name == "xkv");
}

TEST_CASE("floors and units follow the parameters") {
  CHECK(parse("full").floor() == 1);
  CHECK(parse("window").floor() == 1);
  CHECK(parse("h2o").floor() == 1);
  CHECK(parse("streaming_llm").floor() == 5);
  CHECK(parse("snapkv").floor() == 32);
  CHECK(parse("snapkv(window=8,sinks=4)").floor() == 12);
  CHECK(parse("l2_norm").floor() == 1);
  CHECK(parse("l2_norm(sinks=4)").floor() == 5);
  CHECK(parse("l2_norm(sinks=4,window=10)").floor() == 14);
  CHECK_FALSE(parse("snapkv").layer_unit());
  CHECK(parse("snapkv(unit=layer)").layer_unit());
}

TEST_CASE("unknown names are refused with the nearest known one") {
  CHECK_THAT(refusal("h20"), Contains("unknown policy \"h20\"") && Contains("h2o"));
  CHECK_THAT(refusal("pyramidvk"), Contains("pyramidkv"));
  CHECK_THAT(refusal("H2P"), Contains("Did you mean h2o"));
  CHECK_THAT(refusal("tova+pyramids"), Contains("unknown allocation") && Contains("Did you mean pyramid?"));
  CHECK_THAT(refusal("h2o(recnt=0.1)"), Contains("unknown parameter \"recnt\" of h2o") && Contains("recent"));
  CHECK_THAT(refusal("xkv(windw=4)"), Contains("unknown parameter \"windw\" of xkv") && Contains("window"));
  CHECK_THAT(refusal("window(size=3)"), Contains("takes no parameters"));
}

TEST_CASE("values out of range are refused with the range") {
  CHECK_THAT(refusal("h2o(recent=1.5)"), Contains("recent=1.5") && Contains("a number from 0 to 1"));
  CHECK_THAT(refusal("h2o(recent=nan)"), Contains("a number from 0 to 1"));
  CHECK_THAT(refusal("h2o(recent=inf)"), Contains("a number from 0 to 1"));
  CHECK_THAT(refusal("h2o(recent=half)"), Contains("a number from 0 to 1"));
  CHECK_THAT(refusal("snapkv(window=0)"), Contains("whole number from 1 to"));
  CHECK_THAT(refusal("snapkv(window=-1)"), Contains("whole number"));
  CHECK_THAT(refusal("snapkv(window=3.5)"), Contains("whole number"));
  CHECK_THAT(refusal("snapkv(window=99999999999999999999)"), Contains("whole number"));
  CHECK_THAT(refusal("snapkv(pool=max:4)"), Contains("odd K"));
  CHECK_THAT(refusal("snapkv(pool=max)"), Contains("odd K"));
  CHECK_THAT(refusal("snapkv(pool=mid:3)"), Contains("odd K"));
  CHECK_THAT(refusal("snapkv(pool=max:3:nopad)"), Contains("odd K"));
  CHECK_THAT(refusal("snapkv(pool=avg::nopad)"), Contains("odd K"));
  CHECK_THAT(refusal("snapkv(pool=avg:nopad)"), Contains("odd K"));
  CHECK(parse("snapkv(pool=avg:05:nopad)").eviction.params.word("pool") == "avg:5:nopad");
  CHECK_THAT(refusal("snapkv(pool=avg:99999)"), Contains("1023"));
  CHECK_THAT(refusal("snapkv(group=men)"), Contains("one of mean, max") && Contains("Did you mean mean"));
  CHECK_THAT(refusal("random(redraw=yes)"), Contains("true or false"));
  CHECK_THAT(refusal("tova+pyramid(beta=0.5)"), Contains("a number from 1"));
  CHECK_THAT(refusal("h2o(recent=h2o(recent=0.5))"), Contains("recent=h2o(recent=0.5)"));
}

TEST_CASE("malformed text is refused with the place") {
  CHECK_THAT(refusal(""), Contains("expected a policy name at the end"));
  CHECK_THAT(refusal("+pyramid"), Contains("expected a policy name at character 1"));
  CHECK_THAT(refusal("h2o+"), Contains("expected a policy name at the end"));
  CHECK_THAT(refusal("h2o(recent=0.5"), Contains("expected ',' or ')' at the end"));
  CHECK_THAT(refusal("h2o)"), Contains("expected '+' or the end of the text at character 4"));
  CHECK_THAT(refusal("h2o tova"), Contains("at character 5"));
  CHECK_THAT(refusal("h2o(0.5)"), Contains("expected '=' and a value after 0.5"));
  CHECK_THAT(refusal("h2o(=0.5)"), Contains("expected a parameter name"));
  CHECK_THAT(refusal("h2o(recent=)"), Contains("expected a value for recent"));
  CHECK_THAT(refusal("h2o(recent=0.5,)"), Contains("expected a parameter name"));
  CHECK_THAT(refusal("h2o(recent=0.5,recent=0.1)"), Contains("recent is given twice"));
  CHECK_THAT(refusal("h2o(recent=(0.5)"), Contains("expected ',' or ')'"));
  CHECK_THAT(refusal("h2o\x01"), Contains("printable") && Contains("character 4"));
  CHECK_THAT(refusal("h\xc3\xa4"
                     "2o"),
             Contains("printable"));
  CHECK_THAT(refusal(std::string(5000, 'a')), Contains("at most 4096"));
}

TEST_CASE("texts of any length are refused without being read to their end") {
  for (const std::size_t n : {4096U, 4097U, 10'000'000U})
    for (const char c : {'a', '(', '+', ',', '=', ' '})
      CHECK_THROWS_AS(parse_composition(std::string(n, c), builtin()), Error);
}

TEST_CASE("what stands after the eviction is found by its name, in any order") {
  const Composition plain = parse("snapkv+xkv"), stored = parse("snapkv+kivi(bits=4)+xkv");
  CHECK(stored.name == "snapkv+xkv+kivi");
  CHECK(stored.params ==
        plain.params + "+kivi(bits=4,value_bits=0,group=32,residual=128,keys=channel,values=token)");
  CHECK(stored.params == parse("snapkv+xkv+kivi(bits=4)").params);
  CHECK(stored.params == parse(stored.params).params);
  CHECK_FALSE(plain.representation);
  // Presets and what decides its own budget take one, too.
  CHECK(parse("pyramidkv+kivi").name == "pyramidkv+kivi");
  CHECK(parse("pyramidkv(window=16)+kivi").eviction.params.count("window") == 16);
  CHECK(parse("full+kivi").params == parse("full+uniform+kivi").params);
}

TEST_CASE("parts that do not go together are refused") {
  CHECK_THAT(refusal("pyramid"), Contains("is an allocation") && Contains("snapkv+pyramid"));
  CHECK_THAT(refusal("h2o+tova"), Contains("two evictions"));
  CHECK_THAT(refusal("h2o+pyramidkv"), Contains("two evictions") && Contains("pyramid"));
  CHECK_THAT(refusal("h2o+pyramid+xkv"), Contains("two allocations: pyramid and xkv"));
  CHECK_THAT(refusal("h2o+kivi+pyramid+scalar"), Contains("two representations: kivi and scalar"));
  CHECK_THAT(refusal("kivi"), Contains("is a representation") && Contains("full+kivi"));
  CHECK_THAT(refusal("h2o+kiwi"),
             Contains("unknown allocation, representation or selection") && Contains("kivi"));
  CHECK_THAT(refusal("pyramidkv+xkv"),
             Contains("already has an allocation") && Contains("snapkv(window=8,pool=max:7)+xkv"));
  CHECK_THAT(refusal("full+pyramid"), Contains("no budget"));
  CHECK(parse("full+uniform").name == "full");
}

namespace {

std::unique_ptr<Eviction> no_eviction(const Params&, const CacheUnit&) {
  return nullptr;
}
std::unique_ptr<Allocation> no_allocation(const Params&) {
  return nullptr;
}

PolicySpec eviction_spec(const std::string& name) {
  return {.name = name, .rule = EvictionRule{.make = no_eviction}};
}
PolicySpec allocation_spec(const std::string& name) {
  return {.name = name, .rule = AllocationRule{.make = no_allocation}};
}
ParamSpec width_param() {
  return {.name = "width", .type = ParamType::count, .fallback = "2", .min = 0, .max = 9};
}

}  // namespace

TEST_CASE("a preset's parameter that both parts have must be written out") {
  Registry registry;
  PolicySpec eviction = eviction_spec("e"), allocation = allocation_spec("a");
  eviction.params = allocation.params = {width_param()};
  registry.add(eviction);
  registry.add(allocation);
  registry.add({"system", "e(width=3)+a(width=4)", "", ""});
  CHECK(parse_composition("system", registry).params == "e(width=3)+a(width=4)");
  CHECK_THAT(refusal("system(width=5)", registry),
             Contains("could be e's or a's") && Contains("e(width=3)+a(width=4)"));
}

TEST_CASE("a preset without an allocation takes one") {
  Registry registry;
  registry.add(eviction_spec("e"));
  registry.add(allocation_spec("a"));
  registry.add(allocation_spec("uniform"));
  registry.add({"variant", "e", "", ""});
  CHECK(parse_composition("variant", registry).name == "variant");
  CHECK(parse_composition("variant+a", registry).name == "variant+a");
  CHECK(parse_composition("variant+uniform", registry).name == "variant");
}

TEST_CASE("a policy's own check of its parameters is called") {
  Registry registry;
  registry.add(allocation_spec("uniform"));
  PolicySpec picky = eviction_spec("picky");
  picky.params = {width_param()};
  picky.check = [](const Params& params) {
    if (params.count("width") == 7) usage_error("seven is unlucky");
  };
  registry.add(picky);
  CHECK(parse_composition("picky(width=6)", registry).name == "picky");
  CHECK_THAT(refusal("picky(width=7)", registry), Contains("unlucky"));
}

TEST_CASE("the registry refuses policies that could not be chosen or made") {
  Registry registry;
  registry.add(eviction_spec("e"));
  registry.add({"p", "e", "", ""});
  const auto is_bug = [](const auto& add) {
    try {
      add();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bug;
    }
    return false;
  };
  CHECK(is_bug([&] { registry.add(eviction_spec("e")); }));
  CHECK(is_bug([&] { registry.add(eviction_spec("p")); }));
  CHECK(is_bug([&] { registry.add(PresetSpec{"e", "e", "", ""}); }));
  CHECK(is_bug([&] { registry.add(PresetSpec{"p", "e", "", ""}); }));
  CHECK(is_bug([&] { registry.add(eviction_spec("Two Words")); }));
  CHECK(is_bug([&] {
    PolicySpec spec = eviction_spec("f");
    spec.aliases = {"e"};
    registry.add(spec);
  }));
  CHECK(is_bug([&] {
    PolicySpec spec = eviction_spec("f");
    spec.rule = EvictionRule{};
    registry.add(spec);
  }));
  CHECK(is_bug([&] {
    PolicySpec spec = eviction_spec("f");
    spec.params = {width_param(), width_param()};
    registry.add(spec);
  }));
  CHECK(is_bug([&] {
    PolicySpec spec = eviction_spec("f");
    spec.params = {width_param()};
    spec.params[0].fallback = "10";
    registry.add(spec);
  }));
  registry.add(allocation_spec("e"));  // allocations have their own names
  CHECK(registry.find_policy(Kind::allocation, "e") != registry.find_policy(Kind::eviction, "e"));
}

TEST_CASE("a policy that asks for what its spec lacks is a bug") {
  const Params params = parse("h2o").eviction.params;
  const auto kind = [](const auto& ask) {
    try {
      ask();
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::usage;
  };
  CHECK(params.real("recent") == 0.5);
  CHECK(kind([&] { params.real("window"); }) == ErrorKind::bug);
  CHECK(kind([&] { params.count("recent"); }) == ErrorKind::bug);
  CHECK(kind([&] { params.word("recent"); }) == ErrorKind::bug);
  CHECK(kind([&] { params.flag("tie"); }) == ErrorKind::bug);
}

}  // namespace kvsim::policy::test_composition
