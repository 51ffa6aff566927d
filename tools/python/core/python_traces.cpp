#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/base/elements.hpp"
#include "sim/base/error.hpp"
#include "sim/replay/decisions.hpp"
#include "tools/python/core/owned_array.hpp"
#include "tools/python/core/python_parts.hpp"
#include "traces/format/reader.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using trace::Header;
using trace::Source;
using trace::Tensor;

template <class T>
nb::object array_of(const std::vector<T>& numbers) {
  auto copy = std::make_unique<T[]>(numbers.size());
  std::ranges::copy(numbers, copy.get());
  return owned_array(std::move(copy), {numbers.size()});
}

class OpenTrace {
 public:
  explicit OpenTrace(const std::string& path) : source_(trace::open_trace(path)) {}

  const Source& source() const { return *source_; }
  const Header& header() const { return source_->header(); }

  /// float32 [heads, rows, dim], or [rows, dim] of one head.
  nb::object floats(Tensor tensor, std::uint32_t layer, std::optional<std::uint32_t> head) const {
    const Range range = range_of(tensor, layer, head);
    auto out = std::make_unique_for_overwrite<float[]>(range.heads * range.rows * range.dim);
    {
      const nb::gil_scoped_release released;
      for (std::size_t i = 0; i < range.heads; ++i)
        read(tensor, layer, range, i, out.get() + i * range.rows * range.dim);
    }
    return shaped(std::move(out), range, head.has_value());
  }

  /// The same as 16-bit patterns, of a trace that stores 16-bit numbers.
  nb::object halves(Tensor tensor, std::uint32_t layer, std::optional<std::uint32_t> head) const {
    if (header().elem == Elem::f32)
      usage_error("stores 32-bit numbers", source_->name(), "Read them as float32.");
    const Range range = range_of(tensor, layer, head);
    const std::size_t of_head = range.rows * range.dim;
    auto out = std::make_unique_for_overwrite<std::uint16_t[]>(range.heads * of_head);
    {
      const nb::gil_scoped_release released;
      const auto wide = std::make_unique_for_overwrite<float[]>(of_head);
      for (std::size_t i = 0; i < range.heads; ++i) {
        read(tensor, layer, range, i, wide.get());
        Elements(std::span<const float>(wide.get(), of_head)).store(header().elem, out.get() + i * of_head);
      }
    }
    return shaped(std::move(out), range, head.has_value());
  }

 private:
  struct Range {
    std::size_t first_head, heads, rows, dim;
  };

  Range range_of(Tensor tensor, std::uint32_t layer, std::optional<std::uint32_t> head) const {
    const trace::Model& model = header().model;
    const std::uint32_t heads = tensor == Tensor::query ? model.n_q_heads : model.n_kv_heads;
    if (layer >= model.n_layers)
      usage_error("has " + std::to_string(model.n_layers) + " layers, from 0; there is no layer " +
                      std::to_string(layer),
                  source_->name());
    if (head && *head >= heads)
      usage_error(
          "has " + std::to_string(heads) + " such heads, from 0; there is no head " + std::to_string(*head),
          source_->name());
    return {head.value_or(0), head ? 1U : heads,
            static_cast<std::size_t>(tensor == Tensor::query ? header().n_query_rows() : header().n_tokens()),
            tensor == Tensor::value ? model.v_head_dim : model.head_dim};
  }
  void read(Tensor tensor, std::uint32_t layer, const Range& range, std::size_t index, float* out) const {
    source_->read(tensor, layer, static_cast<std::uint32_t>(range.first_head + index), 0, range.rows,
                  {out, range.rows * range.dim});
  }
  template <class T>
  nb::object shaped(std::unique_ptr<T[]> numbers, const Range& range, bool one) const {
    return one ? owned_array(std::move(numbers), {range.rows, range.dim})
               : owned_array(std::move(numbers), {range.heads, range.rows, range.dim});
  }

  std::unique_ptr<Source> source_;
};

nb::dict model_of(const Header& header) {
  const trace::Model& model = header.model;
  nb::dict out;
  out["name"] = model.name;
  out["model_type"] = model.model_type;
  out["n_layers"] = model.n_layers;
  out["n_q_heads"] = model.n_q_heads;
  out["n_kv_heads"] = model.n_kv_heads;
  out["head_dim"] = model.head_dim;
  out["v_head_dim"] = model.v_head_dim;
  out["hidden_size"] = model.hidden_size;
  out["vocab_size"] = model.vocab_size;
  out["attn_scale"] = model.attn_scale;
  out["rope_theta"] = model.rope_theta;
  out["rope_layout"] = model.rope_layout;
  out["inv_freq"] = array_of(model.inv_freq);
  out["layer_window"] = model.layer_window;
  out["chunked"] = model.chunked;
  out["config_json"] = model.config_json;
  return out;
}

