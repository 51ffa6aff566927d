#include "traces/format/reader.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/base/matrix_view.hpp"
#include "traces/format/digest.hpp"
#include "traces/format/file_trace.hpp"
#include "traces/format/recorded_rows.hpp"
#include "traces/format/schema.hpp"
#include "traces/format/validate.hpp"

namespace kvsim::trace {
namespace {

using hdf5::InputDataset;
using hdf5::InputGroup;
using hdf5::Type;

constexpr std::uint64_t kAny32 = UINT32_MAX, kAny64 = UINT64_MAX;

std::uint32_t count32(const InputGroup& group, const char* name) {
  return static_cast<std::uint32_t>(group.count(name, kAny32));
}

/// The element type of a stored tensor: its HDF5 type, or bf16 for u16 words whose attribute `elem` says so.
Elem stored_elem(const InputDataset& dataset) {
  const std::string named = dataset.text("elem");
  const Elem elem = dataset.type() == Type::f32   ? Elem::f32
                    : dataset.type() == Type::f16 ? Elem::f16
                                                  : Elem::bf16;
  if (dataset.type() == Type::u16 && named.empty())
    input_error("holds 16-bit words, but no attribute elem says what they are", dataset.where());
  if (!named.empty() && named != elem_name(elem))
    input_error(std::string("attribute elem contradicts the type, which is ") + elem_name(elem),
                dataset.where());
  return elem;
}

InputDataset tensor_dataset(const InputGroup& group, const char* name) {
  return group.dataset(name, {Type::f32, Type::bf16, Type::f16, Type::u16}, 3);
}

/// Reads rows of one head, widened to float. It reads block by block, so that the stored 16-bit values never
/// take as much memory as the floats.
void read_rows(const StoredRows& stored, Elem elem, std::uint32_t head, std::uint64_t first_row,
               std::uint64_t n_rows, std::span<float> out) {
  if (elem == Elem::f32) return stored.read(head, first_row, n_rows, out.data());
  const std::uint64_t dim = stored.dataset().dims()[2];
  const std::uint64_t step = stored.block_rows(schema::chunk_rows(dim, elem));
  std::vector<std::uint16_t> halves(std::min(step, n_rows) * dim);
  for (std::uint64_t row = first_row; row < first_row + n_rows;) {
    const std::uint64_t n = std::min(step - row % step, first_row + n_rows - row);
    stored.read(head, row, n, halves.data());
    widen(elem, halves.data(), n * dim, out.data() + (row - first_row) * dim);
    row += n;
  }
}

template <typename Value>
void take_field(const InputGroup& group, const char* name, Value& value) {
  if constexpr (std::is_const_v<Value>) {
    if (group.text(name) != value)
      input_error("some layers are left out; this kvsim needs all of them", group.where(name));
  } else if constexpr (std::is_same_v<Value, std::string>) {
    value = group.text(name);
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = group.flag(name);
  } else if constexpr (std::is_floating_point_v<Value>) {
    value = group.real(name);
  } else {
    value = static_cast<Value>(group.count(name, std::numeric_limits<Value>::max()));
  }
}

}  // namespace

FileTrace::FileTrace(const std::string& path, const ReadOptions& options)
    : path_(path), file_(path), budget_(options.max_header_bytes) {
  const hdf5::Session session;
  read_root();
  if (!complete_ && !options.allow_partial)
    input_error("is incomplete: its writer did not finish", path_, "Capture it again.");
  read_model();
  read_capture();
  read_tokens();
  read_segments();
  read_passes();
  read_text();
  read_layers();
  check_header(header_, path_);
  check_content_digest();
  for (std::uint32_t i = 0; i < attention_.size(); ++i)
    check_attention_rows(attention_[i],
                         file_.root().group("layers").group(schema::layer_group(i)).group("rows"));
}

template <typename Value>
std::vector<Value> FileTrace::take(const InputDataset& dataset) {
  if (dataset.bytes() > budget_)
    input_error("token lists, passes and text take more memory than allowed", dataset.where());
  budget_ -= dataset.bytes();
  std::vector<Value> values(dataset.bytes() / sizeof(Value));
  dataset.read_all(values.data());
  return values;
}

template <typename Value>
std::vector<Value> FileTrace::list(const InputGroup& group, const char* name, std::uint64_t length,
                                   const char* reason) {
  const InputDataset dataset = group.dataset(name, {hdf5::type_of<Value>()}, 1);
  dataset.expect({length}, reason);
  return take<Value>(dataset);
}

template <typename Value, typename Item>
void FileTrace::take_column(const InputGroup& group, const char* name, std::uint64_t length,
                            const char* reason, std::vector<Item>& items, Value Item::*member) {
  const auto numbers = list<StoredNumber<Value>>(group, name, length, reason);
  items.resize(length);
  for (std::size_t i = 0; i < items.size(); ++i) items[i].*member = static_cast<Value>(numbers[i]);
}

void FileTrace::read_root() {
  const InputGroup& root = file_.root();
  if (!root.has_attribute("format") || root.text("format") != schema::kFormat)
    input_error("is an HDF5 file, but not a kvsim trace", path_);
  const std::uint64_t major = root.count("schema_major", kAny32);
  if (major != schema::kMajor && major != schema::kMajorOfNeeded)
    input_error("has schema " + std::to_string(major) + "; this kvsim reads schemas " +
                    std::to_string(schema::kMajor) + " and " + std::to_string(schema::kMajorOfNeeded),
                path_, major > schema::kMajorOfNeeded ? "A newer kvsim wrote it." : "");
  needs_ = major == schema::kMajor ? 0 : root.count("needs", kAny64);
  if ((needs_ & ~schema::kKnownNeeds) != 0)
    input_error("says what this kvsim does not know (needs = " + std::to_string(needs_) + ")", path_,
                "A newer kvsim wrote it.");
  complete_ = root.flag("complete");
  n_tokens_ = root.count("n_tokens", schema::kMaxTokens);
  n_segments_ = root.count("n_segments", schema::kMaxSegments);
  n_passes_ = root.count("n_passes", schema::kMaxTokens);
  header_.file_uuid = root.text("file_uuid");
  header_.created_utc = root.text("created_utc");
  header_.writer = root.text("writer");
  content_sha256_ = root.text("content_sha256");
  has_block_digests_ = (root.count("features", kAny64) & schema::kBlockDigests) != 0;
}

void FileTrace::read_rotations() {
  const InputGroup group = file_.root().group("model");
  Model& model = header_.model;
  const std::uint64_t pairs = model.rotary_dim / 2;
  if ((needs_ & schema::kLayerRotations) == 0) {
    model.inv_freq = list<float>(group, "inv_freq", pairs, "rotary_dim");
    return;
  }
  const std::uint64_t count = group.count("n_rotations", schema::kMaxLayers);
  const InputDataset frequencies = group.dataset("inv_freq", {Type::f32}, 2);
  frequencies.expect({count, pairs}, "n_rotations and rotary_dim");
  model.inv_freq = take<float>(frequencies);
  model.rotation_factor = list<double>(group, "rotation_factor", count, "n_rotations");
  model.layer_rotation = list<std::uint32_t>(group, "layer_rotation", model.n_layers, "n_layers");
}

void FileTrace::read_model() {
  const InputGroup group = file_.root().group("model");
  Model& model = header_.model;
  model_attributes(model, [&](const char* name, auto& value) { take_field(group, name, value); });
  model.values_in_keys = (needs_ & schema::kValuesInKeys) != 0;
  model.chunked = (needs_ & schema::kChunks) != 0;
  if (model.values_in_keys) take_field(group, "first_rotated", model.first_rotated);
  model.layer_window = list<std::int32_t>(group, "layer_window", model.n_layers, "n_layers");
  read_rotations();
  if ((needs_ & schema::kSinks) != 0) {
    const InputDataset sinks = group.dataset("sinks", {Type::f32}, 2);
    sinks.expect({model.n_layers, model.n_q_heads}, "n_layers and n_q_heads");
    model.sinks = take<float>(sinks);
  }
  const InputDataset config = group.dataset("config_json", {Type::u8}, 1);
  if (config.bytes() > schema::kMaxConfigBytes) input_error("is larger than 1 MiB", config.where());
  const std::vector<char> text = take<char>(config);
  model.config_json.assign(text.begin(), text.end());
  check_model(model, path_);

  const InputGroup tokenizer = file_.root().group("tokenizer");
  header_.tokenizer_name = tokenizer.text("name");
  header_.tokenizer_sha256 = tokenizer.text("sha256");
}

void FileTrace::read_capture() {
  const InputGroup group = file_.root().group("capture");
  const auto take = [&](const char* name, auto& value) { take_field(group, name, value); };
  capture_attributes(header_.capture, take, [&](const char* name, std::string& text) {
    if (group.has_attribute(name)) take(name, text);
  });
}

void FileTrace::read_tokens() {
  const InputGroup group = file_.root().group("tokens");
  header_.token_id = list<std::int32_t>(group, "id", n_tokens_, "n_tokens");
  header_.token_segment = list<std::uint32_t>(group, "segment", n_tokens_, "n_tokens");
  header_.token_position = list<std::int32_t>(group, "position", n_tokens_, "n_tokens");
  header_.token_flags = list<std::uint32_t>(group, "flags", n_tokens_, "n_tokens");
  header_.flags_known = count32(group, "flags_known");
  if (group.has("logprob")) header_.token_logprob = list<float>(group, "logprob", n_tokens_, "n_tokens");
}

void FileTrace::read_segments() {
  const InputGroup group = file_.root().group("segments");
  segment_columns([&](const char* name, auto member) {
    take_column(group, name, n_segments_, "n_segments", header_.segments, member);
  });

  const InputDataset digests = group.dataset("sha256", {Type::u8}, 2);
  digests.expect({n_segments_, 32}, "n_segments");
  segment_sha256_ = take<std::uint8_t>(digests);

  const InputDataset leaf = file_.root().group("sequences").dataset("leaf", {Type::u32}, 1);
  header_.sequence_leaf = take<std::uint32_t>(leaf);
}

void FileTrace::read_passes() {
  const InputGroup group = file_.root().group("passes");
  pass_columns([&](const char* name, auto member) {
    take_column(group, name, n_passes_, "n_passes", header_.passes, member);
  });

  if (!file_.root().has("timing")) return;
  const InputGroup timing = file_.root().group("timing");
  const auto times = [&](const char* name) -> std::vector<float> {
    if (!timing.has(name)) return {};
    const InputDataset dataset = timing.dataset(name, {Type::f32}, 2);
    dataset.expect({n_passes_, header_.model.n_layers}, "n_passes and n_layers");
    return take<float>(dataset);
  };
  header_.layer_ns = times("layer_ns");
  header_.attn_ns = times("attn_ns");
}

void FileTrace::read_text() {
  if (!file_.root().has("text")) return;
  const InputGroup group = file_.root().group("text");
  header_.text_offset = list<std::uint64_t>(group, "offset", n_tokens_ + 1, "n_tokens");
  const std::vector<char> bytes = take<char>(group.dataset("bytes", {Type::u8}, 1));
  header_.text_bytes.assign(bytes.begin(), bytes.end());
}

void FileTrace::read_layers() {
  const InputGroup layers = file_.root().group("layers");
  const Model& model = header_.model;
  for (std::uint32_t i = 0; i < model.n_layers; ++i) {
    const InputGroup group = layers.group(schema::layer_group(i));
    const bool same = group.count("layer", kAny32) == i &&
                      group.count("n_q_heads", kAny32) == model.n_q_heads &&
                      group.count("n_kv_heads", kAny32) == model.n_kv_heads &&
                      group.count("head_dim", kAny32) == model.head_dim;
    if (!same) input_error("layer, heads or head_dim differ from /model", group.where(""));
    if (const std::int64_t window = group.integer("window"); window != model.layer_window[i])
      input_error("attribute window is " + std::to_string(window) + ", /model/layer_window[" +
                      std::to_string(i) + "] is " + std::to_string(model.layer_window[i]),
                  group.where(""), "The file contradicts itself: capture the trace again.");
    const bool queries = holds_queries(header_);
    if (!queries && (group.has("q") || group.has("q_token")))
      input_error("is there, though /capture says q_policy none", group.where("q"));
    if (queries && (group.has("q_token") || i > 0)) read_query_rows(group, i);

    std::array<StoredRows, 3>& tensors = tensors_.emplace_back();
    for (const Tensor tensor : stored_tensors()) {
      InputDataset dataset = tensor_dataset(group, schema::tensor_name(tensor));
      const std::uint64_t rows =
          tensor != Tensor::query || header_.query_token.empty() ? n_tokens_ : header_.n_query_rows();
      dataset.expect({schema::tensor_heads(model, tensor), rows, schema::tensor_dim(model, tensor)},
                     "/model");
      const Elem elem = stored_elem(dataset);
      if (i == 0 && tensor == Tensor::key) header_.elem = elem;
      if (elem != header_.elem)
        input_error(
            std::string("is ") + elem_name(elem) + ", the first layer's k is " + elem_name(header_.elem),
            dataset.where());
      tensors[static_cast<std::size_t>(tensor)] =
          with_digests(std::move(dataset), group, schema::tensor_name(tensor));
    }
    if (group.has("wo") || !output_weights_.empty()) read_output_weights(group, i);
    if (group.has("column") || !columns_.empty()) read_columns(group, i);
    if (group.has("rows") || !attention_.empty()) read_attention_rows(group, i);
  }
}

void FileTrace::read_query_rows(const InputGroup& group, std::uint32_t layer) {
  if (layer > 0 && !group.has("q_token") && header_.query_token.empty()) return;
  const InputDataset dataset = group.dataset("q_token", {Type::u64}, 1);
  if (layer == 0) {
    if (dataset.dims()[0] == 0 || dataset.dims()[0] > n_tokens_)
      input_error("needs 1 to n_tokens entries", dataset.where());
    header_.query_token = take<std::uint64_t>(dataset);
    return;
  }
  dataset.expect({header_.query_token.size()}, "the first layer");
  std::vector<std::uint64_t> rows(header_.query_token.size());
  dataset.read_all(rows.data());
  if (rows != header_.query_token)
    input_error("differs from the first layer's; layers with different queries are not read yet",
                dataset.where());
}

void FileTrace::read_output_weights(const InputGroup& group, std::uint32_t layer) {
  if (output_weights_.size() != layer)
    input_error("layers before this one have no output weights", group.where("wo"));
  InputDataset dataset = tensor_dataset(group, "wo");
  const Model& model = header_.model;
  dataset.expect({model.n_q_heads, model.v_head_dim, model.hidden_size}, "/model");
  const Elem elem = stored_elem(dataset);
  if (layer == 0) header_.output_elem = elem;
  if (elem != header_.output_elem)
    input_error(
        std::string("is ") + elem_name(elem) + ", the first layer's is " + elem_name(*header_.output_elem),
        dataset.where());
  output_weights_.push_back(with_digests(std::move(dataset), group, "wo"));
}

void FileTrace::read_columns(const InputGroup& layer_group, std::uint32_t layer) {
  if (columns_.size() != layer)
    input_error("layers before this one have no column statistics", layer_group.where("column"));
  const InputGroup group = layer_group.group("column");
  InputDataset sum = group.dataset("sum", {Type::f32}, 2),
               squares = group.dataset("sum_squares", {Type::f32}, 2);
  if (layer == 0) header_.counted_tokens = sum.dims()[1];
  if (header_.counted_tokens == 0 || header_.counted_tokens > n_tokens_)
    input_error("counts " + std::to_string(header_.counted_tokens) + " tokens, not 1 to n_tokens",
                sum.where());
  for (const InputDataset* dataset : {&sum, &squares})
    dataset->expect({header_.model.n_q_heads, header_.counted_tokens},
                    "/model and the first layer's column/sum");
  columns_.push_back({with_digests(std::move(sum), layer_group, "column_sum"),
                      with_digests(std::move(squares), layer_group, "column_sum_squares")});
}

void FileTrace::read_attention_rows(const InputGroup& layer_group, std::uint32_t layer) {
  if (attention_.size() != layer)
    input_error("layers before this one have no attention rows", layer_group.where("rows"));
  const InputGroup group = layer_group.group("rows");
  const InputDataset token = group.dataset("token", {Type::u64}, 1);
  const std::uint64_t n = token.dims()[0];
  if (n == 0 || n > n_tokens_) input_error("needs 1 to n_tokens entries", token.where());
  std::vector<std::uint64_t> tokens = take<std::uint64_t>(token);
  if (layer == 0) header_.attention_token = tokens;
  if (tokens != header_.attention_token) input_error("differs from the first layer's", token.where());
  AttentionRows& rows = attention_.emplace_back();
  rows.first_key = list<std::uint64_t>(group, "first_key", n, "rows/token");
  rows.ptr = list<std::uint64_t>(group, "ptr", n + 1, "rows/token");
  rows.p = with_digests(group.dataset("p", {Type::f32, Type::bf16}, 2), layer_group, "rows_p");
}

StoredRows FileTrace::with_digests(InputDataset dataset, const InputGroup& layer, const char* name) {
  if (!has_block_digests_) return StoredRows(std::move(dataset));
  const InputDataset list = layer.group(schema::kDigestGroup).dataset(name, {Type::u64}, 2);
  BlockDigests digests{list.count("rows", schema::kMaxTokens), {}, list.text("sha256")};
  list.expect({dataset.dims()[0], list.dims()[1]}, "the heads of the tensor");
  digests.values = take<std::uint64_t>(list);
  return {std::move(dataset), std::move(digests)};
}

std::span<const Tensor> FileTrace::stored_tensors() const {
  static constexpr Tensor kApart[] = {Tensor::key, Tensor::value, Tensor::query};
  static constexpr Tensor kInKeys[] = {Tensor::key, Tensor::query};
  const std::span<const Tensor> all =
      header_.model.values_in_keys ? std::span<const Tensor>(kInKeys) : std::span<const Tensor>(kApart);
  return all.first(all.size() - (holds_queries(header_) ? 0 : 1));
}

std::vector<std::string> FileTrace::block_list_digests() const {
  std::vector<std::string> out;
  for (std::uint32_t i = 0; has_block_digests_ && i < header_.model.n_layers; ++i)
    for (const Tensor tensor : stored_tensors()) out.push_back(stored(tensor, i).digests().sha256);
  return out;
}

/// Compares the digest of the content with the digests it is made of; that these are the tensors' own is seen
/// when the tensors are read.
void FileTrace::check_content_digest() const {
  if (!has_block_digests_ || content_sha256_.empty()) return;
  std::vector<std::string> digests;
  for (const std::array<StoredRows, 3>& layer : tensors_)
    for (const Tensor tensor : stored_tensors())
      digests.push_back(layer[static_cast<std::size_t>(tensor)].dataset().text("sha256"));
  for (std::string& list : block_list_digests()) digests.push_back(std::move(list));
  if (content_digest(header_.token_id, digests) != content_sha256_)
    input_error("content_sha256 does not match the token ids and the digests of tensors and blocks", path_,
                "Capture the trace again, or take a sound copy of it.");
}

void AttentionRows::read(std::uint64_t head, std::uint64_t row, float* out) const {
  if (elem() == Elem::f32) return p.read(head, ptr[row], keys(row), out);
  std::vector<std::uint16_t> halves(keys(row));
  p.read(head, ptr[row], halves.size(), halves.data());
  widen(Elem::bf16, halves.data(), halves.size(), out);
}

/// Requires that check_header passed: it relies on sound tokens and segments.
void FileTrace::check_attention_rows(const AttentionRows& rows, const InputGroup& group) const {
  if (rows.ptr[0] != 0) input_error("does not start at 0", group.where("ptr"));
  for (std::size_t i = 0; i < rows.first_key.size(); ++i) {
    const std::string place = "[" + std::to_string(i) + "]";
    const std::uint64_t visible = header_.visible_end(header_.attention_token[i]);
    if (rows.first_key[i] >= visible)
      input_error("lies after its own token", group.where("first_key") + place);
    if (rows.ptr[i + 1] < rows.ptr[i] || rows.ptr[i + 1] - rows.ptr[i] != visible - rows.first_key[i])
      input_error("row does not reach from first_key to its own token", group.where("ptr") + place);
  }
  rows.p.dataset().expect({header_.model.n_q_heads, rows.ptr.back()}, "rows/ptr");
}

void FileTrace::read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
                     std::uint64_t n_rows, std::span<float> out) const {
  const std::size_t dim = schema::tensor_dim(header_.model, tensor);
  if (layer >= tensors_.size() || out.size() != n_rows * dim)
    bug("read of a layer or size that is not there", path_);
  if (tensor == Tensor::query && !holds_queries(header_))
    input_error("holds no queries", path_, "Attention rows stand in their place.");
  if (tensor == Tensor::value && header_.model.values_in_keys) {
    const std::size_t key_dim = header_.model.head_dim;
    std::vector<float> keys(n_rows * key_dim);
    read_rows(stored(Tensor::key, layer), header_.elem, head, first_row, n_rows, keys);
    return MatrixView{keys.data(), n_rows, dim, key_dim}.copy(out.data());
  }
  read_rows(stored(tensor, layer), header_.elem, head, first_row, n_rows, out);
}

