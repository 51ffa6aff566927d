// Tests that contradictions in a header are refused with their place.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "sim/base/error.hpp"
#include "tests/unit/traces/small_trace.hpp"
#include "traces/format/validate.hpp"

namespace kvsim::test::test_validate {

using trace::Header;

namespace {

void refuses(const std::function<void(Header&)>& change, const char* text) {
  Header header = trace::plain_header(small_model(), 4, 2);
  REQUIRE_NOTHROW(trace::check_header(header, "run.h5"));
  change(header);
  try {
    trace::check_header(header, "run.h5");
    FAIL("accepted: " << text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::input);
    CHECK_THAT(error.what(), Catch::Contains(text));
  }
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("shapes of the model") {
  refuses([](Header& h) { h.model.n_layers = 0; }, "run.h5:/model: n_layers is 0, not within 1 to 1024");
  refuses([](Header& h) { h.model.n_layers = 1025; }, "n_layers is 1025");
  refuses([](Header& h) { h.model.n_q_heads = 1028; }, "n_q_heads is 1028");
  refuses([](Header& h) { h.model.n_kv_heads = 0; }, "n_kv_heads is 0");
  refuses([](Header& h) { h.model.n_q_heads = 3; }, "n_q_heads 3 is not a multiple of n_kv_heads 2");
  refuses([](Header& h) { h.model.head_dim = 2000; }, "head_dim is 2000");
  refuses([](Header& h) { h.model.v_head_dim = 0; }, "v_head_dim is 0");
  refuses([](Header& h) { h.model.vocab_size = 0; }, "vocab_size is 0");
  refuses([](Header& h) { h.model.layer_window.pop_back(); }, "/model/layer_window: has 1 entries, not 2");
  refuses([](Header& h) { h.model.layer_window[1] = 0; }, "/model/layer_window[1]");
  refuses([](Header& h) { h.model.layer_window[1] = -2; }, "/model/layer_window[1]");
}

TEST_CASE("output weights need a hidden size") {
  refuses([](Header& h) { h.output_elem = Elem::f32; }, "/model: hidden_size is 0, not within 1 to 65536");
  refuses([](Header& h) { h.output_elem = Elem::f32, h.model.hidden_size = 65537; }, "hidden_size is 65537");
}

TEST_CASE("arithmetic of the model") {
  refuses([](Header& h) { h.model.rotary_dim = 10; }, "rotary_dim");
  refuses([](Header& h) { h.model.rotary_dim = 3; }, "rotary_dim");
  refuses([](Header& h) { h.model.rotary_dim = 4; }, "/model/inv_freq: has 0 entries, not 2");
  refuses([](Header& h) { h.model.rotary_dim = 2, h.model.inv_freq = {-1.0F}; }, "/model/inv_freq[0]");
  refuses([](Header& h) { h.model.attn_scale = 0; }, "attn_scale");
  refuses([](Header& h) { h.model.attn_scale = kNan; }, "attn_scale");
  refuses([](Header& h) { h.model.norm_eps = -1; }, "norm_eps");
  refuses([](Header& h) { h.model.rope_theta = kInf; }, "rope_theta");
  refuses([](Header& h) { h.model.rope_attention_factor = 0; }, "rope_attention_factor");
  refuses([](Header& h) { h.model.logit_softcap = -3; }, "logit_softcap");
  refuses([](Header& h) { h.model.rope_layout = "twisted"; }, "rope_layout");
  refuses([](Header& h) { h.model.config_json.assign((1 << 20) + 1, ' '); }, "/model/config_json");
}

TEST_CASE("tokens") {
  refuses([](Header& h) { h.token_id.clear(); }, "/tokens: needs 1 to 16777216 tokens");
  refuses([](Header& h) { h.token_id[5] = 1000; }, "/tokens/id[5]: is outside the vocabulary");
  refuses([](Header& h) { h.token_id[5] = -2; }, "/tokens/id[5]");
  refuses([](Header& h) { h.token_segment.pop_back(); }, "/tokens/segment: has 5 entries, not 6");
  refuses([](Header& h) { h.token_segment[3] = 1; }, "/tokens/segment[3]");
  refuses([](Header& h) { h.token_position.push_back(6); }, "/tokens/position: has 7 entries");
  refuses([](Header& h) { h.token_position[2] = 1; }, "/tokens/position[2]: does not ascend");
  refuses([](Header& h) { h.token_position[0] = -1; }, "/tokens/position[0]");
  refuses([](Header& h) { h.token_position[4] = 3; },
          "/tokens/position[4]: does not ascend");  // across segments
  refuses([](Header& h) { h.token_flags.clear(); }, "/tokens/flags: has 0 entries");
  refuses([](Header& h) { h.token_flags[1] = 1U << 16; }, "/tokens/flags[1]: sets a reserved bit");
  refuses([](Header& h) { h.flags_known = 1U << 16; }, "/tokens: flags_known sets a reserved bit");
  refuses([](Header& h) { h.token_logprob = {0}; }, "/tokens/logprob: has 1 entries");
  refuses([](Header& h) { h.token_logprob = {0, 0, 0, 0, 0.5F, 0}; }, "/tokens/logprob[4]");
}

TEST_CASE("segments and sequences") {
  refuses([](Header& h) { h.segments.clear(); }, "/segments: needs 1");
  refuses([](Header& h) { h.segments[0].parent = 0; },
          "/segments/parent[0]: parent must come before its child");
  refuses([](Header& h) { h.segments[0].parent = 1; }, "/segments/parent[0]");
  refuses([](Header& h) { h.segments[1].parent = -2; }, "/segments/parent[1]");
  refuses([](Header& h) { h.segments[1].begin = 5; }, "/segments/begin[1]");
  refuses([](Header& h) { h.segments[1].count = 0; }, "/segments/begin[1]");
  refuses([](Header& h) { h.segments[1].count = 1; }, "/segments/count: segments do not cover the tokens");
  refuses([](Header& h) { h.segments[1].count = 4000000000; }, "/segments/count");
  refuses([](Header& h) { h.segments[1].path_len = 3; }, "/segments/path_len[1]");
  refuses([](Header& h) { h.segments[1].phase = static_cast<trace::Phase>(3); }, "/segments/phase[1]");
  refuses([](Header& h) { h.segments[1].role = 6; }, "/segments/role[1]");
  refuses([](Header& h) { h.sequence_leaf = {0, 2}; }, "/sequences/leaf[1]: names no segment");
}

TEST_CASE("passes and times") {
  refuses([](Header& h) { h.passes[1].segment = 2; }, "/passes/segment[1]");
  refuses([](Header& h) { h.passes[1].begin = 3; }, "/passes/begin[1]");
  refuses([](Header& h) { h.passes[2].begin = 4; }, "/passes/begin[2]");
  refuses([](Header& h) { h.passes[0].q_len = 5; }, "/passes/begin[0]");
  refuses([](Header& h) { h.passes[0].q_len = 0; }, "/passes/begin[0]");
  refuses([](Header& h) { h.passes[2].begin = UINT64_MAX; }, "/passes/begin[2]");
  refuses([](Header& h) { h.passes[2].past_len = 4; }, "/passes/past_len[2]");
  refuses([](Header& h) { h.passes[2].phase = static_cast<trace::Phase>(9); }, "/passes/phase[2]");
  refuses([](Header& h) { h.passes[2].dur_ns = -1; }, "/passes/dur_ns[2]");
  refuses([](Header& h) { h.layer_ns = {1}; }, "/timing/layer_ns: has 1 entries, not 6");
  refuses([](Header& h) { h.attn_ns.assign(6, std::nanf("")); }, "/timing/attn_ns[0]");
}

TEST_CASE("text and stored rows") {
  refuses([](Header& h) { h.text_bytes = "x"; }, "/text/bytes");
  refuses([](Header& h) { h.text_offset = {0, 0}; }, "/text/offset: has 2 entries, not 7");
  refuses([](Header& h) { h.text_offset.assign(7, 1); }, "/text/offset: does not span");
  refuses([](Header& h) { h.text_offset = {0, 2, 1, 2, 2, 2, 2}, h.text_bytes = "ab"; },
          "/text/offset[2]: falls");
  refuses([](Header& h) { h.query_token = {3, 3}; }, "/layers/0000/q_token[1]");
  refuses([](Header& h) { h.query_token = {6}; }, "/layers/0000/q_token[0]");
  refuses([](Header& h) { h.attention_token = {4, 2}; }, "/layers/0000/rows/token[1]");
}

TEST_CASE("limit cases that are accepted") {
  Header header = trace::plain_header(small_model(1, 1, 1), 1, 0);
  CHECK_NOTHROW(trace::check_header(header, "x"));
  header.token_id[0] = -1;  // withheld
  header.token_logprob = {std::nanf("")};
  header.sequence_leaf.clear();
  header.passes.clear();
  CHECK_NOTHROW(trace::check_header(header, "x"));
}

}  // namespace kvsim::test::test_validate
