#include <catch2/catch.hpp>
#include <vector>

#include "policies/builtin.hpp"
#include "sim/base/error.hpp"
#include "sim/base/rng.hpp"
#include "sim/cost/memory.hpp"
#include "sim/cost/storage.hpp"
#include "tests/support/page_use.hpp"

namespace kvsim::cost::test_memory {
namespace {

using Catch::Contains;

constexpr double kGiB = 0x1p30;

/// All layers and lanes are equal.
Holding uniform_holding(const Model& model, const Layout& layout, std::uint64_t after_prompt,
                        std::uint64_t limit = kNoLimit) {
  return {{{model.layers, {{stored_heads(model, layout), after_prompt, limit}}, model.window}}};
}

Model small_model() {
  Model model;
  model.name = "small";
  model.layers = 2;
  model.hidden = 16;
  model.ffn = 32;
  model.vocab = 10;
  model.query_heads = 4;
  model.kv_heads = 2;
  model.head_dim = model.value_dim = 4;
  return model;
}

// --- The slow reference: every sequence, layer, lane and token by itself.
// -----------------------------------

std::uint64_t slow_bytes(std::uint64_t bits) {
  while (bits % 8 != 0) ++bits;
  return bits / 8;
}

/// One lane by itself: number by number, or by the representation's ledger.
std::uint64_t slow_lane(const Model& model, const Layout& layout, const LaneTokens& tokens) {
  const Storage& storage = layout.storage;
  if (storage.representation)
    return slow_bytes(
        storage.representation
            ->ledger({1, model.head_dim, model.value_dim, storage.element_bits}, tokens.kept, tokens.appended)
            .bits());
  std::uint64_t bits = 0;
  for (std::uint64_t token = 0; token < tokens.all(); ++token)
    for (std::uint64_t c = 0; c < model.head_dim + model.value_dim; ++c) bits += storage.element_bits;
  return slow_bytes(bits);
}

struct Slow {
  std::uint64_t keys_values = 0, padding = 0, metadata = 0, page_tables = 0;
  std::uint64_t total() const { return keys_values + padding + metadata + page_tables; }
};

/// Tokens and slots that are present in any case, per layer and stored lane.
using Lanes = std::vector<std::vector<std::uint64_t>>;

/// `generated`: how many tokens were; those that have left are of the prompt.
Slow slow_cache(const Model& model, const Serving& serving, const policy::Metadata& metadata,
                const Lanes& tokens, const Lanes& room, std::uint64_t generated) {
  const Layout& layout = serving.layout;
  const std::uint64_t stored = tokens[0].size();
  std::uint64_t per_device = stored / serving.tensor_parallel;
  if (per_device == 0) per_device = 1;
  Slow worst;
  for (std::uint64_t first = 0; first + per_device <= stored; first += per_device) {
    Slow device;
    for (std::uint64_t sequence = 0; sequence < serving.batch; ++sequence) {
      for (std::size_t layer = 0; layer < tokens.size(); ++layer) {
        std::uint64_t longest = 0;
        for (std::uint64_t lane = first; lane < first + per_device; ++lane)
          longest = std::max({longest, tokens[layer][lane], room[layer][lane]});
        std::uint64_t shared_pages = 0;
        for (std::uint64_t lane = first; lane < first + per_device; ++lane) {
          const std::uint64_t held = tokens[layer][lane];
          std::uint64_t slots = std::max(held, room[layer][lane]);
          const bool shared = layout.page != 0 && !layout.head_pages;
          if (layout.padded || shared) slots = longest;
          std::uint64_t pages = 0;
          if (layout.page != 0) {
            while (pages * layout.page < slots) ++pages;
            slots = pages * layout.page;
          }
          const std::uint64_t prompt = held - std::min(held, generated);
          const std::uint64_t full = slow_lane(model, layout, {prompt, held - prompt});
          const std::uint64_t with_empty = slow_lane(model, layout, {prompt, slots - prompt});
          device.keys_values += full;
          if (with_empty > full) device.padding += with_empty - full;
          for (std::uint64_t slot = 0; slot < slots; ++slot)
            device.metadata += metadata.lane_slot + layout.mask_bytes;
          device.metadata += metadata.lane;
          if (!shared)
            device.page_tables += pages * layout.table_entry;
          else
            shared_pages = pages;
          if (lane == first && layout.page == 0) device.metadata += metadata.layer_slot * longest;
          if (lane == first && layout.page != 0)
            while (longest % layout.page != 0) ++longest;
          if (lane == first && layout.page != 0) device.metadata += metadata.layer_slot * longest;
        }
        device.metadata += metadata.layer;
        device.page_tables += shared_pages * layout.table_entry;
      }
    }
    if (first == 0 || device.total() > worst.total()) worst = device;
  }
  return worst;
}

/// Sets of tensors that are alive together, one after the other.
std::uint64_t slow_activations(const Model& model, const Serving& serving, std::uint64_t tokens,
                               std::uint64_t attended, std::uint64_t logits_rows, bool scores) {
  const std::uint64_t devices = serving.tensor_parallel;
  const std::uint64_t query_heads = model.query_heads / devices;
  const std::uint64_t kv_heads = model.kv_heads < devices ? 1 : (model.kv_heads + devices - 1) / devices;
  const std::uint64_t ffn = (model.ffn + devices - 1) / devices,
                      vocab = (model.vocab + devices - 1) / devices;
  std::uint64_t attention = 0, mlp = 0, head = 0;
  for (std::uint64_t sequence = 0; sequence < serving.batch; ++sequence) {
    for (std::uint64_t token = 0; token < tokens; ++token) {
      const std::uint64_t queries = query_heads * model.head_dim, outputs = query_heads * model.value_dim;
      const std::uint64_t keys = kv_heads * model.head_dim, values = kv_heads * model.value_dim;
      attention += (model.hidden + model.hidden + queries + keys + values + outputs) *
                   serving.runtime.activation_bytes;
      if (scores) attention += query_heads * attended * serving.runtime.score_bytes;
      mlp += (model.hidden + model.hidden + ffn + ffn) * serving.runtime.activation_bytes;
      if (model.gated_mlp) mlp += ffn * serving.runtime.activation_bytes;
    }
    head += logits_rows * vocab * (serving.runtime.activation_bytes + 4);
  }
  return std::max({attention, mlp, head});
}

// --- Random small configurations.
// ---------------------------------------------------------------------------

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t within(std::uint64_t low, std::uint64_t high) {
    return low + static_cast<std::uint64_t>(uniform01(combine({seed_, count_++})) *
                                            static_cast<double>(high - low + 1));
  }
  bool coin() { return within(0, 1) == 1; }

