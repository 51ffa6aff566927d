#include "sim/loop/assembled_prompt.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "sim/attention/group_tensors.hpp"
#include "sim/base/error.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/quoted.hpp"
#include "sim/base/rotary.hpp"
#include "sim/base/workers.hpp"
#include "sim/loop/slot_rows.hpp"
#include "traces/model/cpu/kernels.hpp"
#include "traces/model/cpu/step_batch.hpp"

namespace kvsim::sim {
namespace {

using model::cpu::StepBatch;
using model::cpu::StepTensors;
using trace::Tensor;

/// The layer in which tokens are chosen by what deviates.
constexpr std::uint32_t kCheckLayer = 1;

std::size_t dim_of(const trace::Model& model, Tensor tensor) {
  return tensor == Tensor::value ? model.v_head_dim : model.head_dim;
}

void place(std::span<const Piece> pieces, Tensor tensor, std::uint32_t layer, std::uint32_t head,
           trace::MemoryTrace& out) {
  const trace::Model& model = out.header().model;
  const std::size_t dim = dim_of(model, tensor);
  const std::span<float> to = out.rows(tensor, layer, head);
  std::ranges::fill(to, std::numeric_limits<float>::quiet_NaN());
  for (const Piece& piece : pieces) {
    const std::uint64_t n = piece.end - piece.begin;
    const std::span<float> rows = to.subspan(piece.begin * dim, n * dim);
    piece.alone->read(tensor, layer, head, piece.lead, n, rows);
    if (tensor == Tensor::value || piece.begin == piece.lead) continue;
    unrotate(model.rotary(layer), piece.lead, dim, rows);
    rotate(model.rotary(layer), piece.begin, dim, rows);
    model::cpu::round_to(out.header().elem, rows);
  }
}

/// The prompt while it is put together.
class PromptAssembly {
 public:
  PromptAssembly(const trace::MemoryTrace& placed, std::span<const Piece> pieces,
                 const model::ModelConfig& config, const Assembly& assembly, Workers& workers)
      : pieces_(pieces),
        config_(config),
        assembly_(assembly),
        workers_(workers),
        model_(placed.header().model),
        in_document_(placed.header().n_tokens(), 0),
        out_{placed} {
    for (const Piece& piece : pieces)
      std::fill(in_document_.begin() + static_cast<std::ptrdiff_t>(piece.begin),
                in_document_.begin() + static_cast<std::ptrdiff_t>(piece.end), char{1});
  }

  void compute(std::span<const std::int32_t> tokens, StepBatch& batch, Progress& progress) {
    std::vector<StepBatch::Row> rows;
    for (std::uint64_t position = 0; position < tokens.size(); ++position)
      if (begins(position)) {
        rows.push_back({tokens[position], position});
        present_.push_back(position);
      }
    batch.forward(
        rows,
        [&](std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
          progress.check();
          attend(layer, tensors, attended);
        },
        {}, [&](std::uint32_t) { return std::span<const std::size_t>(going_); });
    out_.computed =
        static_cast<double>(out_.layer_rows) / (static_cast<double>(tokens.size()) * config_.n_layers);
    for (const std::uint64_t position : present_)
      if (in_document_[position] != 0) out_.chosen.push_back(position);
  }

  AssembledPrompt& result() { return out_; }

 private:
  bool by_deviation() const {
    return assembly_.choice == Assembly::Choice::values || assembly_.choice == Assembly::Choice::keys;
  }

  /// Whether a token is computed in layer 0.
  bool begins(std::uint64_t position) const {
    if (in_document_[position] == 0 || assembly_.choice == Assembly::Choice::all || by_deviation())
      return true;
    return assembly_.choice == Assembly::Choice::first &&
           std::ranges::any_of(pieces_, [&](const Piece& piece) {
             return position >= piece.begin && position < std::min(piece.end, piece.begin + assembly_.tokens);
           });
  }

  std::span<float> row(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t position) {
    const std::size_t dim = dim_of(model_, tensor);
    return out_.trace.rows(tensor, layer, head).subspan(position * dim, dim);
  }

