#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "analysis/loop/answer_rows.hpp"
#include "analysis/loop/evaluation.hpp"
#include "analysis/results/json_string.hpp"
#include "sim/base/error.hpp"
#include "tools/python/core/python_cells.hpp"
#include "tools/python/core/python_parts.hpp"
#include "traces/capture/workload_item.hpp"
#include "traces/model/sampling.hpp"

namespace nb = nanobind;

namespace kvsim::python {
namespace {

using capture::WorkloadItem;

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using State = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::span<const float> numbers(const Logits& logits) {
  return {logits.data(), logits.shape(0)};
}

std::span<const float> finite(const Logits& logits) {
  const std::span<const float> all = numbers(logits);
  if (!std::ranges::all_of(all, [](float logit) { return std::isfinite(logit); }))
    input_error("the logits are not finite", "model", "The checkpoint holds NaN, or overflows in this type.");
  return all;
}

/// One run of the model after the cut.
struct Stream {
  sim::StreamOutcome outcome;
  std::vector<sim::DriftMean> drift;  ///< per layer

  sim::StreamOutcome finished() const {
    sim::StreamOutcome out = outcome;
    for (const sim::DriftMean& layer : drift) out.drift.push_back(layer.mean());
    return out;
  }
};

void add_drift(Stream& stream, const std::vector<State>& full_queries, const std::vector<State>& queries,
               const std::vector<Logits>& full_states, const std::vector<Logits>& states) {
  const std::size_t layers = queries.size();
  if (full_queries.size() != layers || full_states.size() != layers || states.size() != layers)
    bug("states of different numbers of layers");
  stream.drift.resize(layers);
  const auto view = [](const State& rows) {
    return MatrixView{rows.data(), rows.shape(0), rows.shape(1), rows.shape(1)};
  };
  for (std::size_t layer = 0; layer < layers; ++layer) {
    stream.drift[layer].add_queries(view(full_queries[layer]), view(queries[layer]));
    stream.drift[layer].add_residual(numbers(full_states[layer]), numbers(states[layer]));
  }
}

/// What all cells have answered to one item at one cut.
struct AnsweredItem {
  sim::LoopOutcome outcome;

  void add_reference(const Stream& stream) { outcome.references.push_back(stream.finished()); }
  void add_cell(const std::string& skipped, bool streams, std::uint64_t budget_tokens, double kept_tokens,
                const std::vector<const Stream*>& modes) {
    sim::LoopCell& cell = outcome.cells.emplace_back();
    cell.skipped = skipped;
    cell.prefill = streams ? sim::Prefill::stream : sim::Prefill::dense;
    cell.budget_tokens = budget_tokens;
    cell.kept_tokens = kept_tokens;
    for (const Stream* stream : modes) cell.modes.push_back(stream->finished());
  }
};

/// The rows of kvsim evaluate.
class Answers {
 public:
  Answers(const AskedCells& cells, const std::string& mode, const std::string& per, std::uint64_t seed) {
    options_.cells = cells.cells();
    options_.modes = analysis::parse_loop_modes(mode, "mode");
    const std::vector<std::string> scopes{"answer", "token", "layer"};
    const auto found = std::ranges::find(scopes, per);
    if (found == scopes.end())
      usage_error("unknown choice '" + per + "'", "per", "It is answer, token or layer.");
    options_.scope = static_cast<analysis::AnswerScope>(found - scopes.begin());
    request_.cells = options_.cells;
    request_.modes = options_.modes;
    request_.seed = seed;
    records_.columns = analysis::columns_of(options_);
  }

  std::vector<std::string> modes() const {
    std::vector<std::string> out;
    for (const sim::LoopMode mode : options_.modes) out.emplace_back(sim::loop_mode_name(mode));
    return out;
  }

  /// `decode(ids)`: the text of generated tokens. `lanes`, `token_bytes`: as of AnswerItem.
  void add(const WorkloadItem& item, const AnsweredItem& answered, const std::string& model,
           const nb::callable& decode, std::uint64_t lanes, std::uint64_t token_bytes) {
    analysis::AnswerItem described{.item = item.id,
                                   .workload = item.kind,
                                   .model = model,
                                   .turn = item.turn,
                                   .answers = item.answers,
                                   .text =
                                       [&](const std::vector<std::int32_t>& ids) {
                                         return analysis::well_formed(nb::cast<std::string>(decode(ids)));
                                       },
                                   .right = analysis::right_answer(item),
                                   .lanes = lanes,
                                   .token_bytes = token_bytes};
    const auto make = analysis::row_maker(options_.scope);
    for (std::vector<analysis::Value>& row : make(described, request_, answered.outcome))
      records_.rows.push_back(std::move(row));
  }

  analysis::Records take() { return std::exchange(records_, {}); }
  std::vector<std::string> notes() const {
    return options_.scope == analysis::AnswerScope::answer ? analysis::unranked_notes(records_)
                                                           : std::vector<std::string>{};
  }