nb::dict capture_of(const Header& header) {
  const trace::Capture& capture = header.capture;
  nb::dict out;
  out["source"] = capture.source;
  out["device_name"] = capture.device_name;
  out["compute_dtype"] = capture.compute_dtype;
  out["software"] = capture.software;
  out["sampling"] = capture.sampling;
  out["q_policy"] = capture.q_policy;
  out["workload"] = capture.workload;
  out["workload_item"] = capture.workload_item;
  out["seed"] = capture.seed;
  return out;
}

nb::list segments_of(const Header& header) {
  nb::list out;
  for (const trace::Segment& segment : header.segments) {
    nb::dict entry;
    entry["parent"] = segment.parent;
    entry["begin"] = segment.begin;
    entry["count"] = segment.count;
    entry["phase"] = trace::phase_name(segment.phase);
    entry["turn"] = segment.turn;
    out.append(entry);
  }
  return out;
}

/// A dict per cell; `lanes`: per lane int64 [n, 3] of position, first step, last step.
nb::list decisions_of(const std::string& path) {
  const sim::Decisions decisions = sim::read_decisions(path);
  nb::list out;
  for (const sim::Decisions::Cell& cell : decisions.cells) {
    nb::list lanes;
    for (const std::vector<sim::ResidentInterval>& intervals : cell.resident_intervals) {
      auto numbers = std::make_unique_for_overwrite<std::int64_t[]>(3 * intervals.size());
      for (std::size_t i = 0; i < intervals.size(); ++i) {
        numbers[3 * i] = intervals[i].position;
        numbers[3 * i + 1] = intervals[i].first;
        numbers[3 * i + 2] = intervals[i].last;
      }
      lanes.append(owned_array(std::move(numbers), {intervals.size(), 3}));
    }
    nb::dict entry;
    entry["policy"] = cell.policy;
    entry["params"] = cell.params;
    entry["budget"] = cell.budget;
    entry["budget_tokens"] = cell.budget_tokens;
    entry["skipped"] = cell.skipped;
    entry["lanes"] = lanes;
    out.append(entry);
  }
  return out;
}

}  // namespace

void bind_traces(nb::module_& module) {
  module.def("read_decisions", decisions_of, nb::arg("path"),
             "A dict per cell of a file that replay(decisions=...) wrote.");
  nb::enum_<Tensor>(module, "Tensor")
      .value("query", Tensor::query)
      .value("key", Tensor::key)
      .value("value", Tensor::value);
  nb::class_<OpenTrace>(module, "OpenTrace", "An open trace; kvsim.Trace is what users see of it.")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def("floats", &OpenTrace::floats, nb::arg("tensor"), nb::arg("layer"), nb::arg("head").none())
      .def("halves", &OpenTrace::halves, nb::arg("tensor"), nb::arg("layer"), nb::arg("head").none())
      .def("require_unchanged", [](const OpenTrace& t) { t.source().require_unchanged(); })
      .def_prop_ro("elem",
                   [](const OpenTrace& t) {
                     const Elem elem = t.header().elem;
                     return elem == Elem::f32 ? "f32" : elem == Elem::f16 ? "f16" : "bf16";
                   })
      .def_prop_ro("content_sha256", [](const OpenTrace& t) { return t.source().content_sha256(); })
      .def_prop_ro("model", [](const OpenTrace& t) { return model_of(t.header()); })
      .def_prop_ro("capture", [](const OpenTrace& t) { return capture_of(t.header()); })
      .def_prop_ro("segments", [](const OpenTrace& t) { return segments_of(t.header()); })
      .def_prop_ro("token_id", [](const OpenTrace& t) { return array_of(t.header().token_id); })
      .def_prop_ro("token_position", [](const OpenTrace& t) { return array_of(t.header().token_position); })
      .def_prop_ro("token_flags", [](const OpenTrace& t) { return array_of(t.header().token_flags); })
      .def_prop_ro("query_token", [](const OpenTrace& t) { return array_of(t.header().query_token); })
      .def_prop_ro("text_offset", [](const OpenTrace& t) { return array_of(t.header().text_offset); })
      .def_prop_ro("text", [](const OpenTrace& t) {
        return nb::bytes(t.header().text_bytes.data(), t.header().text_bytes.size());
      });
}

}  // namespace kvsim::python
