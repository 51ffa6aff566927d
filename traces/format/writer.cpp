#include "traces/format/writer.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "sim/base/error.hpp"
#include "traces/format/block_digest.hpp"
#include "traces/format/digest.hpp"
#include "traces/format/hdf5_output.hpp"
#include "traces/format/schema.hpp"
#include "traces/format/validate.hpp"

namespace kvsim::trace {
namespace {

/// What is known of a dataset once all its rows are written.
struct RowDigests {
  std::string sha256;
  std::uint64_t heads = 0, block_rows = 0;
  std::vector<std::uint64_t> blocks{};  ///< [heads, blocks], block_digest.hpp
};

/// Buffers rows of all heads of one dataset and writes them in whole chunks. The dataset is created with the
/// first chunk, so that a short trace gets a single chunk of exactly its size.
class RowStream {
 public:
  RowStream(hid_t group, std::string name, Elem elem, std::uint32_t heads, std::uint32_t dim,
            std::uint64_t chunk_rows, bool third_axis, const WriteOptions& options, std::string where)
      : group_(group),
        name_(std::move(name)),
        where_(std::move(where)),
        elem_(elem),
        heads_(heads),
        dim_(dim),
        block_rows_(chunk_rows),
        chunk_rows_(chunk_rows),
        third_axis_(third_axis),
        filters_{.checksum = options.checksum, .deflate = options.deflate},
        workers_(options.workers),
        digest_(heads),
        blocks_(heads) {}

  std::uint64_t rows() const { return flushed_ + filled_; }

  /// Appends `rows`, [heads, n, dim].
  void append(std::uint64_t n, const Elements& rows) {
    if (rows.size() != n * heads_ * dim_) bug("append of the wrong size", where_);
    buffer_.resize(heads_ * chunk_rows_ * row_bytes());
    for (std::uint64_t done = 0; done < n;) {
      const std::uint64_t take = std::min(n - done, chunk_rows_ - filled_);
      for (std::uint32_t head = 0; head < heads_; ++head) {
        std::byte* to = buffer_.data() + (head * chunk_rows_ + filled_) * row_bytes();
        rows.subspan((head * n + done) * dim_, take * dim_).store(elem_, to);
      }
      filled_ += take;
      done += take;
      if (filled_ == chunk_rows_) flush();
    }
  }

  /// Writes the remaining rows and returns the digests.
  RowDigests finish() {
    if (!dataset_) {
      shrink_chunk(std::max<std::uint64_t>(filled_, 1));
      create();
      if (filled_ > 0) flush();
    } else if (filled_ > 0) {
      pad_chunk();
      flush();
    }
    RowDigests out{digest_.hex(), heads_, block_rows_};
    hdf5::put_text(dataset_.id(), "elem", elem_name(elem_), where_);
    hdf5::put_text(dataset_.id(), "sha256", out.sha256, where_);
    dataset_.close();
    buffer_ = {};
    for (const std::vector<std::uint64_t>& head : blocks_)
      out.blocks.insert(out.blocks.end(), head.begin(), head.end());
    return out;
  }

 private:
  std::size_t row_bytes() const { return dim_ * elem_bytes(elem_); }

  void create() {
    dataset_ = hdf5::GrowingDataset(group_, name_, hdf5::type_of(elem_), heads_, chunk_rows_,
                                    third_axis_ ? dim_ : 0, filters_, where_);
  }

  void flush() {
    if (!dataset_) create();
    std::vector<std::vector<std::byte>> chunks(heads_);
    const auto finish_head = [&](std::size_t head) {
      const std::span<const std::byte> chunk =
          std::span(buffer_).subspan(head * chunk_rows_ * row_bytes(), chunk_rows_ * row_bytes());
      const std::size_t filled_bytes = filled_ * row_bytes();
      digest_.update(static_cast<std::uint32_t>(head), chunk.data(), filled_bytes);
      blocks_[head].push_back(block_digest(chunk.data(), filled_bytes));
      chunks[head] = hdf5::filtered(chunk, filters_, elem_bytes(elem_));
    };
    if (workers_ != nullptr)
      workers_->run(heads_, finish_head);
    else
      for (std::size_t head = 0; head < heads_; ++head) finish_head(head);
    dataset_.append_chunks(chunks, filled_);
    flushed_ += filled_;
    filled_ = 0;
  }