 private:
  analysis::EvaluationOptions options_;
  sim::LoopRequest request_;
  analysis::Records records_;
};

}  // namespace

void bind_answers(nb::module_& module) {
  nb::class_<WorkloadItem>(module, "Item", "A prompt with answers.")
      .def_ro("id", &WorkloadItem::id)
      .def_ro("prompt", &WorkloadItem::prompt)
      .def_ro("answers", &WorkloadItem::answers)
      .def_prop_ro(
          "framed", [](const WorkloadItem& item) { return item.chat.empty(); },
          "Whether the tokenizer puts its own tokens around the prompt: a chat template wrote them")
      .def_prop_ro("has_parts", [](const WorkloadItem& item) { return !item.spans.empty(); })
      .def(
          "part_flags",
          [](const WorkloadItem& item, const std::vector<std::pair<nb::bytes, bool>>& tokens) {
            std::vector<capture::SpelledToken> spelled;
            for (const auto& [bytes, special] : tokens)
              spelled.push_back({std::string(bytes.c_str(), bytes.size()), special});
            return capture::part_flags(item, spelled);
          },
          nb::arg("tokens"),
          "The flags question, context and evidence of each token, given as (bytes, whether it is special)");
  module.def(
      "parse_workload",
      [](const std::string& text, const std::string& path) {
        std::vector<WorkloadItem> items = capture::parse_workload(text, path);
        for (const WorkloadItem& item : items)
          if (item.messages)
            usage_error("is a list of messages", path + ' ' + item.id,
                        "Make them a prompt: tokenizer.apply_chat_template(messages, tokenize=False, "
                        "add_generation_prompt=True)");
        return items;
      },
      nb::arg("text"), nb::arg("path"));
  nb::class_<Stream>(module, "Stream", "One run of the model after the cut.")
      .def(nb::init<>())
      .def_prop_ro("tokens", [](const Stream& s) { return s.outcome.tokens; })
      .def(
          "take", [](Stream& s, std::int32_t token) { s.outcome.tokens.push_back(token); }, nb::arg("token"))
      .def(
          "fed", [](Stream& s, std::uint64_t resident) { s.outcome.resident.push_back(resident); },
          nb::arg("resident"), "A token was fed; all lanes together hold so many.")
      .def(
          "margin",
          [](Stream& s, const Logits& logits) { s.outcome.margins.push_back(sim::margin(finite(logits))); },
          nb::arg("logits"))
      .def(
          "measure",
          [](Stream& s, const Logits& full, const Logits& mine, std::int32_t token) {
            s.outcome.measures.push_back(sim::measure_token(finite(full), finite(mine), token));
          },
          nb::arg("full"), nb::arg("mine"), nb::arg("token"))
      .def("drift", add_drift, nb::arg("full_queries"), nb::arg("queries"), nb::arg("full_states"),
           nb::arg("states"))
      .def(
          "end",
          [](Stream& s, double held, std::optional<double> evidence_held,
             std::optional<double> evidence_nowhere) {
            s.outcome.held_tokens = held;
            s.outcome.evidence_held = evidence_held;
            s.outcome.evidence_nowhere = evidence_nowhere;
          },
          nb::arg("held_tokens"), nb::arg("evidence_held").none(), nb::arg("evidence_nowhere").none());
  module.def(
      "choose_greedily", [](const Logits& logits) { return model::choose_token(finite(logits), {}, 0); },
      nb::arg("logits"), "The most probable token, the lowest id among equals.");
  nb::class_<AnsweredItem>(module, "AnsweredItem", "What all cells have answered to one item at one cut.")
      .def(
          "__init__",
          [](AnsweredItem* at, std::uint64_t prompt, std::uint64_t fed, const std::string& cut) {
            new (at) AnsweredItem();
            at->outcome.prompt = prompt;
            at->outcome.fed = fed;
            at->outcome.cut = cut;
          },
          nb::arg("prompt"), nb::arg("fed"), nb::arg("cut"))
      .def("add_reference", &AnsweredItem::add_reference, nb::arg("stream"))
      .def("add_cell", &AnsweredItem::add_cell, nb::arg("skipped"), nb::arg("streams"),
           nb::arg("budget_tokens"), nb::arg("kept_tokens"), nb::arg("modes"));
  nb::class_<Answers>(module, "Answers", "The rows of kvsim evaluate.")
      .def(nb::init<const AskedCells&, const std::string&, const std::string&, std::uint64_t>(),
           nb::arg("cells"), nb::arg("mode"), nb::arg("per"), nb::arg("seed"))
      .def_prop_ro("modes", &Answers::modes)
      .def("add", &Answers::add, nb::arg("item"), nb::arg("answered"), nb::arg("model"), nb::arg("decode"),
           nb::arg("lanes"), nb::arg("token_bytes"))
      .def("notes", &Answers::notes)
      .def("take_records", &Answers::take);
}

}  // namespace kvsim::python
