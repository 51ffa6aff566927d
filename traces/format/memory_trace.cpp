#include "traces/format/memory_trace.hpp"

#include <algorithm>
#include <cmath>

#include "sim/base/error.hpp"
#include "sim/base/matrix_view.hpp"
#include "traces/format/schema.hpp"
#include "traces/format/validate.hpp"

namespace kvsim::trace {
namespace {

std::size_t tensor_size(const Header& header, Tensor tensor) {
  if (tensor == Tensor::value && header.model.values_in_keys) return 0;
  return std::size_t{header.model.n_layers} * schema::tensor_heads(header.model, tensor) *
         schema::tensor_rows(header, tensor) * schema::tensor_dim(header.model, tensor);
}

std::size_t output_size(const Model& model) {
  return std::size_t{model.v_head_dim} * model.hidden_size;
}

}  // namespace

MemoryTrace::MemoryTrace(Header header) : header_(std::move(header)) {
  check_header(header_, "memory");
  query_.resize(tensor_size(header_, Tensor::query));
  key_.resize(tensor_size(header_, Tensor::key));
  value_.resize(tensor_size(header_, Tensor::value));
  if (has_output_weights())
    output_.resize(std::size_t{header_.model.n_layers} * header_.model.n_q_heads *
                   output_size(header_.model));
  column_sum_.resize(std::size_t{header_.model.n_layers} * header_.model.n_q_heads * header_.counted_tokens);
  column_sum_squares_.resize(column_sum_.size());
}

std::size_t MemoryTrace::offset(Tensor tensor, std::uint32_t layer, std::uint32_t head) const {
  const std::uint32_t heads = schema::tensor_heads(header_.model, tensor);
  if (layer >= header_.model.n_layers || head >= heads) bug("no such layer or head", "memory");
  return (std::size_t{layer} * heads + head) * schema::tensor_rows(header_, tensor) *
         schema::tensor_dim(header_.model, tensor);
}

std::span<float> MemoryTrace::rows(Tensor tensor, std::uint32_t layer, std::uint32_t head) {
  if (tensor == Tensor::value && header_.model.values_in_keys) bug("the keys have the values", "memory");
  std::vector<float>& store = tensor == Tensor::query ? query_ : tensor == Tensor::key ? key_ : value_;
  return {store.data() + offset(tensor, layer, head),
          schema::tensor_rows(header_, tensor) * schema::tensor_dim(header_.model, tensor)};
}

void MemoryTrace::read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
                       std::uint64_t n_rows, std::span<float> out) const {
  const std::uint64_t rows = schema::tensor_rows(header_, tensor);
  const std::size_t dim = schema::tensor_dim(header_.model, tensor);
  if (first_row > rows || n_rows > rows - first_row || out.size() != n_rows * dim)
    bug("read beyond the end", "memory");
  if (tensor == Tensor::value && header_.model.values_in_keys) {
    const std::size_t key_dim = header_.model.head_dim;
    const float* keys = key_.data() + offset(Tensor::key, layer, head) + first_row * key_dim;
    return MatrixView{keys, n_rows, dim, key_dim}.copy(out.data());
  }
  const std::vector<float>& store = tensor == Tensor::query ? query_ : tensor == Tensor::key ? key_ : value_;
  std::copy_n(store.data() + offset(tensor, layer, head) + first_row * dim, n_rows * dim, out.data());
}

std::size_t MemoryTrace::output_offset(std::uint32_t layer, std::uint32_t query_head) const {
  if (!has_output_weights()) input_error("holds no output weights", "memory");
  if (layer >= header_.model.n_layers || query_head >= header_.model.n_q_heads)
    bug("no such layer or head", "memory");
  return (std::size_t{layer} * header_.model.n_q_heads + query_head) * output_size(header_.model);
}

std::span<float> MemoryTrace::output_weights(std::uint32_t layer, std::uint32_t query_head) {
  return {output_.data() + output_offset(layer, query_head), output_size(header_.model)};
}