 private:
  std::uint64_t seed_, count_ = 0;
};

struct Configuration {
  Model model{};
  Serving serving{};
  policy::Cost cost{};
  Holding holding{};
};

Configuration random_configuration(std::uint64_t seed) {
  Draws draws(seed);
  Configuration out;
  Model& model = out.model;
  model.layers = draws.within(1, 4);
  model.kv_heads = std::uint64_t{1} << draws.within(0, 2);
  model.query_heads = model.kv_heads << draws.within(0, 2);
  model.head_dim = draws.within(1, 9);
  model.value_dim = draws.coin() ? model.head_dim : draws.within(1, 9);
  model.hidden = draws.within(1, 40);
  model.ffn = draws.within(1, 60);
  model.vocab = draws.within(1, 200);
  model.gated_mlp = draws.coin();
  Serving& serving = out.serving;
  serving.prompt = draws.within(1, 30);
  serving.generate = draws.within(0, 20);
  serving.batch = draws.within(1, 3);
  serving.chunk = draws.coin() ? 0 : draws.within(1, serving.prompt);
  Layout& layout = serving.layout;
  layout.stored_kv_heads = draws.coin() ? 0 : model.query_heads;
  const std::uint64_t stored = stored_heads(model, layout);
  do {
    serving.tensor_parallel = std::uint64_t{1} << draws.within(0, 4);
  } while (model.query_heads % serving.tensor_parallel != 0);
  layout.storage.element_bits = draws.coin() ? 16 : 32;
  static const std::vector<std::string> kRepresentations = {"fp8",
                                                            "scalar(bits=3,group=0)",
                                                            "kivi(bits=2,group=2,residual=6)",
                                                            "zipcache(every=5)",
                                                            "gear(group=2,buffer=4)",
                                                            "mikv",
                                                            "think(window=3)"};
  if (draws.coin())
    layout.storage.representation =
        policy::parse_composition("full+" + kRepresentations[draws.within(0, kRepresentations.size() - 1)],
                                  policy::builtin())
            .representation;
  layout.page = draws.coin() ? 0 : draws.within(1, 8);
  layout.head_pages = draws.coin();
  layout.padded = draws.coin();
  layout.preallocated = draws.coin();
  layout.mask_bytes = draws.within(0, 1);
  serving.runtime.attention = draws.coin() ? Attention::eager : Attention::flash;
  serving.runtime.logits_rows = draws.within(0, 6);
  serving.runtime.activation_bytes = draws.coin() ? 2 : 4;
  out.cost.metadata = {draws.within(0, 5), draws.within(0, 5), draws.within(0, 5), draws.within(0, 5)};
  out.cost.scratch_bytes = draws.within(0, 500);
  out.cost.streams = draws.within(0, 4) == 0;
  out.cost.decode_rows = draws.coin();
  if (draws.coin()) model.window = draws.within(1, 40);
  for (std::uint64_t left = model.layers; left > 0;) {
    EqualLayers group{draws.within(1, left), {}, draws.coin() ? model.window : 0};
    left -= group.layers;
    model.full_layers.insert(model.full_layers.end(), group.layers, group.window == 0);
    for (std::uint64_t heads = stored; heads > 0;) {
      EqualLanes lanes{draws.within(1, heads), draws.within(1, serving.prompt), kNoLimit};
      heads -= lanes.lanes;
      if (draws.coin()) lanes.limit = lanes.after_prompt + draws.within(0, 5);
      group.lanes.push_back(lanes);
    }
    out.holding.layers.push_back(group);
  }
  return out;
}

/// Returns the tokens of every layer and lane after `step` steps.
Lanes expanded(const Holding& holding, std::uint64_t step) {
  Lanes out;
  for (const EqualLayers& group : holding.layers) {
    std::vector<std::uint64_t> layer;
    for (const EqualLanes& lanes : group.lanes) {
      std::uint64_t tokens = lanes.after_prompt;
      for (std::uint64_t s = 0; s < step; ++s)
        if (tokens < lanes.limit) ++tokens;
      layer.insert(layer.end(), lanes.lanes, tokens);
    }
    out.insert(out.end(), group.layers, layer);
  }
  return out;
}

Lanes constant(const Lanes& like, std::uint64_t tokens) {
  return Lanes(like.size(), std::vector<std::uint64_t>(like[0].size(), tokens));
}

/// Walks chunk by chunk and layer by layer and returns the most bytes at any moment, without the fixed ones.
std::uint64_t slow_prefill(const Configuration& c) {
  const Serving& serving = c.serving;
  const Lanes done = expanded(c.holding, 0);
  const Lanes room = serving.layout.preallocated ? expanded(c.holding, serving.generate) : constant(done, 0);
  const std::uint64_t chunk = serving.chunk == 0 ? serving.prompt : serving.chunk;
  std::uint64_t most = 0;
  for (std::uint64_t begin = 0; begin < serving.prompt; begin += chunk) {
    const std::uint64_t end = std::min(begin + chunk, serving.prompt);
    const bool last = end == serving.prompt;
    const auto reached = [&](std::uint64_t tokens, std::size_t layer) {
      const bool slides = c.model.window != 0 && !c.model.full_layers[layer];
      return slides && tokens > c.model.window ? c.model.window : tokens;
    };
    Lanes held = done;
    for (std::size_t layer = 0; layer < held.size(); ++layer)
      if (!c.cost.streams) held[layer].assign(held[layer].size(), reached(begin, layer));
    for (std::size_t layer = 0; layer < held.size(); ++layer) {
      if (!c.cost.streams) held[layer].assign(held[layer].size(), reached(begin, layer) + end - begin);
      const std::uint64_t rows = serving.runtime.logits_rows == 0 ? 1 : serving.runtime.logits_rows;
      std::uint64_t bytes = slow_cache(c.model, serving, c.cost.metadata, held, room, 0).total() +
                            slow_activations(c.model, serving, end - begin, end, std::min(rows, end - begin),
                                             serving.runtime.attention == Attention::eager);
      for (std::uint64_t sequence = 0; last && sequence < serving.batch; ++sequence)
        bytes += (c.cost.scratch_bytes + serving.tensor_parallel - 1) / serving.tensor_parallel;
      most = std::max(most, bytes);
      if (last)
        held[layer] = done[layer];
      else if (!c.cost.streams)
        held[layer].assign(held[layer].size(), reached(end, layer));
    }
  }
  return most;
}

}  // namespace