  void attend(std::uint32_t layer, const StepTensors& tensors, std::span<float> attended) {
    going_.resize(present_.size());
    std::iota(going_.begin(), going_.end(), std::size_t{0});
    const bool checks = by_deviation() && layer == kCheckLayer;
    if (checks) choose(tensors);
    if (checks && assembly_.choice == Assembly::Choice::keys) {
      for (const std::size_t i : going_) keep(layer, tensors, i);
    } else {
      for (std::size_t i = 0; i < present_.size(); ++i) keep(layer, tensors, i);
    }
    workers_.run(going_.size(), [&](std::size_t i) { attend_row(layer, tensors, going_[i], attended); });
    out_.layer_rows += going_.size();
    std::vector<std::uint64_t> left;
    for (const std::size_t i : going_) left.push_back(present_[i]);
    present_ = std::move(left);
  }

  /// Which of the present tokens go on: what no document covers, and those that deviate most.
  void choose(const StepTensors& tensors) {
    const bool values = assembly_.choice == Assembly::Choice::values;
    std::vector<double> deviations;
    std::vector<std::size_t> documents, rest;
    for (std::size_t i = 0; i < present_.size(); ++i) {
      if (in_document_[present_[i]] == 0) {
        rest.push_back(i);
        continue;
      }
      double sum = 0;
      for (std::uint32_t head = 0; head < model_.n_kv_heads; ++head) {
        const std::span<const float> fresh =
            values ? tensors.values(i, head, 1).row(0) : tensors.keys(i, head, 1).row(0);
        const std::span<const float> stored =
            row(values ? Tensor::value : Tensor::key, kCheckLayer, head, present_[i]);
        for (std::size_t c = 0; c < fresh.size(); ++c) {
          const double difference = static_cast<double>(fresh[c]) - static_cast<double>(stored[c]);
          sum += difference * difference;
        }
      }
      deviations.push_back(sum);
      documents.push_back(i);
    }
    going_ = std::move(rest);
    for (const std::size_t place : most_deviating(deviations, assembly_.percent))
      going_.push_back(documents[place]);
    std::ranges::sort(going_);
  }

  /// The present token's rows take the place of what was stored.
  void keep(std::uint32_t layer, const StepTensors& tensors, std::size_t i) {
    const auto copy = [&](Tensor tensor, std::uint32_t head, MatrixView from) {
      std::ranges::copy(from.row(0), row(tensor, layer, head, present_[i]).begin());
    };
    for (std::uint32_t head = 0; head < model_.n_q_heads; ++head)
      copy(Tensor::query, head, tensors.queries(i, head, 1));
    for (std::uint32_t head = 0; head < model_.n_kv_heads; ++head) {
      copy(Tensor::key, head, tensors.keys(i, head, 1));
      copy(Tensor::value, head, tensors.values(i, head, 1));
    }
  }

  void attend_row(std::uint32_t layer, const StepTensors& tensors, std::size_t i, std::span<float> attended) {
    thread_local SlotRows rows;
    thread_local std::vector<SlotRow> slots;
    const std::size_t group = config_.n_heads / config_.n_kv_heads, dim = model_.v_head_dim;
    const std::uint64_t position = present_[i];
    const std::uint64_t first = position + 1 - held_tokens(model_, layer, position + 1);
    for (std::uint32_t lane = 0; lane < config_.n_kv_heads; ++lane) {
      const float* keys = out_.trace.rows(Tensor::key, layer, lane).data();
      const float* values = out_.trace.rows(Tensor::value, layer, lane).data();
      slots.clear();
      for (std::uint64_t key = first; key <= position; ++key)
        slots.push_back({keys + key * model_.head_dim, values + key * dim});
      const std::size_t head = lane * group;
      std::span<const float> sinks = model_.sinks;
      if (!sinks.empty()) sinks = sinks.subspan(std::size_t{layer} * config_.n_heads + head, group);
      rows.attend({model_.attn_scale, -1, model_.logit_softcap}, tensors.queries(i, head, group), slots, dim,
                  attended.data() + (i * config_.n_heads + head) * dim, sinks);
    }
  }

