#include "analysis/agreement/closed_measures.hpp"

#include <algorithm>
#include <string>

#include "sim/base/error.hpp"
#include "sim/base/suggest.hpp"

namespace kvsim::analysis {
namespace {

[[noreturn]] void unknown(std::string_view key, const std::vector<std::string>& known,
                          const std::string& loop) {
  usage_error("policies are not compared by '" + std::string(key) + "'", "--" + loop, suggestion(key, known));
}

}  // namespace

const std::vector<ClosedMeasure>& closed_measures() {
  static const std::vector<ClosedMeasure> kAll = {
      {"right", Better::higher},       {"kl", Better::lower},          {"same_top", Better::higher},
      {"log_p", Better::higher},       {"contains", Better::higher},   {"agreement", Better::higher},
      {"delta_log_p", Better::higher}, {"rms_delta_p", Better::lower}, {"rank", Better::lower}};
  return kAll;
}

const ClosedMeasure& closed_measure(std::string_view key) {
  std::vector<std::string> known;
  for (const ClosedMeasure& each : closed_measures()) {
    if (each.key == key) return each;
    known.emplace_back(each.key);
  }
  unknown(key, known, "closed");
}

std::vector<const Metric*> open_measures() {
  std::vector<const Metric*> out;
  for (const Metric& each : metrics())
    if (each.better != Better::neither) out.push_back(&each);
  return out;
}

const Metric& open_measure(std::string_view key) {
  std::vector<std::string> known;
  for (const Metric* each : open_measures()) {
    if (each->key == key) return *each;
    known.emplace_back(each->key);
  }
  unknown(key, known, "open");
}

}  // namespace kvsim::analysis