TEST_CASE("bytes at rest agree with counting token by token", "[cost][memory]") {
  const Machine machine{.reserved = 17};
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const Configuration c = random_configuration(seed);
    for (const std::uint64_t step : {std::uint64_t{0}, c.serving.generate / 2, c.serving.generate}) {
      const Memory memory = memory_at(c.model, machine, c.serving, c.holding, c.cost, step);
      const Lanes tokens = expanded(c.holding, step);
      const Lanes room = c.serving.layout.preallocated ? expanded(c.holding, c.serving.generate) : tokens;
      const Slow slow = slow_cache(c.model, c.serving, c.cost.metadata, tokens, room, step);
      CHECK(memory.keys_values == slow.keys_values);
      CHECK(memory.padding == slow.padding);
      CHECK(memory.metadata == slow.metadata);
      CHECK(memory.page_tables == slow.page_tables);
      CHECK(memory.cache() == slow.total());
      std::uint64_t longest = 0;
      for (const auto& layer : tokens)
        for (const std::uint64_t lane : layer) longest = std::max(longest, lane);
      CHECK(memory.activations ==
            slow_activations(c.model, c.serving, 1, longest, 1,
                             c.serving.runtime.attention == Attention::eager || c.cost.decode_rows));
      CHECK(memory.scratch == 0);
      CHECK(memory.total() == memory.weights + slow.total() + memory.activations + 17);
    }
  }
}