  const std::span<const Piece> pieces_;
  const model::ModelConfig& config_;
  const Assembly& assembly_;
  Workers& workers_;
  const trace::Model& model_;
  std::vector<char> in_document_;       // by position
  std::vector<std::uint64_t> present_;  // positions of the batch's rows, as far as they have not ended
  std::vector<std::size_t> going_;      // of these, by number, those that do not end in the present layer
  AssembledPrompt out_;
};

/// The number that follows a name and a colon; none if the text is not of this form.
template <class Number>
std::optional<Number> number_behind(const std::string& text, const std::string& name,
                                    const std::string& unit) {
  if (!text.starts_with(name + ":") || !text.ends_with(unit)) return {};
  std::string_view number(text);
  number.remove_prefix(name.size() + 1);
  number.remove_suffix(unit.size());
  return number_of<Number>(number);
}

}  // namespace

Assembly parse_assembly(const std::string& text, const std::string& where) {
  Assembly out;
  out.name = text;
  const auto share = [&](const char* name) {
    const auto percent = number_behind<double>(text, name, "%");
    if (!percent || !(*percent >= 0 && *percent <= 100)) return false;
    out.percent = *percent;
    return true;
  };
  if (text == "none") return out;
  if (text == "all") {
    out.choice = Assembly::Choice::all;
  } else if (const auto tokens = number_behind<std::uint32_t>(text, "epic", "")) {
    out.choice = Assembly::Choice::first;
    out.tokens = *tokens;
  } else if (share("cacheblend")) {
    out.choice = Assembly::Choice::values;
  } else if (share("lmcache")) {
    out.choice = Assembly::Choice::keys;
  } else {
    usage_error("unknown choice " + in_quotes(text), where,
                "It is dense, chunked:N, none, all, epic:N with N tokens of each document, cacheblend:P% or "
                "lmcache:P%.");
  }
  return out;
}

std::vector<std::size_t> most_deviating(std::span<const double> deviations, double percent) {
  std::vector<std::size_t> order(deviations.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return deviations[a] > deviations[b]; });
  order.resize(static_cast<std::size_t>(static_cast<double>(order.size()) * percent / 100));
  std::ranges::sort(order);
  return order;
}

trace::MemoryTrace place_documents(const trace::MemoryTrace& exact, std::span<const Piece> pieces,
                                   unsigned threads) {
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].begin >= pieces[i].end || pieces[i].end >= exact.header().n_tokens() ||
        (i > 0 && pieces[i].begin < pieces[i - 1].end))
      bug("documents that are empty, overlap or hold the last token");
  if (exact.header().model.values_in_keys)
    usage_error(
        "a prompt is not put together for a model with latent attention, whose values are parts of its keys",
        "--prefill", "Say dense.");
  trace::MemoryTrace out = exact;
  const trace::Model& model = out.header().model;
  Workers(threads).run(model.n_layers, [&](std::size_t number) {
    const auto layer = static_cast<std::uint32_t>(number);
    for (std::uint32_t head = 0; head < model.n_q_heads; ++head)
      place(pieces, Tensor::query, layer, head, out);
    for (std::uint32_t head = 0; head < model.n_kv_heads; ++head) {
      place(pieces, Tensor::key, layer, head, out);
      place(pieces, Tensor::value, layer, head, out);
    }
  });
  return out;
}

AssembledPrompt assemble_prompt(const trace::MemoryTrace& placed, std::span<const std::int32_t> tokens,
                                std::span<const Piece> pieces, const model::ModelConfig& config,
                                const model::Weights& weights, const Assembly& assembly,
                                std::uint64_t positions, unsigned threads, Progress& progress) {
  if ((assembly.choice == Assembly::Choice::values || assembly.choice == Assembly::Choice::keys) &&
      config.n_layers <= kCheckLayer)
    usage_error(assembly.name + " chooses in layer 1, and the model has one layer", "--prefill",
                "Say epic:N.");
  Workers workers(threads);
  PromptAssembly prompt(placed, pieces, config, assembly, workers);
  StepBatch batch(config, weights, placed.header().elem, positions, workers);
  prompt.compute(tokens, batch, progress);
  return std::move(prompt.result());
}

}  // namespace kvsim::sim
