#include "sim/loop/assembled_prompt.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "sim/attention/attention_rows.hpp"
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "sim/base/number_text.hpp"
#include "sim/base/order.hpp"
#include "sim/base/workers.hpp"
#include "traces/format/schema.hpp"
#include "traces/model/cpu/step_batch.hpp"

namespace kvsim::sim {
namespace {

using model::cpu::StepBatch;
using model::cpu::StepTensors;
using trace::Tensor;

/// The layer in which tokens are chosen by what deviates.
constexpr std::uint32_t kCheckLayer = 1;

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
    return std::ranges::any_of(pieces_, [&](const Piece& piece) {
      if (assembly_.choice == Assembly::Choice::across)
        return std::ranges::binary_search(piece.again, position);
      return assembly_.choice == Assembly::Choice::first && position >= piece.begin &&
             position < std::min(piece.end, piece.begin + assembly_.tokens);
    });
  }

  std::span<float> row(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t position) {
    const std::size_t dim = trace::schema::tensor_dim(model_, tensor);
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
    std::vector<std::optional<KeyPanels>> keys(model_.n_kv_heads);
    workers_.run(keys.size(), [&](std::size_t lane) {
      const std::span<const float> rows =
          out_.trace.rows(Tensor::key, layer, static_cast<std::uint32_t>(lane));
      keys[lane].emplace(MatrixView{rows.data(), in_document_.size(), model_.head_dim, model_.head_dim});
    });
    const std::vector<Block> all = blocks();
    workers_.run(all.size() * keys.size(), [&](std::size_t task) {
      const std::size_t lane = task % keys.size();
      attend_block(layer, tensors, static_cast<std::uint32_t>(lane), *keys[lane], all[task / keys.size()],
                   attended);
    });
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

  /// The last key that the r-th of the rows that go on sees. With the mask `bottom_right` it is as if these
  /// rows were the last of the prompt.
  std::uint64_t last_seen(std::size_t r) const {
    return assembly_.bottom_right ? in_document_.size() - going_.size() + r : present_[going_[r]];
  }

  /// Rows that go on and each see one key more than the one before.
  struct Block {
    std::size_t first, n;
  };
  std::vector<Block> blocks() const {
    constexpr std::size_t kRows = 64;
    std::vector<Block> out;
    for (std::size_t r = 0; r < going_.size(); ++r)
      if (r > 0 && out.back().n < kRows && last_seen(r) == last_seen(r - 1) + 1)
        ++out.back().n;
      else
        out.push_back({r, 1});
    return out;
  }

  void attend_block(std::uint32_t layer, const StepTensors& tensors, std::uint32_t lane,
                    const KeyPanels& keys, Block block, std::span<float> attended) {
    thread_local std::vector<float> queries, weights, sums;
    const std::uint32_t group = model_.n_q_heads / model_.n_kv_heads;
    const std::size_t dim = model_.head_dim, value_dim = model_.v_head_dim;
    const std::uint64_t last = last_seen(block.first), seen = last + block.n;
    const MatrixView values{out_.trace.rows(Tensor::value, layer, lane).data(), seen, value_dim, value_dim};
    queries.resize(block.n * dim);
    weights.resize(block.n * seen);
    sums.resize(block.n * value_dim);
    for (std::uint32_t head = lane * group; head < (lane + 1) * group; ++head) {
      for (std::size_t row = 0; row < block.n; ++row)
        std::ranges::copy(tensors.queries(going_[block.first + row], head, 1).row(0),
                          queries.data() + row * dim);
      attention_rows(attention_shape(model_, layer, head), {queries.data(), block.n, dim, dim}, last, keys,
                     weights.data(), seen);
      multiply({weights.data(), block.n, seen, seen}, values, sums.data());
      for (std::size_t row = 0; row < block.n; ++row)
        std::copy_n(sums.data() + row * value_dim, value_dim,
                    attended.data() + (going_[block.first + row] * model_.n_q_heads + head) * value_dim);
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
  const std::string mask = ":bottom_right";
  out.bottom_right = text.ends_with(mask);
  const auto share = [&](const char* name) {
    const auto percent = number_behind<double>(text, name, out.bottom_right ? "%" + mask : "%");
    if (!percent || !(*percent >= 0 && *percent <= 100)) return false;
    out.percent = *percent;
    return true;
  };
  if (share("cacheblend")) {
    out.choice = Assembly::Choice::values;
  } else if (share("lmcache")) {
    out.choice = Assembly::Choice::keys;
  } else if (text == "all") {
    out.choice = Assembly::Choice::all;
  } else if (const auto tokens = number_behind<std::uint32_t>(text, "epic", "")) {
    out.choice = Assembly::Choice::first;
    out.tokens = *tokens;
  } else if (const auto alpha = number_behind<double>(text, "cachecraft", ""); alpha && *alpha >= 0) {
    out.choice = Assembly::Choice::across;
    out.alpha = *alpha;
  } else if (const auto document = number_behind<std::uint32_t>(text, "pie", ""); document && *document > 0) {
    out.choice = Assembly::Choice::edit;
    out.tokens = *document;
  } else if (text == "pie") {
    out.choice = Assembly::Choice::edit;
  } else if (text != "none") {
    usage_error(
        "unknown choice " + in_quotes(text), where,
        "It is dense, chunked:N, none, all, epic:N with N tokens of each document, cacheblend:P% or "
        "lmcache:P%, with :bottom_right behind them the mask of their code, cachecraft:A, pie, or pie:N "
        "with the number of a document.");
  }
  return out;
}

std::vector<std::size_t> most_deviating(std::span<const double> deviations, double percent) {
  std::vector<std::size_t> order = largest_first(deviations);
  order.resize(static_cast<std::size_t>(static_cast<double>(order.size()) * percent / 100));
  std::ranges::sort(order);
  return order;
}

AssembledPrompt assemble_prompt(const trace::MemoryTrace& placed, std::span<const std::int32_t> tokens,
                                std::span<const Piece> pieces, const model::ModelConfig& config,
                                const model::Weights& weights, const Assembly& assembly,
                                std::uint64_t positions, unsigned threads, Progress& progress) {
  if (config.learned_positions > 0)
    usage_error("a model that learned its positions has no keys that could be turned to others", "--prefill",
                "Say dense.");
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
