#include "policies/api/eviction.hpp"

#include "sim/base/error.hpp"

namespace kvsim::policy {

std::vector<float> Tables::calibrated(const CalibrationRequest& request, std::string_view /*table*/,
                                      int /*layer*/, int /*kv_head*/) const {
  bug("a policy asks for a calibration where none can be read", request.file);
}

std::vector<float> Tables::of_head(std::string_view file, std::string_view dataset, int /*layer*/,
                                   int /*kv_head*/, std::span<const std::size_t> /*dims*/) const {
  bug("a policy asks for a dataset where none can be read", std::string(file) + ":/" + std::string(dataset));
}

MatrixView Prompt::queries(int /*query_head*/) const {
  bug("a policy asks for the prompt's queries, which its spec does not need");
}

Rotary Prompt::rotary() const {
  bug("a policy asks for a rotation that the prompt does not say");
}

double Prompt::scale() const {
  bug("a policy asks for the scale of queries, which its spec does not need");
}

std::span<const std::uint8_t> Prompt::classes() const {
  bug("a policy asks for token classes, which its spec does not need");
}

std::span<const float> Prompt::surprises() const {
  bug("a policy asks for surprises, which its spec does not need");
}

MatrixView Prompt::output_weights(int /*query_head*/) const {
  bug("a policy asks for output weights, which its spec does not need");
}

namespace {

MatrixView rows(const MatrixView& all, std::size_t first, std::size_t n) {
  return all.data ? MatrixView{all.data + first * all.stride, n, all.cols, all.stride} : all;
}

}  // namespace

Arrival Arrival::of_lane(std::size_t lane, std::size_t group) const {
  Arrival out = *this;
  out.keys = rows(keys, lane, 1);
  out.queries = rows(queries, lane * group, group);
  return out;
}

Step Step::of_lane(std::size_t lane, std::size_t group) const {
  Step out = *this;
  out.attention = rows(attention, lane * group, group);
  if (!mass.empty()) out.mass = mass.subspan(lane * group, group);
  out.keys = rows(keys, lane, 1);
  out.values = rows(values, lane, 1);
  out.queries = rows(queries, lane * group, group);
  return out;
}

}  // namespace kvsim::policy