void MemoryTrace::read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                                      std::span<float> out) const {
  if (out.size() != output_size(header_.model)) bug("read of output weights of the wrong size", "memory");
  std::copy_n(output_.data() + output_offset(layer, query_head), out.size(), out.data());
}

std::size_t MemoryTrace::column_offset(std::uint32_t layer, std::uint32_t query_head) const {
  if (!has_column_statistics()) input_error("holds no column statistics", "memory");
  if (layer >= header_.model.n_layers || query_head >= header_.model.n_q_heads)
    bug("no such layer or head", "memory");
  return (std::size_t{layer} * header_.model.n_q_heads + query_head) * header_.counted_tokens;
}

std::span<float> MemoryTrace::column_sums(std::uint32_t layer, std::uint32_t query_head) {
  return {column_sum_.data() + column_offset(layer, query_head), header_.counted_tokens};
}

std::span<float> MemoryTrace::column_sums_of_squares(std::uint32_t layer, std::uint32_t query_head) {
  return {column_sum_squares_.data() + column_offset(layer, query_head), header_.counted_tokens};
}

void MemoryTrace::read_column_statistics(std::uint32_t layer, std::uint32_t query_head, std::span<float> sum,
                                         std::span<float> sum_squares) const {
  const std::size_t offset = column_offset(layer, query_head);
  if (sum.size() != header_.counted_tokens || sum_squares.size() != header_.counted_tokens)
    bug("read of column statistics of the wrong size", "memory");
  std::copy_n(column_sum_.data() + offset, sum.size(), sum.data());
  std::copy_n(column_sum_squares_.data() + offset, sum_squares.size(), sum_squares.data());
}

Header plain_header(Model model, std::uint64_t prompt, std::uint64_t decode) {
  if (prompt == 0 || prompt + decode > schema::kMaxTokens)
    usage_error("a trace needs 1 prompt token or more, and at most " + std::to_string(schema::kMaxTokens) +
                " in all");
  if (model.v_head_dim == 0) model.v_head_dim = model.head_dim;
  if (model.vocab_size == 0) model.vocab_size = 1000;
  if (model.attn_scale == 0) model.attn_scale = 1.0 / std::sqrt(static_cast<double>(model.head_dim));
  if (model.layer_window.empty()) model.layer_window.assign(model.n_layers, -1);
  if (model.layer_rotation.empty()) model.inv_freq.resize(model.rotary_dim / 2);

  Header header;
  header.model = std::move(model);
  header.capture.source = "synthetic";
  header.capture.q_policy = "all";
  header.capture.row_policy = "none";
  const std::uint64_t n = prompt + decode;
  header.token_id.resize(n);
  header.token_segment.resize(n);
  header.token_position.resize(n);
  header.token_flags.resize(n);
  header.flags_known = kFlagSpecial | kFlagGenerated;
  for (std::uint64_t t = 0; t < n; ++t) {
    header.token_id[t] = static_cast<std::int32_t>(t % header.model.vocab_size);
    header.token_position[t] = static_cast<std::int32_t>(t);
    if (t >= prompt) {
      header.token_segment[t] = 1;
      header.token_flags[t] = kFlagGenerated;
    }
  }
  Segment first;
  first.count = static_cast<std::uint32_t>(prompt);
  header.segments.push_back(first);
  Pass prefill;
  prefill.q_len = first.count;
  header.passes.push_back(prefill);
  if (decode > 0) {
    Segment second;
    second.parent = 0;
    second.begin = prompt;
    second.count = static_cast<std::uint32_t>(decode);
    second.path_len = first.count;
    second.phase = Phase::decode;
    header.segments.push_back(second);
  }
  for (std::uint64_t t = prompt; t < n; ++t) {
    Pass step;
    step.segment = 1;
    step.begin = t;
    step.q_len = 1;
    step.past_len = static_cast<std::uint32_t>(t);
    step.phase = Phase::decode;
    header.passes.push_back(step);
  }
  header.sequence_leaf.push_back(decode > 0 ? 1 : 0);
  return header;
}

}  // namespace kvsim::trace
