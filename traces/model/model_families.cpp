#include "traces/model/model_families.hpp"

#include <boost/describe.hpp>
#include <boost/json.hpp>
#include <boost/mp11/algorithm.hpp>
#include <type_traits>
#include <vector>

#include "sim/base/error.hpp"

namespace kvsim::model {

namespace json = boost::json;
namespace describe = boost::describe;

// What a row may say, by its name in model_families.json.
BOOST_DESCRIBE_ENUM(Activation, silu, gelu_tanh, gelu, relu)
BOOST_DESCRIBE_STRUCT(LayerParts, (),
                      (gated_mlp, layer_norm, norms, qkv_bias, output_bias, mlp_bias, head_bias, qk_norm,
                       wide_qk_norm, bare_qk_norm, gated_attention, norms_from_one, centred_norms, parallel,
                       activation, interleaved, fused_qkv, fused_gate_up, sinks))
BOOST_DESCRIBE_STRUCT(Latent, (), (rank, query_rank, plain, rotated, value))
BOOST_DESCRIBE_STRUCT(Experts, (),
                      (count, used, width, shared_width, normalised, shared_gate, corrected, groups,
                       used_groups, scaled_inputs, scale, biased, gain, limit))
BOOST_DESCRIBE_ENUM(Family::Sliding, never, always, picked, patterned, chunks)
BOOST_DESCRIBE_ENUM(Family::Biased, none, qkv, all)
BOOST_DESCRIBE_ENUM(Family::Rotated, never, all, apart, windows, windows_only, listed)
BOOST_DESCRIBE_ENUM(Family::Sparse, all, behind, stepped, periodic, listed)
BOOST_DESCRIBE_ENUM(Family::Shared, none, times, own, alike)
BOOST_DESCRIBE_ENUM(Family::Memory, none, delta, bamba, falcon, nemotron, jamba, yoco)
BOOST_DESCRIBE_STRUCT(Family, (),
                      (type, sizes_only, code, query_heads, vocab, kv_heads, head_dim, max_positions,
                       norm_eps, tied, sliding, window, pattern, attention_bias, mlp_bias, rotated, theta,
                       window_theta, partial_rotary, activation, scaled_embedding, multipliers, logit_scale,
                       query_scalar, attention_cap, logit_cap, parts, latent, experts, sparse, dense, shared,
                       memory))

/// The file, compiled in (CMakeLists.txt). A row says where its family differs from Family's own defaults.
/// Kimi K2 is DeepSeek V3 under another name. The authors' code of YOCO has no class in transformers: its
/// fields are named as elsewhere.
std::string_view model_families_json();

namespace {

constexpr NormNames kNormsOfGlm4{"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm",
                                 "post_mlp_layernorm"};

NormNames norms_called(std::string_view name) {
  if (name == "behind") return kNormsBehind;
  if (name == "around") return kNormsAround;
  if (name == "one") return kOneNorm;
  if (name == "glm4") return kNormsOfGlm4;
  bug("a model family has unknown norms", std::string(name));
}

template <class Member>
void take(const json::value& said, Member& member) {
  if constexpr (std::is_same_v<Member, NormNames>) {
    member = norms_called(said.as_string());
  } else if constexpr (std::is_same_v<Member, std::string_view>) {
    member = said.as_string();
  } else if constexpr (std::is_enum_v<Member>) {
    const std::string word(said.as_string());
    if (!describe::enum_from_string(word.c_str(), member)) bug("a model family says an unknown word", word);
  } else if constexpr (describe::has_describe_members<Member>::value) {
    const json::object& row = said.as_object();
    std::size_t taken = 0;
    boost::mp11::mp_for_each<describe::describe_members<Member, describe::mod_public>>([&](auto of) {
      const json::value* here = row.if_contains(of.name);
      if (here == nullptr) return;
      ++taken;
      take(*here, member.*of.pointer);
    });
    if (taken != row.size()) bug("a model family says more than is read", json::serialize(row));
  } else {
    member = json::value_to<Member>(said);
  }
}

}  // namespace

std::span<const Family> families() {
  static const json::value kRows = json::parse(model_families_json());
  static const std::vector<Family> kFamilies = [] {
    std::vector<Family> out;
    for (const json::value& row : kRows.as_array()) take(row, out.emplace_back());
    return out;
  }();
  return kFamilies;
}

}  // namespace kvsim::model
