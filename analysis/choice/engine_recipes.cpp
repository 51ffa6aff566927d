#include "analysis/choice/engine_recipes.hpp"

#include <map>
#include <optional>
#include <string_view>

#include "analysis/results/numbers.hpp"

namespace kvsim::analysis {
namespace {

/// {name} in `setting` is any one value, which {name} in `words` repeats; {share} of the tokens is kept,
/// {gone} is not.
struct Known {
  const char *engine, *setting, *words, *apart = "";
};

#define SNAPKV \
  "snapkv(window={window},pool=avg:{kernel},group=mean,unit=lane,sinks=0,granularity=1,tie=oldest)"
#define PRESS "compression_ratio={gone}"
#define SNAPKV_PRESS "SnapKVPress(" PRESS ", window_size={window}, kernel_size={kernel})"

constexpr const char* kLlamaCpp =
    "has the numbers of a head of Llama's kin in another order, and reads the prompt from what is coded";

// Presses: policies/kvpress.csv, the rows without a difference. vLLM: its quantised caches
// (https://docs.vllm.ai), and pull request 38378. SGLang: quantized_kv_cache of its documentation.
// TensorRT-LLM: KvCacheConfig of its documentation. llama.cpp: -ctk and -ctv, and pull request 21038, by
// which it rotates what it codes unless the environment says otherwise. OpenVINO GenAI:
// cache_eviction.hpp. Carried out: cli.test_kvpress, cli.test_llama_cache and cli.test_openvino.
constexpr Known kKnown[] = {
    {"kvpress", SNAPKV "+uniform()", SNAPKV_PRESS},
    {"kvpress", SNAPKV "+pyramid(beta={beta},variant=kvpress)",
     "PyramidKVPress(" PRESS ", window_size={window}, kernel_size={kernel}, beta={beta})"},
    {"kvpress", SNAPKV "+adakv(alpha={alpha},normalise=false,variant=kvpress)",
     "AdaKVPress(" SNAPKV_PRESS ", alpha_safeguard={alpha})"},
    {"kvpress",
     "keydiff(sinks=0,window=0,granularity=1,decode=false,phase=pre,prompt=rank,tie=oldest)+uniform()",
     "KeyDiffPress(" PRESS ")"},
    {"kvpress",
     "blockwise(base=keydiff(sinks=0,window=0,granularity=1,decode=false,phase=pre,prompt=rank,tie=oldest),"
     "size={size})+uniform()",
     "BlockPress(KeyDiffPress(" PRESS "), block_size={size})"},
    {"kvpress", "l2_norm(sinks=0,window=0,granularity=1,drop=0,decode=false,phase=pre,tie=oldest)+uniform()",
     "KnormPress(" PRESS ")"},
    {"kvpress",
     "tova(unit=layer,sinks=0,window=1,granularity=1,decode=false,phase=pre,prompt=rank,tie=oldest)"
     "+uniform()",
     "TOVAPress(" PRESS ")"},
    {"kvpress",
     "h2o(recent=0,sinks=0,window=0,rows=0,prompt_weight=sum,normalise=mean_since,decode=false,"
     "feedback=renorm,unit=lane,granularity=1,phase=pre,prompt=rank,tie=oldest)+uniform()",
     "ObservedAttentionPress(" PRESS ")"},
    {"kvpress", "streaming_llm(sinks={sinks},window=0,decode=false)+uniform()",
     "StreamingLLMPress(" PRESS ", n_sink={sinks})"},
    {"kvpress",
     "expected_attention(future={future},covariance=true,value_norm=true,epsilon={epsilon},sinks={sinks},"
     "granularity=1,tie=oldest)+uniform()",
     "ExpectedAttentionPress(" PRESS
     ", n_future_positions={future}, n_sink={sinks}, use_covariance=True, use_vnorm=True, epsilon={epsilon})"},
    {"kvpress", "cap_kv(tau={tau},future={future},sinks={sinks},granularity=1,tie=oldest)+uniform()",
     "CapPress(" PRESS ", tau={tau}, n_future_positions={future}, n_sink={sinks})"},
    {"kvpress", "cur_dkv(block={block},of=both,sinks={sinks},granularity=1,tie=oldest)+uniform()",
     "CURPress(" PRESS ", num_sinks={sinks}, local_window_size={block})"},
    {"kvpress", "kvzip(file=run,plus=false,sinks={sinks},window=0,tie=oldest)+one_threshold()",
     "KVzipPress(" PRESS ", n_sink={sinks})",
     "repeats chunks of 2048, gives a chat template no score, and lets a head keep nothing but sinks"},
    {"vLLM", "full()+uniform()+fp8(format={format},scale=one)", "--kv-cache-dtype fp8_{format}"},
    {"vLLM", "full()+uniform()+int8(variant=vllm)", "--kv-cache-dtype int8_per_token_head"},
    {"vLLM",
     "full()+uniform()+turboquant(bits=4,form=mse,values=4,value_form=range,rotation=hadamard,"
     "unit_length=true)",
     "--kv-cache-dtype turboquant_4bit_nc", "leaves the first and last two layers as they are"},
    {"SGLang", "full()+uniform()+fp8(format={format},scale=one)", "--kv-cache-dtype fp8_{format}"},
    {"TensorRT-LLM", "full()+uniform()+fp8(format=e4m3,scale=one)", "KvCacheConfig(dtype=\"fp8\")",
     "takes scales from the checkpoint where it has them"},
    {"llama.cpp", "full()+uniform()+llama_cpp(keys={keys},values={values},rotate=true)",
     "-fa on -ctk {keys} -ctv {values}", kLlamaCpp},
    {"llama.cpp", "full()+uniform()+llama_cpp(keys={keys},values={values},rotate=false)",
     "-fa on -ctk {keys} -ctv {values}, and LLAMA_ATTN_ROT_DISABLE=1", kLlamaCpp},
    {"llama.cpp", "full()+uniform()+q8_0()", "-fa on -ctk q8_0 -ctv q8_0, and LLAMA_ATTN_ROT_DISABLE=1",
     kLlamaCpp},
    {"llama.cpp", "full()+uniform()+q4_0()", "-fa on -ctk q4_0 -ctv q4_0, and LLAMA_ATTN_ROT_DISABLE=1",
     kLlamaCpp},
    {"OpenVINO GenAI",
     "openvino(block=32,start={start},recent={recent},aggregation=norm_sum,snapkv_window={window},"
     "pool_width=7,kvcrush=0,anchor={anchor},draws={draws},inside=false)+uniform()",
     "CacheEvictionConfig(32 * {start}, 32 * {recent}, int({share} * prompt_tokens) // 32 * 32, "
     "AggregationMode.NORM_SUM, snapkv_window_size={window})",
     "evicts once it has read the first token that it generated"},
};

#undef SNAPKV
#undef SNAPKV_PRESS
#undef PRESS

using Values = std::map<std::string, std::string, std::less<>>;

std::optional<Values> matched(std::string_view pattern, std::string_view text) {
  Values values;
  while (!pattern.empty()) {
    if (pattern.front() != '{') {
      if (text.empty() || text.front() != pattern.front()) return std::nullopt;
      pattern.remove_prefix(1);
      text.remove_prefix(1);
      continue;
    }
    const std::size_t close = pattern.find('}'), end = text.find_first_of(",)");
    if (end == std::string_view::npos) return std::nullopt;
    values[std::string(pattern.substr(1, close - 1))] = text.substr(0, end);
    pattern.remove_prefix(close + 1);
    text.remove_prefix(end);
  }
  return text.empty() ? std::optional(values) : std::nullopt;
}

std::string filled(std::string_view words, const Values& values) {
  std::string out;
  while (!words.empty()) {
    const std::size_t open = words.find('{');
    out += words.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = words.find('}', open);
    out += values.find(words.substr(open + 1, close - open - 1))->second;
    words.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace

std::vector<EngineRecipe> engine_recipes(const std::string& params, std::optional<double> share) {
  std::vector<EngineRecipe> out;
  for (const Known& known : kKnown) {
    std::optional<Values> values = matched(known.setting, params);
    if (!values) continue;
    (*values)["share"] = share ? rounded_text(*share, 3) : "share";
    (*values)["gone"] = share ? rounded_text(1 - *share, 3) : "1 - share";
    out.push_back({known.engine, filled(known.words, *values), known.apart});
  }
  return out;
}

}  // namespace kvsim::analysis
