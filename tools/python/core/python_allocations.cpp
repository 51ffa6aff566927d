// Allocations written in Python (kvsim.Allocation).
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "policies/api/allocation.hpp"
#include "sim/base/error.hpp"
#include "tools/python/core/owned_array.hpp"
#include "tools/python/core/python_policies.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using policy::AllocationRequest;
using policy::CacheUnit;
using policy::Params;

/// What Python sees of a request: copies, so that it may be kept.
struct RequestOfCall {
  std::size_t n_layers, n_kv_heads, prompt, budget, floor;
  bool shared;
  nb::object profiles, scores;
};

/// [lanes][n] as an array [n_layers, n_kv_heads, n]; None if there are none.
nb::object by_lane(const AllocationRequest& request, const std::vector<std::vector<double>>& lanes) {
  if (lanes.empty()) return nb::none();
  std::vector<double> numbers;
  for (const std::vector<double>& lane : lanes) numbers.insert(numbers.end(), lane.begin(), lane.end());
  return owned_array(std::move(numbers), {request.n_layers, request.n_kv_heads, lanes.front().size()});
}

class PythonProfile final : public Recording<policy::Profile> {
 public:
  PythonProfile(SharedDeclaration declaration, const Params& params, const CacheUnit& lane)
      : Recording(std::move(declaration), params, lane), lane_(lane) {}

  void finish_prompt(const policy::Prompt& prompt) override {
    const std::string where = declaration_->place(lane_, "profile");
    declaration_->with_python(where, [&] {
      const nb::object object = declaration_->instance(params_, &lane_);
      values_ = doubles_from(recorder_.call(object, "profile", prompt), 0, where,
                             "It is as many numbers of every lane, for allocate() to read.");
    });
  }
  std::vector<double> values() const override { return values_; }

 private:
  CacheUnit lane_;
  std::vector<double> values_;
};

class PythonAllocation final : public policy::Allocation {
 public:
  PythonAllocation(SharedDeclaration declaration, const Params& params)
      : declaration_(std::move(declaration)), params_(params) {}

  std::unique_ptr<policy::Profile> profile(const CacheUnit& lane) const override {
    if (!declaration_->has_profile) return nullptr;
    return std::make_unique<PythonProfile>(declaration_, params_, lane);
  }

  std::vector<std::size_t> allocate(const AllocationRequest& request) const override {
    policy::headroom(request);  // refuses a budget below the floor
    const std::string where = declaration_->name + ": allocate()";
    if (!request.even())
      usage_error(
          "knows layers of one size, and some layers of this model hold no more than their sliding window",
          where, "Allocations of kvsim itself know windows.");
    return declaration_->with_python(where, [&] {
      for (const std::vector<double>& lane : request.profiles)
        if (lane.size() != request.profiles.front().size())
          usage_error("returned different numbers of values for different lanes",
                      declaration_->name + ": profile()");
      const nb::object asked = nb::cast(RequestOfCall{
          request.n_layers, request.n_kv_heads, request.prompt, request.budget, request.floor, request.shared,
          by_lane(request, request.profiles), by_lane(request, request.scores)});
      const nb::object returned = declaration_->instance(params_, nullptr).attr("allocate")(asked);
      const nb::object flat = nb::module_::import_("numpy").attr("ravel")(returned);
      return checked(doubles_from(flat, request.n_lanes(), where,
                                  "It is the tokens of every lane, [n_layers, n_kv_heads]."),
                     request, where);
    });
  }

 private:
  std::vector<std::size_t> checked(const std::vector<double>& given, const AllocationRequest& request,
                                   const std::string& where) const {
    const std::size_t least = std::min(request.floor, request.prompt);
    std::vector<std::size_t> out;
    for (std::size_t lane = 0; lane < given.size(); ++lane) {
      const double tokens = given[lane];
      const std::string which = "layer " + std::to_string(lane / request.n_kv_heads) + ", KV head " +
                                std::to_string(lane % request.n_kv_heads);
      if (tokens != std::floor(tokens) || tokens < static_cast<double>(least) ||
          tokens > static_cast<double>(request.prompt))
        usage_error("gave " + which + " a number of tokens that is not a whole number from " +
                        std::to_string(least) + " to " + std::to_string(request.prompt),
                    where, "request.floor and request.prompt say so.");
      out.push_back(static_cast<std::size_t>(tokens));
      if (request.shared && out[lane] != out[lane / request.n_kv_heads * request.n_kv_heads])
        usage_error("gave " + which + " other tokens than its layer's first head, whose set it shares", where,
                    "request.shared says that the heads of a layer share one.");
    }
    const std::size_t total = std::accumulate(out.begin(), out.end(), std::size_t{0});
    const std::size_t asked = std::min(request.budget, request.prompt) * request.n_lanes();
    if (!declaration_->inexact && total != asked)
      usage_error(
          "gave out " + std::to_string(total) + " tokens where " + std::to_string(asked) + " are asked for",
          where, "A class with `inexact = True` may have a total of its own.");
    return out;
  }

  SharedDeclaration declaration_;
  Params params_;
};

}  // namespace

void complete_allocation(policy::PolicySpec& spec, const SharedDeclaration& declaration) {
  spec.rule = policy::AllocationRule{
      .uses_scores = declaration->scores,
      .inexact = [declaration](const Params&) { return declaration->inexact; },
      .make = [declaration](
                  const Params& params) { return std::make_unique<PythonAllocation>(declaration, params); }};
}

void bind_allocations(nb::module_& module) {
  nb::class_<RequestOfCall>(module, "AllocationRequest", "What an allocation is asked to split.")
      .def_ro("n_layers", &RequestOfCall::n_layers)
      .def_ro("n_kv_heads", &RequestOfCall::n_kv_heads)
      .def_ro("prompt", &RequestOfCall::prompt, "Tokens of the prompt: no lane can use more")
      .def_ro("budget", &RequestOfCall::budget, "Mean tokens per lane; the total is as many times the lanes")
      .def_ro("floor", &RequestOfCall::floor,
              "Tokens that the eviction keeps in every lane whatever their score")
      .def_ro("shared", &RequestOfCall::shared,
              "The heads of a layer hold one set and must get as many tokens")
      .def_ro("profiles", &RequestOfCall::profiles,
              "What profile() has returned, float64 [n_layers, n_kv_heads, n]; None without it")
      .def_ro("scores", &RequestOfCall::scores,
              "The eviction's scores, float64 [n_layers, n_kv_heads, prompt]; None without `scores`");
}

}  // namespace kvsim::python
