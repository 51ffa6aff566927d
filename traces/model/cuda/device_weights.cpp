#include "traces/model/cuda/device_weights.hpp"

#include <algorithm>
#include <array>

#include "sim/base/elements.hpp"

namespace kvsim::model::cuda {
namespace {

constexpr std::uint64_t kStagingBytes = std::uint64_t{16} << 20;

class Upload {
 public:
  explicit Upload(const Stream& stream) : stream_(stream) {
    for (Staging& staging : staging_) staging.memory = PinnedBytes(kStagingBytes, "a buffer for weights");
  }

  template <class T>
  DeviceArray<T> array(const Elements& from) {
    DeviceArray<T> to(from.size(), "a weight matrix");
    constexpr std::uint64_t kStep = kStagingBytes / sizeof(T);
    for (std::uint64_t first = 0; first < from.size(); first += kStep) {
      const std::uint64_t count = std::min(kStep, from.size() - first);
      Staging& staging = staging_[turn_++ % staging_.size()];
      staging.taken.synchronize();
      from.subspan(first, count).store(kElemOf<T>, staging.memory.data());
      copy_to_device(to.data() + first, staging.memory.data(), count * sizeof(T), stream_);
      staging.taken.record(stream_);
    }
    return to;
  }

  template <class T>
  DeviceLinear<T> linear(const Linear& from) {
    std::vector<float> floats;
    if (from.packed) from.rows(0, from.out, floats);
    const Elements stored =
        from.packed ? Elements(floats) : Elements(from.elem, from.data, from.out * from.in);
    return {array<T>(stored), array<float>(from.bias), from.out, from.in};
  }

  template <class T>
  DeviceLayer<T> layer(const LayerWeights& from) {
    DeviceLayer<T> layer;
    layer.attention_norm = array<float>(from.attention_norm);
    layer.mlp_norm = array<float>(from.mlp_norm);
    layer.q_norm = array<float>(from.q_norm);
    layer.k_norm = array<float>(from.k_norm);
    layer.q = linear<T>(from.q);
    layer.k = linear<T>(from.k);
    layer.v = linear<T>(from.v);
    layer.o = linear<T>(from.o);
    layer.gate = linear<T>(from.gate);
    layer.up = linear<T>(from.up);
    layer.down = linear<T>(from.down);
    return layer;
  }

 private:
  struct Staging {
    PinnedBytes memory;
    Event taken;
  };
  const Stream& stream_;
  std::array<Staging, 2> staging_;
  std::size_t turn_ = 0;
};

}  // namespace

template <class T>
std::uint64_t device_bytes(const Weights& weights) {
  std::uint64_t bytes = weights.norm.size() * sizeof(float);
  const auto add = [&](const Linear& linear) {
    bytes += linear.out * linear.in * sizeof(T) + linear.bias.size() * sizeof(float);
  };
  add(weights.embedding);
  if (!weights.tied) add(weights.head);
  for (const LayerWeights& layer : weights.layers) {
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      add(*linear);
    for (const std::vector<float>* norm :
         {&layer.attention_norm, &layer.mlp_norm, &layer.q_norm, &layer.k_norm})
      bytes += norm->size() * sizeof(float);
  }
  return bytes;
}

template <class T>
DeviceWeights<T> upload_weights(const Weights& weights, const Stream& stream) {
  Upload upload(stream);
  DeviceWeights<T> on_device;
  on_device.embedding = upload.linear<T>(weights.embedding);
  if (!weights.tied) on_device.head = upload.linear<T>(weights.head);
  on_device.norm = upload.array<float>(weights.norm);
  for (const LayerWeights& layer : weights.layers) on_device.layers.push_back(upload.layer<T>(layer));
  stream.synchronize();  // the pinned buffers are freed on return
  return on_device;
}

template std::uint64_t device_bytes<float>(const Weights&);
template std::uint64_t device_bytes<Bf16>(const Weights&);
template DeviceWeights<float> upload_weights<float>(const Weights&, const Stream&);
template DeviceWeights<Bf16> upload_weights<Bf16>(const Weights&, const Stream&);

}  // namespace kvsim::model::cuda
