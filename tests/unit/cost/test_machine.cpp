#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "sim/cost/machine.hpp"

namespace kvsim::cost::test_machine {
namespace {

constexpr const char* kSmall =
    R"({"matrix_tflops": 2, "vector_tflops": 0.5, "bandwidth_gb_s": 100, "memory_gib": 8})";

/// kSmall with more members.
std::string with(const std::string& members) {
  std::string text = kSmall;
  text.insert(text.size() - 1, ", " + members);
  return text;
}

void refused(const std::string& text, const char* message) {
  CAPTURE(text);
  try {
    parse_machine(text, "m.json");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(), Catch::Contains(message));
  }
}

}  // namespace

TEST_CASE("Machines of the catalogue agree with their datasheets", "[machine]") {
  const Machine a100 = find_machine("A100-80-SXM");
  CHECK(a100.name == "a100-80-sxm");
  CHECK(a100.matrix_rate == 312e12);
  CHECK(a100.bandwidth == 2039e9);
  CHECK(a100.memory == 80ULL << 30);
  CHECK(a100.ceilings.launch == Approx(5e-6));
  CHECK(find_machine("h200-sxm").memory == 141'000'000'000);  // its label counts in units of 1e9
  // Tokens at which products of 16-bit weights turn from memory to compute bound: P * 2 / (2 BW).
  const auto ridge = [](const char* name) {
    const Machine machine = find_machine(name);
    return machine.matrix_rate / machine.bandwidth;
  };
  CHECK(ridge("a100-80-sxm") == Approx(153).margin(0.5));
  CHECK(ridge("h100-sxm") == Approx(295).margin(0.5));
  CHECK(ridge("rtx-4090") == Approx(164).margin(0.5));
  CHECK(ridge("rtx-a6000") == Approx(202).margin(0.5));
  CHECK(known_machines().size() >= 23);
  for (const Machine& machine : known_machines()) {
    CAPTURE(machine.name);
    CHECK_THAT(machine.source, Catch::Contains("Ceilings: "));
    CHECK(machine.matrix_rate >= machine.vector_rate);
    CHECK(machine.reserved < machine.memory / 4);
    CHECK((machine.host.bandwidth > 0) != (machine.host_bandwidth > 0));  // the machine has a host, or is one
    CHECK(machine.host.bandwidth < machine.bandwidth);
  }
}

TEST_CASE("A machine's text reads back as the machine", "[machine]") {
  for (const Machine& machine : known_machines()) {
    const std::string text = machine_text(machine);
    CAPTURE(text);
    const Machine again = parse_machine(text, "again");
    CHECK(again.name == machine.name);
    CHECK(again.source == machine.source);
    CHECK(again.memory == machine.memory);
    CHECK(again.reserved == machine.reserved);
    CHECK(again.cache == machine.cache);
    CHECK(again.ceilings.attention_launch == machine.ceilings.attention_launch);
    CHECK(again.ceilings.attention_rows == machine.ceilings.attention_rows);
    CHECK(again.device.bandwidth == machine.device.bandwidth);
    CHECK(again.ssd.latency == machine.ssd.latency);
    REQUIRE(again.fitted.size() == machine.fitted.size());
    for (std::size_t i = 0; i < again.fitted.size(); ++i) {
      CHECK(again.fitted[i].measurements == machine.fitted[i].measurements);
      CHECK(again.fitted[i].keys.size() == machine.fitted[i].keys.size());
    }
    CHECK(machine_text(again) == text);
  }
}

TEST_CASE("Units are those of the keys", "[machine]") {
  CHECK(parse_machine(kSmall, "m").memory == 8ULL * 1024 * 1024 * 1024);
  const std::string in_gb =
      R"({"matrix_tflops": 2, "vector_tflops": 1, "bandwidth_gb_s": 100, "memory_gb": 8})";
  CHECK(parse_machine(in_gb, "m").memory == 8'000'000'000);
  const Machine machine = parse_machine(
      with(
          R"("cache_mib": 4, "reserved_gb": 1.5, "host_link": {"gb_s": 25, "latency_us": 6}, "ssd_link": {"gb_s": 3})"),
      "m");
  CHECK(machine.cache == 4 * 1024 * 1024);
  CHECK(machine.reserved == 1'500'000'000);
  CHECK(machine.host.bandwidth == 25e9);
  CHECK(machine.host.latency == Approx(6e-6));
  CHECK(machine.ssd.latency == 0);
  CHECK(machine.device.bandwidth == 0);
  CHECK(machine.name == "m");
  refused(with(R"("memory_gb": 8)"), "two units");
  refused(with(R"("cache_mb": 4, "cache_mib": 4)"), "two units");
  refused(R"({"matrix_tflops": 2, "vector_tflops": 1, "bandwidth_gb_s": 100})", "memory_gib");
}

TEST_CASE("A machine file says which of its numbers were fitted, and to what", "[machine]") {
  const Machine machine = parse_machine(
      with(
          R"("reserved_gib": 1, "host_link": {"gb_s": 25}, "ceilings": {"compute": 0.5, "norm": 2, "attention_rows": 64},
             "kvsim_fitted": {"products": ["compute", "norm"], "copies": ["host_link"], "blocks": ["reserved_gib"],
                              "chunks": ["attention_rows"], "runs": ["bandwidth_gb_s"]})"),
      "m");
  REQUIRE(machine.fitted.size() == 5);
  CHECK(machine.fitted[0].measurements == "products");
  CHECK(machine.fitted[0].keys == std::vector<std::string>{"compute", "norm"});
  const Machine products = scaled(machine, "products", 4), copies = scaled(machine, "copies", 0.25);
  CHECK(products.ceilings.compute == 2);
  CHECK(products.ceilings.norm == 8);
  CHECK(products.ceilings.memory == machine.ceilings.memory);
  CHECK(products.host.bandwidth == machine.host.bandwidth);
  CHECK(copies.host.bandwidth == machine.host.bandwidth / 4);
  CHECK(copies.ceilings.compute == machine.ceilings.compute);
  CHECK(scaled(machine, "blocks", 4).reserved == 4 * machine.reserved);
  CHECK(scaled(machine, "chunks", 0.25).ceilings.attention_rows == 16);
  CHECK(scaled(machine, "runs", 4).bandwidth == 4 * machine.bandwidth);
  CHECK(machine_text(scaled(machine, "others", 4)) == machine_text(machine));
  refused(with(R"("ceilings": {"compute": 0.5}, "kvsim_fitted": {"products": ["memory"]})"), "\"memory\"");
  refused(with(R"("ceilings": {"compute": 0.5}, "kvsim_fitted": {"products": ["comput"]})"), "compute");
  refused(with(R"("ceilings": {"compute": 0.5}, "kvsim_fitted": {"a": ["compute"], "b": ["compute"]})"),
          "fitted already");
  refused(with(R"("ceilings": {"compute": 0.5}, "kvsim_fitted": {"a": [1]})"), "fitted already");
  refused(with(R"("kvsim_fitted": ["compute"])"), "kvsim_fitted");
  refused(with(R"("ssd_link": null, "kvsim_fitted": {"a": ["ssd_link"]})"), "no number that this file gives");
}

TEST_CASE("Every catalogue number whose source says it was fitted is among the fitted ones, and no other",
          "[machine]") {
  for (const Machine& machine : known_machines()) {
    INFO(machine.name);
    const bool fitted = std::any_of(machine.fitted.begin(), machine.fitted.end(), [](const Fit& fit) {
      return std::count(fit.keys.begin(), fit.keys.end(), "compute") > 0;
    });
    const std::string ceilings = machine.source.substr(machine.source.find("Ceilings: "));
    CHECK(fitted == (ceilings.find("fitted") != std::string::npos &&
                     ceilings.find("assumed near those fitted") == std::string::npos));
    const bool reserve = machine.reserved > 0;
    CHECK(reserve == std::any_of(machine.fitted.begin(), machine.fitted.end(), [](const Fit& fit) {
            return fit.keys == std::vector<std::string>{"reserved_gib"};
          }));
  }
}

TEST_CASE("Impossible machine files are refused with the key", "[machine]") {
  refused("[]", "JSON object");
  refused(R"({"vector_tflops": 1, "bandwidth_gb_s": 100, "memory_gib": 8})", "matrix_tflops");
  refused(with(R"("bandwith_gb_s": 90)"), "bandwidth_gb_s");
  refused(with(R"("host_link": {"gb_s": 25, "latency": 6})"), "latency_us");
  refused(with(R"("host_link": {"latency_us": 6})"), "gb_s");
  refused(with(R"("host_link": {"gb_s": 0})"), "not above zero");
  refused(with(R"("host_link": {"gb_s": 25, "latency_us": -1})"), "below zero");
  refused(with(R"("ceilings": {"compute": 1.01})"), "above 1");
  refused(with(R"("ceilings": {"attention_memory": 0})"), "not above zero");
  refused(with(R"("ceilings": {"norm": 0.9})"), "below 1");
  refused(with(R"("ceilings": {"launch_us": -5})"), "below zero");
  refused(with(R"("ceilings": {"attention_rows": 0})"), "attention_rows");
  refused(with(R"("ceilings": {"attention_rows": 1.5})"), "attention_rows");
  refused(with(R"("ceilings": {"compote": 0.5})"), "compute");
  refused(with(R"("reserved_gib": 8)"), "leaves no memory");
  refused(with(R"("cache_mb": 1e-9)"), "less than one byte");
  refused(with(R"("cache_mb": 1e300)"), "cache_mb: 1e+300 is outside");
  for (const char* key : {"matrix_tflops", "vector_tflops", "bandwidth_gb_s", "memory_gib"})
    for (const char* value : {"0", "-1", "\"1\"", "true", "1e999"}) {
      std::string text = "{";
      for (const char* other : {"matrix_tflops", "vector_tflops", "bandwidth_gb_s", "memory_gib"})
        text += (text.size() > 1 ? ", \"" : "\"") + std::string(other) +
                "\": " + (std::string(key) == other ? value : "1");
      refused(text + "}", "m.json");
    }
}

TEST_CASE("Unknown machines are refused with the nearest names", "[machine]") {
  try {
    find_machine("a100-80-smx");
    FAIL("accepted");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK_THAT(error.what(), Catch::Contains("a100-80-sxm"));
  }
  CHECK_THROWS_AS(find_machine(""), Error);
  CHECK_THROWS_AS(find_machine("/"), Error);
}

}  // namespace kvsim::cost::test_machine
