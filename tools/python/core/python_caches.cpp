#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "sim/attention/group_tensors.hpp"
#include "sim/base/elements.hpp"
#include "sim/base/error.hpp"
#include "sim/loop/cell_caches.hpp"
#include "tools/python/core/owned_array.hpp"
#include "tools/python/core/python_cells.hpp"
#include "tools/python/core/python_parts.hpp"
#include "traces/format/memory_trace.hpp"
#include "traces/format/source.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using policy::Position;
using trace::Tensor;

/// [heads, rows, dim] or, of one token, [heads, dim].
using Rows = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using TokenRows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using SlotWeights = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// The model as kvsim.writing.trace_header.Model describes it.
trace::Model model_of(nb::handle given) {
  trace::Model model;
  const auto read = [&](const char* name, auto& to) {
    to = nb::cast<std::remove_reference_t<decltype(to)>>(given.attr(name));
  };
  read("name", model.name);
  read("model_type", model.model_type);
  read("architecture", model.architecture);
  read("n_layers", model.n_layers);
  read("n_q_heads", model.n_q_heads);
  read("n_kv_heads", model.n_kv_heads);
  read("head_dim", model.head_dim);
  read("v_head_dim", model.v_head_dim);
  read("rotary_dim", model.rotary_dim);
  read("hidden_size", model.hidden_size);
  read("vocab_size", model.vocab_size);
  read("attn_scale", model.attn_scale);
  read("rope_theta", model.rope_theta);
  read("rope_attention_factor", model.rope_attention_factor);
  read("rope_type", model.rope_type);
  read("rope_layout", model.rope_layout);
  read("layer_window", model.layer_window);
  read("chunked", model.chunked);
  for (const nb::handle frequency : given.attr("inv_freq"))
    model.inv_freq.push_back(nb::cast<float>(nb::float_(frequency)));
  if (!given.attr("layer_rotation").is_none()) {
    read("layer_rotation", model.layer_rotation);
    read("rotation_factor", model.rotation_factor);
  }
  if (!given.attr("sinks").is_none())
    for (const nb::handle sink : given.attr("sinks"))
      model.sinks.push_back(nb::cast<float>(nb::float_(sink)));
  read("logit_softcap", model.logit_softcap);
  return model;
}

/// The prompt of a run in Python: its arrays are read where they lie.
class ArraySource final : public trace::Source {
 public:
  ArraySource(trace::Header header, std::vector<Rows> queries, std::vector<Rows> keys,
              std::vector<Rows> values, std::vector<Rows> output_weights)
      : header_(std::move(header)),
        tensors_{std::move(queries), std::move(keys), std::move(values)},
        output_weights_(std::move(output_weights)) {
    const trace::Model& model = header_.model;
    check(Tensor::query, {model.n_q_heads, header_.n_query_rows(), model.head_dim});
    check(Tensor::key, {model.n_kv_heads, header_.n_tokens(), model.head_dim});
    check(Tensor::value, {model.n_kv_heads, header_.n_tokens(), model.v_head_dim});
    if (has_output_weights())
      check_shapes(output_weights_, {model.n_q_heads, model.v_head_dim, model.hidden_size}, "output weights");
  }

  const trace::Header& header() const override { return header_; }
  std::string name() const override { return "the running model"; }
  std::string content_sha256() const override { return {}; }
  void read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
            std::uint64_t n_rows, std::span<float> out) const override {
    const Rows& rows = tensors_[static_cast<std::size_t>(tensor)][layer];
    const std::size_t dim = rows.shape(2);
    if (out.size() != n_rows * dim) bug("read of rows of the wrong size", name());
    std::copy_n(rows.data() + (head * rows.shape(1) + first_row) * dim, n_rows * dim, out.data());
  }
  void read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                           std::span<float> out) const override {
    std::copy_n(output_weights_[layer].data() + query_head * out.size(), out.size(), out.data());
  }
  void read_column_statistics(std::uint32_t, std::uint32_t, std::span<float>,
                              std::span<float>) const override {
    bug("a running model has no column statistics");
  }

 private:
  using Shape = std::array<std::size_t, 3>;

  void check(Tensor tensor, Shape shape) const {
    constexpr const char* kNames[] = {"queries", "keys", "values"};
    const auto number = static_cast<std::size_t>(tensor);
    check_shapes(tensors_[number], shape, kNames[number]);
  }
  void check_shapes(const std::vector<Rows>& of_layers, Shape shape, const std::string& what) const {
    if (of_layers.size() != header_.model.n_layers) bug(what + " are not those of every layer", name());
    for (const Rows& rows : of_layers)
      for (std::size_t i = 0; i < shape.size(); ++i)
        if (rows.shape(i) != shape[i]) bug(what + " have another shape than the model", name());
  }

  trace::Header header_;
  std::vector<Rows> tensors_[3];  // by Tensor, then layer
  std::vector<Rows> output_weights_;
};