  /// Moves the heads of a partly filled buffer together, for a dataset shorter than one chunk.
  void shrink_chunk(std::uint64_t rows) {
    for (std::uint32_t head = 1; head < heads_ && filled_ > 0; ++head)
      std::memmove(buffer_.data() + head * rows * row_bytes(),
                   buffer_.data() + head * chunk_rows_ * row_bytes(), rows * row_bytes());
    chunk_rows_ = rows;
  }

  void pad_chunk() {
    for (std::uint32_t head = 0; head < heads_; ++head)
      std::memset(buffer_.data() + (head * chunk_rows_ + filled_) * row_bytes(), 0,
                  (chunk_rows_ - filled_) * row_bytes());
  }

  hid_t group_;
  std::string name_, where_;
  Elem elem_;
  std::uint32_t heads_, dim_;
  std::uint64_t block_rows_;  ///< of a whole chunk: chunk_rows_ is less in a dataset shorter than one
  std::uint64_t chunk_rows_, flushed_ = 0, filled_ = 0;
  bool third_axis_;
  hdf5::ChunkFilters filters_;
  Workers* workers_;
  TensorDigest digest_;
  std::vector<std::vector<std::uint64_t>> blocks_;  ///< digests of the blocks of every head
  hdf5::GrowingDataset dataset_;
  std::vector<std::byte> buffer_;  ///< [heads, chunk_rows, dim] stored elements
};

/// Attention rows of one layer, packed one after another.
struct AttentionStream {
  hdf5::Object group;
  RowStream p;
  std::vector<std::uint64_t> first_key, ptr{0};
};

struct LayerStreams {
  std::string where;
  hdf5::Object group;
  RowStream query, key;
  std::optional<RowStream> value;  ///< none where keys have them
  std::optional<AttentionStream> attention;
  bool has_output_weights = false;
  std::uint64_t counted_tokens = 0;
  std::map<std::string, RowDigests> digests{};  ///< by their name in the file
};

template <typename Value>
void put_field(hid_t object, const char* name, const Value& value, std::string_view place) {
  if constexpr (std::is_same_v<Value, std::string>)
    hdf5::put_text(object, name, value, place);
  else if constexpr (std::is_same_v<Value, bool>)
    hdf5::put<std::uint8_t>(object, name, value, place);
  else
    hdf5::put(object, name, value, place);
}

}  // namespace

struct Writer::State {
  State(const std::string& path, const Header& start, const WriteOptions& write_options)
      : header(start), options(write_options), file(path, write_options.overwrite) {}

  void create_layers();
  void check_same_shape(const Header& final) const;
  void check_complete(const Header& final) const;
  void write_root(const Header& final, const std::string& digest);
  void write_model(const Header& final);
  void write_capture(const Header& final);
  void write_tokens(const Header& final);
  void write_segments(const Header& final);
  void write_passes(const Header& final);
  void write_text(const Header& final);
  std::string finish_layers(const Header& final);
  std::vector<std::string> put_block_digests(const LayerStreams& layer) const;

  std::string put_array(hid_t parent, const char* name, hdf5::Type type, const void* data,
                        const std::vector<std::uint64_t>& dims, std::string_view place) const {
    return hdf5::put_array(parent, name, type, data, dims, place, options.digests);
  }
  template <typename Value>
  std::string put_list(hid_t parent, const char* name, const std::vector<Value>& values,
                       std::string_view place) const {
    return put_array(parent, name, hdf5::type_of<Value>(), values.data(), {values.size()}, place);
  }

  /// A list with one number of every item.
  template <typename Value, typename Item>
  void put_column(hid_t parent, const char* name, const std::vector<Item>& items, Value Item::*member,
                  std::string_view place) const {
    std::vector<StoredNumber<Value>> numbers;
    numbers.reserve(items.size());
    for (const Item& item : items) numbers.push_back(static_cast<StoredNumber<Value>>(item.*member));
    put_list(parent, name, numbers, place);
  }

  hdf5::Object group(const std::string& name) { return hdf5::create_group(file.id(), name, file.path()); }
  std::string where(const std::string& path) const { return file.path() + ":" + path; }