TEST_CASE("the peak of a prefill agrees with walking through it", "[cost][memory]") {
  const Machine machine{.reserved = 17};
  for (std::uint64_t seed = 1000; seed < 1400; ++seed) {
    CAPTURE(seed);
    Configuration c = random_configuration(seed);
    // Where a window is coded once it is full, an early chunk's cache may be larger than a late one's.
    if (c.serving.layout.storage.representation)
      c.serving.layout.storage.representation =
          policy::parse_composition("full+scalar(bits=3,group=0)", policy::builtin()).representation;
    const Memory peak = prefill_peak(c.model, machine, c.serving, c.holding, c.cost);
    CHECK(peak.total() == peak.weights + 17 + slow_prefill(c));
  }
}

TEST_CASE("GQA stores its own heads unless groups are expanded", "[cost][memory]") {
  const Model model = find_model("llama-3-8b");
  Layout layout;
  // 8192 tokens of 2 * 32 layers * 8 heads * 128 * 2 bytes.
  CHECK(full_cache_bytes(model, layout, 8192, 1) == std::uint64_t{1} << 30);
  layout.stored_kv_heads = 32;
  CHECK(full_cache_bytes(model, layout, 8192, 1) == std::uint64_t{4} << 30);
  // Expanded, it takes as much as a model without groups.
  Model mha = model;
  mha.kv_heads = 32;
  CHECK(full_cache_bytes(mha, Layout{}, 777, 3) == full_cache_bytes(model, layout, 777, 3));
  Model mqa = model;
  mqa.kv_heads = 1;
  CHECK(full_cache_bytes(mqa, Layout{}, 1, 1) == 4 * 32 * 128);
}

TEST_CASE("a sequence holds what layers with windows and states hold: by hand", "[cost][memory]") {
  // vLLM's page on its hybrid manager: 10 full layers and 20 with a window of 32, blocks of 16. A request of
  // 112 tokens takes 7 blocks of the full layers and 2 of each ten others: 11 of ten layers.
  Model model = find_model("llama-3.1-8b");
  model.layers = 30;
  model.window = 32;
  for (int i = 0; i < 30; ++i) model.full_layers.push_back(i % 3 == 2);
  const std::uint64_t token = 2 * 8 * 128 * 2;  // of a layer: keys and values of 8 heads of 128 in 16 bits
  Serving serving;
  serving.layout.page = 16;
  CHECK(sequence_bytes(model, serving, {.kept = 112}).all() == 11 * 10 * 16 * token);
  CHECK(sequence_bytes(model, serving, {.kept = 112}).empty == 0);
  CHECK(sequence_bytes(model, serving, {.kept = 97}).all() == 11 * 10 * 16 * token);
  CHECK(sequence_bytes(model, serving, {.kept = 97}).empty == 10 * 15 * token);
  CHECK(sequence_bytes(model, serving, {.kept = 60, .appended = 52}).all() == 11 * 10 * 16 * token);
  CHECK(sequence_bytes(model, serving, {.kept = 20}).all() == 30 * 2 * 16 * token);
  CHECK(sequence_bytes(model, serving, {}).all() == 0);
  // Gemma 3 27B at 32K: 10 layers hold everything, 52 hold 1,024 tokens; 16 heads of 128.
  CHECK(sequence_bytes(find_model("gemma-3-27b"), {}, {.kept = 32768}).stored ==
        (10 * 32768 + 52 * 1024) * (2 * 16 * 128 * 2ULL));
  // DeepSeek V3: a latent of 576 numbers in 61 layers, whole on each of eight devices.
  serving = {.tensor_parallel = 8};
  CHECK(sequence_bytes(find_model("deepseek-v3"), serving, {.kept = 1000}).all() == 70'272'000);
  // A state is as large at any length; Qwen3-Next has one in 36 of 48 layers, and keys and values in 12.
  const Model states = find_model("qwen3-next-80b-a3b");
  const std::uint64_t state = sequence_bytes(states, {}, {.kept = 1}).all() - 12 * 2 * 2 * 256 * 2;
  CHECK(state == 36 * states.state_bytes());
  CHECK(sequence_bytes(states, {}, {.kept = 5000}).all() == state + 5000 * 12 * 2 * 2 * 256 * 2ULL);
}