Elem elem_of(const std::string& name) {
  for (const Elem elem : {Elem::f32, Elem::f16, Elem::bf16})
    if (name == elem_name(elem)) return elem;
  bug("no element type " + name);
}

MatrixView view(const std::optional<TokenRows>& rows) {
  return rows ? MatrixView{rows->data(), rows->shape(0), rows->shape(1), rows->shape(1)} : MatrixView{};
}

bool projects(const policy::Composition& composition) {
  return composition.eviction.needs().output_weights || composition.allocation.needs().output_weights;
}

/// Of a whole model; kvsim.hf.Cache is what users see of it.
class LoopCaches {
 public:
  LoopCaches(nb::object cells, std::size_t index, nb::handle model, const std::vector<std::int32_t>& ids,
             const std::optional<std::vector<std::uint32_t>>& flags, const std::string& elem,
             std::uint64_t seed, std::size_t length, unsigned threads)
      : owner_(std::move(cells)), asked_(&nb::cast<AskedCells&>(owner_)), cell_(asked_->at(index)) {
    header_ = trace::plain_header(model_of(model), ids.size(), 0);
    header_.token_id = ids;
    header_.elem = elem_of(elem);
    header_.capture.source = "transformers";
    header_.flags_known = trace::kFlagGenerated;
    if (flags) {
      header_.token_flags = *flags;
      header_.flags_known |= trace::kFlagSpecial | trace::kFlagPunctuation;
    }
    if (projects(cell_.composition)) header_.output_elem = Elem::f32;
    asked_->run([&] {
      caches_ = std::make_unique<sim::CellCaches>(
          header_, sim::CellCachesRequest{.cell = cell_, .seed = seed, .threads = threads, .length = length});
    });
  }

  sim::CellCaches& caches() { return *caches_; }
  bool needs_output_weights() const { return header_.output_elem.has_value(); }

  /// All arrays are of the prompt, per layer; queries may be the last rows alone. Returns of each cache why
  /// it cannot begin, or an empty text.
  static std::vector<std::string> begin_together(const std::vector<LoopCaches*>& caches,
                                                 const std::vector<Rows>& queries,
                                                 const std::vector<Rows>& keys,
                                                 const std::vector<Rows>& values,
                                                 const std::vector<Rows>& output_weights) {
    if (caches.empty()) return {};
    trace::Header header = caches.front()->header_;
    if (!output_weights.empty()) header.output_elem = Elem::f32;
    const std::size_t prompt = header.n_tokens(), held = queries.empty() ? 0 : queries.front().shape(1);
    if (held > prompt) bug("more queries than tokens", "the running model");
    if (held < prompt) {
      header.query_token.resize(held);
      std::iota(header.query_token.begin(), header.query_token.end(), prompt - held);
      header.capture.q_policy = "window:" + std::to_string(held);
    }
    const ArraySource source(std::move(header), queries, keys, values, output_weights);
    std::vector<sim::CellCaches*> all;
    for (const LoopCaches* each : caches) all.push_back(each->caches_.get());
    std::vector<std::string> refused;
    caches.front()->asked_->run([&] {
      Progress progress;
      const nb::gil_scoped_release released;
      refused = sim::CellCaches::begin_together(all, source, progress);
    });
    return refused;
  }
  /// Of a prompt that is admitted token by token.
  void begin_stream() {
    asked_->run([&] {
      Progress progress;
      const nb::gil_scoped_release released;
      caches_->begin(trace::HeaderSource(header_), progress);
    });
  }
  void rewind() {
    asked_->run([&] { caches_->rewind(); });
  }

  nb::object slots(std::size_t layer, std::size_t lane) const {
    const std::span<const Position> slots = caches_->slots(layer, lane);
    return owned_array(std::vector<Position>(slots.begin(), slots.end()), {slots.size()});
  }