  Header header;
  WriteOptions options;
  hdf5::OutputFile file;  // declared before every handle into it, so destroyed last
  hdf5::Object layers_group;
  std::vector<LayerStreams> layers;
};

void Writer::State::create_layers() {
  layers_group = group("layers");
  layers.reserve(header.model.n_layers);
  for (std::uint32_t i = 0; i < header.model.n_layers; ++i) {
    const std::string name = schema::layer_group(i);
    const std::string place = where("/layers/" + name);
    hdf5::Object layer = hdf5::create_group(layers_group.id(), name, place);
    const auto stream = [&](Tensor tensor) {
      const std::uint32_t dim = schema::tensor_dim(header.model, tensor);
      return RowStream(layer.id(), schema::tensor_name(tensor), header.elem,
                       schema::tensor_heads(header.model, tensor), dim, schema::chunk_rows(dim, header.elem),
                       true, options, place + "/" + schema::tensor_name(tensor));
    };
    RowStream query = stream(Tensor::query), key = stream(Tensor::key);
    std::optional<RowStream> value;
    if (!header.model.values_in_keys) value = stream(Tensor::value);
    layers.push_back(
        {place, std::move(layer), std::move(query), std::move(key), std::move(value), std::nullopt});
  }
}

void Writer::State::check_same_shape(const Header& final) const {
  const Model &a = header.model, &b = final.model;
  if (header.elem != final.elem || header.output_elem != final.output_elem || a.n_layers != b.n_layers ||
      a.n_q_heads != b.n_q_heads || a.n_kv_heads != b.n_kv_heads || a.head_dim != b.head_dim ||
      a.v_head_dim != b.v_head_dim || a.values_in_keys != b.values_in_keys || a.hidden_size != b.hidden_size)
    bug("the model changed its shape while it was written", file.path());
}

void Writer::State::check_complete(const Header& final) const {
  const auto rows = [](const RowStream& stream, std::uint64_t expected, const std::string& place) {
    if (stream.rows() != expected)
      bug("has " + std::to_string(stream.rows()) + " rows, not " + std::to_string(expected), place);
  };
  for (const LayerStreams& layer : layers) {
    rows(layer.key, final.n_tokens(), layer.where + "/k");
    if (layer.value) rows(*layer.value, final.n_tokens(), layer.where + "/v");
    rows(layer.query, final.n_query_rows(), layer.where + "/q");
    if (layer.has_output_weights != final.output_elem.has_value())
      bug(layer.has_output_weights ? "is stored, but not in the header" : "is missing", layer.where + "/wo");
    if (layer.counted_tokens != final.counted_tokens)
      bug("counts " + std::to_string(layer.counted_tokens) + " tokens, not " +
              std::to_string(final.counted_tokens),
          layer.where + "/column");
    const std::size_t stored = layer.attention ? layer.attention->first_key.size() : 0;
    if (stored != final.attention_token.size())
      bug("has " + std::to_string(stored) + " rows, not " + std::to_string(final.attention_token.size()),
          layer.where + "/rows");
    for (std::size_t i = 0; i < stored; ++i) {
      const std::uint64_t keys = layer.attention->ptr[i + 1] - layer.attention->ptr[i];
      if (layer.attention->first_key[i] + keys != final.visible_end(final.attention_token[i]))
        bug("row " + std::to_string(i) + " does not end at its own token", layer.where + "/rows");
    }
  }
}

void Writer::State::write_root(const Header& final, const std::string& digest) {
  const hid_t root = file.id();
  const std::string place = where("/");
  std::uint64_t features = final.query_token.empty() ? schema::kAllQueries : schema::kWindowQueries;
  if (!final.attention_token.empty()) features |= schema::kAttentionRows;
  if (!final.layer_ns.empty() || !final.attn_ns.empty()) features |= schema::kTiming;
  if (!final.text_offset.empty()) features |= schema::kText;
  if (final.output_elem) features |= schema::kOutputWeights;
  if (final.counted_tokens > 0) features |= schema::kColumnStatistics;
  if (options.digests) features |= schema::kBlockDigests;
  hdf5::put_text(root, "format", schema::kFormat, place);
  const std::uint64_t needs = schema::needs_of(final.model);
  hdf5::put(root, "schema_major", needs != 0 ? schema::kMajorOfNeeded : schema::kMajor, place);
  hdf5::put<std::uint16_t>(root, "schema_minor", needs != 0 ? 0 : schema::kMinor, place);
  if (needs != 0) hdf5::put(root, "needs", needs, place);
  hdf5::put_text(root, "file_uuid", final.file_uuid, place);
  hdf5::put_text(root, "created_utc", final.created_utc, place);
  hdf5::put_text(root, "writer", final.writer, place);
  hdf5::put(root, "n_tokens", final.n_tokens(), place);
  hdf5::put(root, "n_segments", static_cast<std::uint32_t>(final.segments.size()), place);
  hdf5::put(root, "n_passes", static_cast<std::uint32_t>(final.passes.size()), place);
  hdf5::put(root, "features", features, place);
  hdf5::put_text(root, "content_sha256", digest, place);
}

void Writer::State::write_model(const Header& final) {
  const Model& model = final.model;
  const hdf5::Object object = group("model");
  const hid_t id = object.id();
  const std::string place = where("/model");
  model_attributes(model, [&](const char* name, const auto& value) { put_field(id, name, value, place); });
  if (model.values_in_keys) hdf5::put(id, "first_rotated", model.first_rotated, place);
  put_list(id, "layer_window", model.layer_window, place);
  if (model.layer_rotation.empty()) {
    put_list(id, "inv_freq", model.inv_freq, place);
  } else {
    const std::uint64_t count = model.rotation_factor.size();
    hdf5::put(id, "n_rotations", static_cast<std::uint32_t>(count), place);
    put_array(id, "inv_freq", hdf5::Type::f32, model.inv_freq.data(), {count, model.rotary_dim / 2}, place);
    put_list(id, "rotation_factor", model.rotation_factor, place);
    put_list(id, "layer_rotation", model.layer_rotation, place);
  }
  if (!model.sinks.empty())
    put_array(id, "sinks", hdf5::Type::f32, model.sinks.data(), {model.n_layers, model.n_q_heads}, place);
  put_array(id, "config_json", hdf5::Type::u8, model.config_json.data(), {model.config_json.size()}, place);

  const hdf5::Object tokenizer = group("tokenizer");
  hdf5::put_text(tokenizer.id(), "name", final.tokenizer_name, where("/tokenizer"));
  hdf5::put_text(tokenizer.id(), "sha256", final.tokenizer_sha256, where("/tokenizer"));
}

void Writer::State::write_capture(const Header& final) {
  const hdf5::Object object = group("capture");
  const auto put = [&](const char* name, const auto& value) {
    put_field(object.id(), name, value, where("/capture"));
  };
  capture_attributes(final.capture, put, [&](const char* name, const std::string& text) {
    if (!text.empty()) put(name, text);
  });
}

void Writer::State::write_tokens(const Header& final) {
  const hdf5::Object object = group("tokens");
  const std::string place = where("/tokens");
  hdf5::put(object.id(), "flags_known", final.flags_known, place);
  put_list(object.id(), "id", final.token_id, place);
  put_list(object.id(), "segment", final.token_segment, place);
  put_list(object.id(), "position", final.token_position, place);
  put_list(object.id(), "flags", final.token_flags, place);
  if (!final.token_logprob.empty()) put_list(object.id(), "logprob", final.token_logprob, place);
}

void Writer::State::write_segments(const Header& final) {
  const std::string place = where("/segments");
  const hdf5::Object object = group("segments");
  segment_columns(
      [&](const char* name, auto member) { put_column(object.id(), name, final.segments, member, place); });
  const std::vector<std::uint8_t> digests = segment_digests(final);
  put_array(object.id(), "sha256", hdf5::Type::u8, digests.data(), {final.segments.size(), 32}, place);
  const hdf5::Object sequences = group("sequences");
  put_list(sequences.id(), "leaf", final.sequence_leaf, where("/sequences"));
}

void Writer::State::write_passes(const Header& final) {
  const std::string place = where("/passes");
  const hdf5::Object object = group("passes");
  pass_columns(
      [&](const char* name, auto member) { put_column(object.id(), name, final.passes, member, place); });
  if (final.layer_ns.empty() && final.attn_ns.empty()) return;
  const hdf5::Object timing = group("timing");
  const std::vector<std::uint64_t> dims{final.passes.size(), final.model.n_layers};
  const auto put_times = [&](const char* name, const std::vector<float>& times) {
    if (!times.empty()) put_array(timing.id(), name, hdf5::Type::f32, times.data(), dims, where("/timing"));
  };
  put_times("layer_ns", final.layer_ns);
  put_times("attn_ns", final.attn_ns);
}

void Writer::State::write_text(const Header& final) {
  if (final.text_offset.empty()) return;
  const hdf5::Object object = group("text");
  put_list(object.id(), "offset", final.text_offset, where("/text"));
  put_array(object.id(), "bytes", hdf5::Type::u8, final.text_bytes.data(), {final.text_bytes.size()},
            where("/text"));
}

/// Returns the digests of the lists for k, v and q.
std::vector<std::string> Writer::State::put_block_digests(const LayerStreams& layer) const {
  const std::string place = layer.where + "/" + schema::kDigestGroup;
  const hdf5::Object group = hdf5::create_group(layer.group.id(), schema::kDigestGroup, place);
  std::map<std::string, std::string> seals;
  for (const auto& [name, digests] : layer.digests) {
    const std::uint64_t n_heads = digests.heads;
    seals[name] = put_array(group.id(), name.c_str(), hdf5::Type::u64, digests.blocks.data(),
                            {n_heads, digests.blocks.size() / n_heads}, place);
    const hdf5::Object list(
        hdf5::check(H5Oopen(group.id(), name.c_str(), H5P_DEFAULT), "cannot be opened", place));
    hdf5::put(list.id(), "rows", digests.block_rows, place);
  }
  std::vector<std::string> out;
  for (const char* name : {"k", "v", "q"})
    if (seals.contains(name)) out.push_back(seals.at(name));
  return out;
}

std::string Writer::State::finish_layers(const Header& final) {
  std::vector<std::string> digests, lists;
  for (std::uint32_t i = 0; i < layers.size(); ++i) {
    LayerStreams& layer = layers[i];
    const hid_t id = layer.group.id();
    hdf5::put(id, "layer", i, layer.where);
    hdf5::put(id, "n_q_heads", final.model.n_q_heads, layer.where);
    hdf5::put(id, "n_kv_heads", final.model.n_kv_heads, layer.where);
    hdf5::put(id, "head_dim", final.model.head_dim, layer.where);
    hdf5::put(id, "window", final.model.layer_window[i], layer.where);
    for (const auto& [name, stream] :
         {std::pair{"k", &layer.key}, {"v", layer.value ? &*layer.value : nullptr}, {"q", &layer.query}}) {
      if (stream == nullptr) continue;
      layer.digests[name] = stream->finish();
      digests.push_back(layer.digests[name].sha256);
    }
    if (!final.query_token.empty()) put_list(id, "q_token", final.query_token, layer.where);
    if (layer.attention) {
      AttentionStream& rows = *layer.attention;
      const std::string place = layer.where + "/rows";
      layer.digests["rows_p"] = rows.p.finish();
      put_list(rows.group.id(), "token", final.attention_token, place);
      put_list(rows.group.id(), "first_key", rows.first_key, place);
      put_list(rows.group.id(), "ptr", rows.ptr, place);
    }
    if (!options.digests) continue;
    for (std::string& seal : put_block_digests(layer)) lists.push_back(std::move(seal));
  }
  layers.clear();
  layers_group = {};
  digests.insert(digests.end(), lists.begin(), lists.end());
  return content_digest(final.token_id, digests);
}

Writer::Writer(const std::string& path, const Header& header, const WriteOptions& options) {
  check_model(header.model, path);
  state_ = std::make_unique<State>(path, header, options);
  const hdf5::Session session;
  state_->create_layers();
}

Writer::~Writer() = default;

void Writer::append(Tensor tensor, std::uint32_t layer, std::uint64_t n_rows, const Elements& rows) {
  if (state_ == nullptr || layer >= state_->layers.size()) bug("append to a layer that is not open");
  LayerStreams& streams = state_->layers[layer];
  if (tensor == Tensor::value && !streams.value) return;  // the keys have them
  RowStream& stream = tensor == Tensor::query ? streams.query
                      : tensor == Tensor::key ? streams.key
                                              : *streams.value;
  stream.append(n_rows, rows);
  state_->file.require_written();
}

void Writer::append_attention(std::uint32_t layer, std::uint64_t first_key, std::uint64_t n_keys,
                              std::span<const float> p) {
  if (state_ == nullptr || layer >= state_->layers.size()) bug("append to a layer that is not open");
  LayerStreams& streams = state_->layers[layer];
  if (!streams.attention) {
    const std::string place = streams.where + "/rows";
    hdf5::Object group = hdf5::create_group(streams.group.id(), "rows", place);
    RowStream packed(group.id(), "p", Elem::f32, state_->header.model.n_q_heads, 1, schema::kAttentionChunk,
                     false, state_->options, place + "/p");
    streams.attention.emplace(AttentionStream{std::move(group), std::move(packed), {}});
  }
  streams.attention->p.append(n_keys, p);
  state_->file.require_written();
  streams.attention->first_key.push_back(first_key);
  streams.attention->ptr.push_back(streams.attention->ptr.back() + n_keys);
}

void Writer::put_output_weights(std::uint32_t layer, std::span<const float> weights) {
  if (state_ == nullptr || layer >= state_->layers.size()) bug("output weights of a layer that is not open");
  LayerStreams& streams = state_->layers[layer];
  const Model& model = state_->header.model;
  const std::string place = streams.where + "/wo";
  if (!state_->header.output_elem || streams.has_output_weights || model.hidden_size == 0)
    bug("output weights that the header does not announce, or twice", place);
  const Elem elem = *state_->header.output_elem;
  RowStream stream(streams.group.id(), "wo", elem, model.n_q_heads, model.hidden_size,
                   schema::chunk_rows(model.hidden_size, elem), true, state_->options, place);
  stream.append(model.v_head_dim, weights);
  streams.digests["wo"] = stream.finish();
  state_->file.require_written();
  streams.has_output_weights = true;
}

void Writer::put_column_statistics(std::uint32_t layer, std::uint64_t tokens, std::span<const float> sum,
                                   std::span<const float> sum_squares) {
  if (state_ == nullptr || layer >= state_->layers.size())
    bug("column statistics of a layer that is not open");
  LayerStreams& streams = state_->layers[layer];
  const std::string place = streams.where + "/column";
  if (streams.counted_tokens > 0 || tokens == 0) bug("column statistics of nothing, or twice", place);
  const hdf5::Object group = hdf5::create_group(streams.group.id(), "column", place);
  const auto put = [&](const char* name, std::span<const float> values) {
    RowStream stream(group.id(), name, Elem::f32, state_->header.model.n_q_heads, 1, schema::kAttentionChunk,
                     false, state_->options, place + "/" + name);
    stream.append(tokens, values);
    streams.digests[std::string("column_") + name] = stream.finish();
  };
  put("sum", sum);
  put("sum_squares", sum_squares);
  state_->file.require_written();
  streams.counted_tokens = tokens;
}

void Writer::finish(const Header& header) {
  if (state_ == nullptr) bug("a trace is finished twice");
  State& state = *state_;
  state.check_same_shape(header);
  check_header(header, state.file.path());
  state.check_complete(header);
  const hdf5::Session session;
  const std::string digest = state.finish_layers(header);
  state.write_root(header, digest);
  state.write_model(header);
  state.write_capture(header);
  state.write_tokens(header);
  state.write_segments(header);
  state.write_passes(header);
  state.write_text(header);
  state.file.commit();
  state_.reset();
}

void write_trace(const std::string& path, const Source& source, const WriteOptions& options) {
  Header header = source.header();
  header.attention_token.clear();  // a Source provides no attention rows
  header.capture.row_policy = "none";
  Writer writer(path, header, options);
  std::vector<float> block;
  for (std::uint32_t layer = 0; layer < header.model.n_layers; ++layer) {
    for (const Tensor tensor : {Tensor::key, Tensor::value, Tensor::query}) {
      if (tensor == Tensor::value && header.model.values_in_keys) continue;
      const std::size_t heads = schema::tensor_heads(header.model, tensor),
                        dim = schema::tensor_dim(header.model, tensor);
      const std::uint64_t total = schema::tensor_rows(header, tensor);
      const std::uint64_t step = schema::chunk_rows(dim, header.elem);
      for (std::uint64_t first = 0; first < total; first += step) {
        const std::uint64_t n = std::min(step, total - first);
        block.resize(heads * n * dim);
        for (std::uint32_t head = 0; head < heads; ++head)
          source.read(tensor, layer, head, first, n, std::span(block).subspan(head * n * dim, n * dim));
        writer.append(tensor, layer, n, block);
      }
    }
    if (header.counted_tokens > 0) {
      std::vector<float> squares(header.model.n_q_heads * header.counted_tokens);
      block.resize(squares.size());
      for (std::uint32_t head = 0; head < header.model.n_q_heads; ++head) {
        const std::uint64_t at = head * header.counted_tokens;
        source.read_column_statistics(layer, head, std::span(block).subspan(at, header.counted_tokens),
                                      std::span(squares).subspan(at, header.counted_tokens));
      }
      writer.put_column_statistics(layer, header.counted_tokens, block, squares);
    }
    if (!source.has_output_weights()) continue;
    const std::size_t head_size = std::size_t{header.model.v_head_dim} * header.model.hidden_size;
    block.resize(header.model.n_q_heads * head_size);
    for (std::uint32_t head = 0; head < header.model.n_q_heads; ++head)
      source.read_output_weights(layer, head, std::span(block).subspan(head * head_size, head_size));
    writer.put_output_weights(layer, block);
  }
  writer.finish(header);
}

}  // namespace kvsim::trace