void FileTrace::will_read(Tensor tensor, std::uint32_t layer, std::uint32_t head, std::uint64_t first_row,
                          std::uint64_t n_rows) const {
  const bool in_keys = tensor == Tensor::value && header_.model.values_in_keys;
  stored(in_keys ? Tensor::key : tensor, layer).will_read(head, first_row, n_rows);
}

void FileTrace::read_output_weights(std::uint32_t layer, std::uint32_t query_head,
                                    std::span<float> out) const {
  const Model& model = header_.model;
  if (layer >= model.n_layers || query_head >= model.n_q_heads ||
      out.size() != std::size_t{model.v_head_dim} * model.hidden_size)
    bug("read of output weights that are not there", path_);
  if (!header_.output_elem)
    input_error("holds no output weights", path_, "Capture it again with --output-weights.");
  read_rows(output_weights_[layer], *header_.output_elem, query_head, 0, model.v_head_dim, out);
}

void FileTrace::read_column_statistics(std::uint32_t layer, std::uint32_t query_head, std::span<float> sum,
                                       std::span<float> sum_squares) const {
  const std::uint64_t counted = header_.counted_tokens;
  if (layer >= header_.model.n_layers || query_head >= header_.model.n_q_heads || sum.size() != counted ||
      sum_squares.size() != counted)
    bug("read of column statistics that are not there", path_);
  if (counted == 0)
    input_error("holds no column statistics", path_, "Capture it again with --column-statistics.");
  const auto read_head = [&](const StoredRows& stored, std::span<float> out) {
    stored.read(query_head, 0, counted, out.data());
    const auto bad = std::find_if(out.begin(), out.end(), [](float x) { return !std::isfinite(x) || x < 0; });
    if (bad != out.end())
      input_error("is no sum of probabilities", stored.dataset().where() + "[" + std::to_string(query_head) +
                                                    ", " + std::to_string(bad - out.begin()) + "]");
  };
  read_head(columns_[layer].sum, sum);
  read_head(columns_[layer].sum_squares, sum_squares);
}

std::unique_ptr<Source> open_trace(const std::string& path, const ReadOptions& options) {
  return std::make_unique<FileTrace>(path, options);
}

}  // namespace kvsim::trace