TEST_CASE("a sequence holds what memory_at() says, of every model and kind of storage", "[cost][memory]") {
  for (const Model& model : known_models()) {
    for (const char* text : {"full", "full+fp8", "full+nvfp4", "full+q4_0", "full+kivi(bits=2)"}) {
      const policy::Composition full = policy::parse_composition(text, policy::builtin());
      for (const LaneTokens tokens : {LaneTokens{1, 0}, {100, 1}, {5000, 77}, {40, 3000}}) {
        CAPTURE(model.name, text, tokens.kept, tokens.appended);
        Serving serving{.prompt = tokens.kept, .generate = tokens.appended};
        serving.layout.page = tokens.kept % 3 == 1 ? 16 : 0;
        policy::Cost cost;
        try {
          cost = cost_of(full, model, tokens.kept, tokens.all());
        } catch (const Error&) {  // a latent, or heads that do not suit
          continue;
        }
        const Serving served = served_with(serving, full);
        const Holding holding = rule_holding(full, model, 0, tokens.kept, tokens.appended, tokens.all());
        const Memory memory = memory_at(model, Machine{}, served, holding, cost, tokens.appended);
        const SequenceBytes bytes = sequence_bytes(model, served, tokens);
        CHECK(bytes.stored == memory.keys_values + memory.states);
        CHECK(bytes.empty == memory.padding);
      }
    }
  }
}

TEST_CASE("holding all tokens is the full cache", "[cost][memory]") {
  const Model model = find_model("tinyllama-1.1b");
  Serving serving{.prompt = 900, .generate = 100, .batch = 3};
  const Holding all = uniform_holding(model, serving.layout, 900);
  for (const char* text : {"full", "full+fp8", "full+q4_0", "full+kivi", "full+kivi(residual=32)"}) {
    CAPTURE(text);
    serving = served_with(serving, policy::parse_composition(text, policy::builtin()));
    const Memory memory = memory_at(model, Machine{}, serving, all, {}, 100);
    CHECK(memory.keys_values == full_cache_bytes(model, serving.layout, 1000, 3));
    CHECK(memory.cache() == memory.keys_values);
    // Without eviction the prefill ends with its peak.
    CHECK(prefill_peak(model, Machine{}, serving, all, {}).cache() ==
          full_cache_bytes(model, serving.layout, 900, 3));
  }
}

TEST_CASE("lanes of different length: ragged, padded, paged", "[cost][memory]") {
  const Model model = small_model();
  Serving serving{.prompt = 100, .generate = 0};
  // Two lanes of 10 and 5 tokens in the first layer, of 3 and 3 in the second; a token is 2 * 4 * 2 = 16
  // bytes.
  const Holding holding{{{1, {{1, 10, kNoLimit}, {1, 5, kNoLimit}}}, {1, {{2, 3, kNoLimit}}}}};
  const auto cache = [&] { return memory_at(model, Machine{}, serving, holding, {}, 0); };
  CHECK(cache().keys_values == 21 * 16);
  CHECK(cache().padding == 0);
  serving.layout.padded = true;
  CHECK(cache().keys_values == 21 * 16);
  CHECK(cache().padding == 5 * 16);
  // Pages of 4 shared by a layer's lanes: three and one, each with 4 slots for both heads: 24 + 8 slots.
  serving.layout.page = 4;
  CHECK(cache().padding == (32 - 21) * 16);
  CHECK(cache().page_tables == 4 * 4);
  // Pages of lanes, not padded: 3 + 2 + 1 + 1 of 4 slots.
  serving.layout.padded = false;
  serving.layout.head_pages = true;
  CHECK(cache().padding == (28 - 21) * 16);
  CHECK(cache().page_tables == 7 * 4);
  // Pages of one token differ from contiguous memory only by their table.
  serving.layout.page = 1;
  CHECK(cache().padding == 0);
  CHECK(cache().page_tables == 21 * 4);
}

