#include "policies/parts/codes/calibrated_tables.hpp"

#include <utility>

#include "sim/base/error.hpp"

namespace kvsim::policy {

std::vector<ParamSpec> with_calibration_params(std::vector<ParamSpec> params) {
  params.push_back(required_param("file", "what kvsim calibrate measured on other runs"));
  params.push_back(choice_param("own_traces", "refused", {"refused", "allowed"},
                                "whether runs that were measured for the file may be tested with it"));
  return params;
}

std::vector<ParamSpec> with_optional_calibration(std::vector<ParamSpec> params) {
  params = with_calibration_params(std::move(params));
  ParamSpec& file = params[params.size() - 2];
  file.required = false;
  file.fallback = "prompt";
  file.help += "; prompt: measured on the prompt itself";
  return params;
}

std::string calibration_maker(std::string_view codec, const Params& params,
                              const std::vector<const char*>& names) {
  std::string out(codec);
  const char* before = "(";
  for (const char* name : names) {
    for (const ParamValue& value : params.entries)
      if (value.name == name) out += before + value.name + "=" + value.text;
    before = ",";
  }
  return out + (names.empty() ? "()" : ")");
}

CalibratedTables::CalibratedTables(std::string maker, const Params& params, const CacheUnit& unit)
    : request_{params.word("file"), std::move(maker), params.is("own_traces", "allowed")}, unit_(unit) {}

std::vector<float> CalibratedTables::lane(std::string_view table, int lane, std::size_t numbers) const {
  std::vector<float> out = unit_.tables->calibrated(request_, table, unit_.layer, unit_.first_kv_head + lane);
  if (out.size() != numbers)
    input_error("has " + std::to_string(out.size()) + " numbers per KV head; " + request_.maker + " reads " +
                    std::to_string(numbers),
                request_.file + ":/tables/" + std::string(table), "Make it anew: kvsim calibrate.");
  return out;
}

}  // namespace kvsim::policy