  /// Per unit (first lane, lanes, own slot, victims).
  nb::list admit(std::size_t layer, Position position, std::optional<TokenRows> keys,
                 std::optional<TokenRows> values, std::optional<TokenRows> queries, std::uint32_t flags) {
    keys_ = std::move(keys);
    values_ = std::move(values);
    queries_ = std::move(queries);
    token_ = {position, view(keys_), view(values_), view(queries_), sim::class_of_flags(flags)};
    nb::list out;
    asked_->run([&] {
      for (const sim::CellCaches::Arrived& unit : caches_->admit(layer, token_)) {
        nb::list victims;
        for (const std::size_t victim : unit.victims) victims.append(victim);
        out.append(nb::make_tuple(unit.first_lane, unit.n_lanes, unit.own_slot, victims));
      }
    });
    return out;
  }
  void ask_again(std::size_t layer, Position position, const TokenRows& keys, const TokenRows& values) {
    asked_->run([&] { caches_->ask_again(layer, {position, view(keys), view(values), {}, 0}); });
  }
  void attended(std::size_t layer, const std::optional<SlotWeights>& weights) {
    asked_->run([&] {
      caches_->attended(layer, token_,
                        weights ? std::span(weights->data(), weights->shape(0)) : std::span<const float>{});
    });
  }

 private:
  nb::object owner_;  // of asked_
  AskedCells* asked_;
  sim::Cell cell_;
  trace::Header header_;
  std::unique_ptr<sim::CellCaches> caches_;
  // The token that joined last.
  sim::Token token_;
  std::optional<TokenRows> keys_, values_, queries_;
};

}  // namespace

void bind_caches(nb::module_& module) {
  nb::class_<LoopCaches>(
      module, "CellCaches",
      "What one cell decides in a model that runs in Python; kvsim.hf.Cache is what users see of it.")
      .def(nb::init<nb::object, std::size_t, nb::handle, const std::vector<std::int32_t>&,
                    const std::optional<std::vector<std::uint32_t>>&, const std::string&, std::uint64_t,
                    std::size_t, unsigned>(),
           nb::arg("cells"), nb::arg("index"), nb::arg("model"), nb::arg("ids"), nb::arg("flags").none(),
           nb::arg("elem"), nb::arg("seed"), nb::arg("length"), nb::arg("threads"))
      .def_prop_ro(
          "streams", [](LoopCaches& c) { return c.caches().prefill() == sim::Prefill::stream; },
          "Whether the prompt is admitted token by token instead of ranked")
      .def_prop_ro("budget_tokens", [](LoopCaches& c) { return c.caches().budget_tokens(); })
      .def_prop_ro(
          "first_query", [](LoopCaches& c) { return c.caches().first_query(); },
          "The first position whose query begin() needs")
      .def_prop_ro("needs_weights", [](LoopCaches& c) { return c.caches().needs_weights(); })
      .def_prop_ro("needs_output_weights", &LoopCaches::needs_output_weights)
      .def_static(
          "begin_together", &LoopCaches::begin_together, nb::arg("caches"), nb::arg("queries"),
          nb::arg("keys"), nb::arg("values"), nb::arg("output_weights"),
          "Several caches of one prompt that do not stream it; of each why it cannot begin, or ''. The "
          "prompt in every layer, float32: queries [query heads, rows, head_dim], the last rows of the "
          "prompt, keys and values [KV heads, prompt, dim], output weights [query heads, value_dim, "
          "hidden] or none")
      .def("begin_stream", &LoopCaches::begin_stream)
      .def("rewind", &LoopCaches::rewind)
      .def("slots", &LoopCaches::slots, nb::arg("layer"), nb::arg("kv_head"),
           "Text position in each slot, int32 [slots]")
      .def(
          "decodes", [](LoopCaches& c, std::size_t layer) { return c.caches().decodes(layer); },
          nb::arg("layer"))
      .def("admit", &LoopCaches::admit, nb::arg("layer"), nb::arg("position"), nb::arg("keys").none(),
           nb::arg("values").none(), nb::arg("queries").none(), nb::arg("flags"),
           "Per unit (first KV head, KV heads, the token's slot, slots that leave)")
      .def("ask_again", &LoopCaches::ask_again, nb::arg("layer"), nb::arg("position"), nb::arg("keys"),
           nb::arg("values"), "The prompt's last token with its new keys and values")
      .def("attended", &LoopCaches::attended, nb::arg("layer"), nb::arg("weights").none());
}

}  // namespace kvsim::python