TEST_CASE("evicted tokens leave holes in pages", "[cost][memory]") {
  const Model model = small_model();  // two layers of two lanes, 16 bytes per token and lane
  Serving serving{.prompt = 64};
  // Of 64 tokens 16 are resident: three in four are evicted.
  const Holding kept = uniform_holding(model, serving.layout, 16, 16);
  policy::Cost cost;
  const auto padding = [&] { return memory_at(model, Machine{}, serving, kept, cost, 0).padding; };
  serving.layout.vacated = Vacated::left;
  // Contiguous memory frees nothing.
  CHECK(padding() == 4 * (64 - 16) * 16);
  // 32 pages of two, of which 0.75^2 are free: 14 pages, 28 slots in every lane.
  serving.layout.page = 2;
  serving.layout.head_pages = true;
  CHECK(padding() == 4 * (28 - 16) * 16);
  // Pages for both lanes are free when both have no token in them, 0.75^4: 21.9 pages are used.
  serving.layout.head_pages = false;
  CHECK(padding() == 4 * (44 - 16) * 16);
  cost.lanes_alike = true;
  CHECK(padding() == 4 * (28 - 16) * 16);
  // Pages of one token cannot have holes, and lanes without eviction have none.
  serving.layout.page = 1;
  CHECK(padding() == 0);
  serving.layout.page = 16;
  const Holding all = uniform_holding(model, serving.layout, 64);
  CHECK(memory_at(model, Machine{}, serving, all, cost, 0).padding == 0);
  CHECK(memory_at(model, Machine{}, serving, all, cost, 0).cache() ==
        prefill_peak(model, Machine{}, serving, all, cost).cache());
  // With reused slots or compacted lanes only the last page is partly empty.
  serving.layout.vacated = Vacated::reused;
  serving.layout.page = 12;
  CHECK(padding() == 4 * (24 - 16) * 16);
}

TEST_CASE("pages expected with holes are those that lanes drawn at random use", "[cost][memory]") {
  const Model model = small_model();
  Serving serving{.prompt = 40'000};
  serving.layout.vacated = Vacated::left;
  serving.layout.page = 8;
  serving.layout.head_pages = true;
  serving.layout.table_entry = 1;  // as many bytes as pages
  std::uint64_t kept = 0, pages = 0;
  for (std::uint64_t lane = 0; lane < 4; ++lane) {
    std::vector<sim::ResidentInterval> drawn;
    for (std::uint64_t i = 0; i < serving.prompt; ++i)
      if (uniform01(combine({lane, i})) < 0.2) drawn.push_back({static_cast<std::int32_t>(i), 0, 1});
    const PageUse use = page_use(drawn, 0, serving.layout.page);
    kept += use.slots;
    pages += use.pages;
  }
  const Memory memory =
      memory_at(model, Machine{}, serving, uniform_holding(model, serving.layout, kept / 4, kept / 4), {}, 0);
  // 0.8^8 = 17 % of 20,000 pages are free; three standard deviations of that count are 160.
  CHECK(static_cast<double>(memory.page_tables) == Approx(static_cast<double>(pages)).margin(160));
}

TEST_CASE("equal lanes need no padding", "[cost][memory]") {
  const Model model = small_model();
  Serving serving{.prompt = 10};
  const Holding holding = uniform_holding(model, serving.layout, 10);
  const Memory ragged = memory_at(model, Machine{}, serving, holding, {}, 0);
  serving.layout.padded = true;
  CHECK(memory_at(model, Machine{}, serving, holding, {}, 0).total() == ragged.total());
}

TEST_CASE("data that a policy keeps beside its slots", "[cost][memory]") {
  // HashEvict's table of hashes: position 4, mask 1, hash of 16 bits as booleans 16; a projection of
  // 128 * 16 * 2 bytes and a counter of 4 per layer. Llama-3-8B, 24 slots: 32 * (8 * 24 * 533 + 4096 + 4).
  const Model model = find_model("llama-3-8b");
  Serving serving{.prompt = 240};
  serving.layout.mask_bytes = 1;
  policy::Cost cost;
  cost.metadata = {.lane_slot = 4 + 16, .layer = 128 * 16 * 2 + 4};
  const Memory memory =
      memory_at(model, Machine{}, serving, uniform_holding(model, serving.layout, 24, 24), cost, 0);
  CHECK(memory.cache() == 32 * (8 * 24 * 533 + 4096 + 4));
  // The published 0.8120 GiB are those of 256 such caches.
  CHECK(256 * static_cast<double>(memory.cache()) / kGiB == Approx(0.8120).margin(5e-5));
  // A full cache keeps positions once per layer: 405 slots, 12.6934 GiB.
  serving.prompt = 405;
  cost.metadata = {.layer_slot = 4, .layer = 4};
  const Memory full =
      memory_at(model, Machine{}, serving, uniform_holding(model, serving.layout, 405), cost, 0);
  CHECK(256 * static_cast<double>(full.cache()) / kGiB == Approx(12.6934).margin(5e-5));
}

TEST_CASE("policies that compress layer by layer peak at one whole layer", "[cost][memory]") {
  const Model model = small_model();  // two layers of two lanes, 16 bytes per token and lane
  Serving serving{.prompt = 100, .generate = 10};
  const Holding kept = uniform_holding(model, serving.layout, 20);
  const auto cache = [&](const policy::Cost& cost) {
    return prefill_peak(model, Machine{}, serving, kept, cost).keys_values;
  };
  // The first layer's 20, the second's 100.
  CHECK(cache({}) == 120 * 32);
  CHECK(cache({.streams = true}) == 40 * 32);
  // Nothing is compressed before all 100 have been repeated behind them.
  CHECK(cache({.repeated_at_once = 2000}) == 400 * 32);
  // In chunks of 50 both layers hold 50 when the second begins; the first then holds 100 until it is
  // compressed.
  serving.chunk = 50;
  CHECK(cache({}) == 150 * 32);
  CHECK(cache({.streams = true}) == 40 * 32);
  // In chunks of 30 the last has 10 tokens, so less is alive than in the one before it, after which both
  // layers hold 90.
  serving.chunk = 30;
  CHECK(cache({}) == 180 * 32);
  CHECK(cache({.repeated_at_once = 40}) == 280 * 32);
  CHECK(cache({.streams = true}) == 40 * 32);
}

TEST_CASE("a sliding window keeps its tokens and the current chunk", "[cost][memory]") {
  Model model = small_model();  // two layers of two lanes, 16 bytes per token and lane
  model.window = 25;
  Serving serving{.prompt = 100, .generate = 10};
  const Holding all = uniform_holding(model, serving.layout, 25, 25);
  const auto cache = [&] { return prefill_peak(model, Machine{}, serving, all, {}).keys_values; };
  CHECK(cache() == (25 + 100) * 32);
  serving.chunk = 50;
  CHECK(cache() == (25 + 25 + 50) * 32);
  // The chunk of 30 before the last, of 10, is the one that needs most.
  serving.chunk = 30;
  CHECK(cache() == (25 + 25 + 30) * 32);
  model.window = 100;  // wide enough to hide nothing
  serving.chunk = 0;
  CHECK(
      prefill_peak(model, Machine{}, serving, uniform_holding(model, serving.layout, 100), {}).keys_values ==
      200 * 32);
}

TEST_CASE("activations of fused and eager attention", "[cost][memory]") {
  const Model model = find_model("llama-3-8b");
  Serving serving{.prompt = 8192};
  const Holding all = uniform_holding(model, serving.layout, 8192);
  const auto peak = [&](const policy::Cost& cost = {}) {
    return prefill_peak(model, Machine{}, serving, all, cost).activations;
  };
  // The MLP's: 2 * 4096 + 3 * 14336 = 51200 elements of 2 bytes per token.
  CHECK(peak() == 8192ull * 51'200 * 2);
  // Logits of every row in 16 and 32 bits: 6.3 GB.
  serving.runtime.logits_rows = 8192;
  CHECK(peak() == 8192ull * 128'256 * 6);
  serving.runtime.logits_rows = 0;
  // 32 heads of 8192^2 scores in two copies of 2 bytes, and 2*4096 + 2*4096 + 2*1024 elements per token.
  serving.runtime.attention = Attention::eager;
  CHECK(peak() == 32ull * 8192 * 8192 * 4 + 8192ull * 18'432 * 2);
  serving.runtime.attention = Attention::flash;
  CHECK(peak({.prompt_rows = policy::kAllRows}) == 32ull * 8192 * 8192 * 4 + 8192ull * 18'432 * 2);
  serving.runtime.rows = RowSource::recomputed;
  CHECK(peak({.prompt_rows = policy::kAllRows}) == 8192ull * 51'200 * 2);
  // A chunk has only its own rows.
  serving.chunk = 512;
  CHECK(peak() == 512ull * 51'200 * 2);
}

TEST_CASE("peaks of FlexGen's logs on an A100", "[cost][memory]") {
  // Logs of H2O's repository, benchmark/h2o/a100_80: fp16, prompt + generated tokens, caches allocated at the
  // start, 2 * floor(ratio * prompt) tokens under H2O. FlexGen computes attention in two copies of the
  // scores.
  struct Log {
    const char* model;
    std::uint64_t batch, prompt, generate, kept;
    double peak;  // GiB
  };
  const Log kLogs[]{{"opt-6.7b", 24, 2048, 2048, 0, 74.76},  {"opt-6.7b", 24, 2048, 2048, 818, 36.39},
                    {"opt-13b", 4, 5000, 5000, 0, 70.92},    {"opt-13b", 4, 5000, 5000, 2000, 46.51},
                    {"opt-30b", 1, 7000, 1024, 0, 77.58},    {"opt-30b", 1, 7000, 1024, 1540, 69.17},
                    {"opt-6.7b", 64, 2048, 2048, 818, 75.67}};
  for (const Log& log : kLogs) {
    const Model model = find_model(log.model);
    Serving serving{.prompt = log.prompt, .generate = log.generate, .batch = log.batch};
    serving.layout.preallocated = true;
    serving.runtime.attention = Attention::eager;
    const Holding holding = log.kept == 0 ? uniform_holding(model, serving.layout, log.prompt)
                                          : uniform_holding(model, serving.layout, log.kept, log.kept);
    const double peak =
        static_cast<double>(prefill_peak(model, Machine{}, serving, holding, {}).total()) / kGiB;
    CAPTURE(log.model, log.batch, log.kept, peak / log.peak - 1);
    CHECK(peak == Approx(log.peak).epsilon(0.02));
  }
}

TEST_CASE("tensor parallel devices share weights and heads", "[cost][memory]") {
  const Model model = find_model("llama-3-8b");
  const Runtime runtime;
  CHECK(weight_bytes(model, runtime, 1) == 2 * model.parameters());
  // Half of all parameters except 65 norms of 4096.
  CHECK(weight_bytes(model, runtime, 2) == model.parameters() + 65 * 4096);
  Serving serving{.prompt = 1000};
  const Holding all = uniform_holding(model, serving.layout, 1000);
  const auto cache = [&](std::uint64_t devices) {
    serving.tensor_parallel = devices;
    return memory_at(model, Machine{}, serving, all, {}, 0).cache();
  };
  CHECK(cache(8) * 8 == cache(1));
  CHECK(cache(16) == cache(8));
  // The device with the long lanes counts.
  const Model small = small_model();
  const Holding uneven{{{2, {{1, 4, kNoLimit}, {1, 50, kNoLimit}}}}};
  CHECK(memory_at(small, Machine{}, Serving{.prompt = 60, .tensor_parallel = 2}, uneven, {}, 0).cache() ==
        2 * 50 * 16);
}

TEST_CASE("quantised weights", "[cost][memory]") {
  const Model model = small_model();
  // Matrices: 2 * (16*16 + 2*16*8 + 16*16 + 3*16*32) = 4608. Embedding and head 320, norms 5 * 16.
  Runtime runtime{.weight_bits = 4.5};
  CHECK(weight_bytes(model, runtime, 1) == 4608 * 9 / 16 + 640 + 160);
  runtime.embedding_bits = 8;
  CHECK(weight_bytes(model, runtime, 1) == 4608 * 9 / 16 + 320 + 160);
}

TEST_CASE("sizes that do not fit are errors", "[cost][memory]") {
  const Model model = find_model("opt-175b");
  const Holding huge = uniform_holding(model, Layout{}, std::uint64_t{1} << 60);
  Serving serving{.prompt = std::uint64_t{1} << 60};
  CHECK_THROWS_WITH(memory_at(model, Machine{}, serving, huge, {}, 0), Contains("64 bits"));
  CHECK_THROWS_WITH(prefill_peak(model, Machine{}, serving, huge, {}), Contains("64 bits"));
  CHECK_THROWS_WITH(full_cache_bytes(model, Layout{}, std::uint64_t{1} << 60, 1), Contains("64 bits"));
  CHECK_THROWS_WITH(weight_bytes(model, Runtime{.weight_bits = 1e12}, 1), Contains("64 bits"));
  CHECK_THROWS_AS(weight_bytes(model, Runtime{.weight_bits = -4}, 1), Error);
  serving = {.prompt = 1000, .batch = std::uint64_t{1} << 50};
  const Holding small = uniform_holding(model, Layout{}, 1000);
  CHECK_THROWS_WITH(memory_at(model, Machine{}, serving, small, {}, 0), Contains("64 bits"));
  const Machine reserving{.reserved = ~std::uint64_t{0}};
  serving.batch = 1;
  CHECK_THROWS_WITH(memory_at(model, reserving, serving, small, {}, 0).total(), Contains("64 bits"));
  CHECK_THROWS_AS(memory_at(model, Machine{}, {.prompt = 0}, small, {}, 0), Error);
  CHECK_THROWS_AS(memory_at(model, Machine{}, {.prompt = 1000, .tensor_parallel = 5}, small, {}, 0), Error);
}

}  // namespace kvsim::cost::test_memory
