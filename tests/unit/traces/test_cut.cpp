// Tests where a cut ends a sequence's prompt.
#include <catch2/catch.hpp>

#include "traces/format/memory_trace.hpp"
#include "traces/format/sequence.hpp"

namespace kvsim::test_cut {

namespace {

/// BOS, two tokens of instruction, four of context, two of question, three generated.
trace::Header told() {
  trace::Model model;
  model.n_layers = model.n_kv_heads = model.n_q_heads = 1;
  model.head_dim = model.v_head_dim = model.rotary_dim = 2;
  model.hidden_size = 2;
  model.vocab_size = 10;
  model.attn_scale = 1;
  trace::Header header = trace::plain_header(model, 9, 3);
  header.flags_known |= trace::kFlagContext | trace::kFlagQuestion;
  header.token_flags[0] |= trace::kFlagSpecial;
  for (const std::size_t t : {1, 2, 7, 8}) header.token_flags[t] |= trace::kFlagQuestion;
  for (const std::size_t t : {3, 4, 5, 6}) header.token_flags[t] |= trace::kFlagContext;
  return header;
}

trace::Sequence cut_at(const trace::Source& source, const char* cut) {
  return {source, 0, trace::parse_cut(cut)};
}

}  // namespace

TEST_CASE("a cut determines the prompt tokens and the measured rows") {
  const trace::MemoryTrace source(told());
  const trace::Sequence prompt = cut_at(source, "prompt");
  CHECK(prompt.prompt_length() == 9);
  CHECK(prompt.decode_length() == 3);
  CHECK(prompt.first_measured() == 8);  // the last prompt row reads the first answer token
  CHECK(prompt.measured_length() == 4);

  const trace::Sequence question = cut_at(source, "question");
  CHECK(question.prompt_length() == 7);
  CHECK(question.decode_length() == 5);
  CHECK(question.first_measured() == 7);
  CHECK(question.instruction_before() == 2);  // BOS does not count

  const trace::Sequence there = cut_at(source, "9");
  CHECK(there.prompt_length() == 9);
  CHECK(there.first_measured() == 9);
  CHECK(cut_at(source, "1").decode_length() == 11);
  // Tokens generated before the cut are counted separately.
  CHECK(cut_at(source, "11").answered_length() == 2);
  CHECK(prompt.answered_length() == 0);
}

TEST_CASE("of several turns, the question is the first request's") {
  trace::Header header = told();
  // A second turn: two tokens that ask and give more context, one generated.
  for (int i = 0; i < 3; ++i) {
    header.token_id.push_back(0);
    header.token_position.push_back(12 + i);
    header.token_segment.push_back(i < 2 ? 2 : 3);
    header.token_flags.push_back(i == 0   ? trace::kFlagContext
                                 : i == 1 ? trace::kFlagQuestion
                                          : trace::kFlagGenerated);
  }
  header.segments.push_back({1, 12, 2, 12, trace::Phase::prompt, 1, 0});
  header.segments.push_back({2, 14, 1, 14, trace::Phase::decode, 1, 0});
  header.sequence_leaf = {3};
  const trace::MemoryTrace source(std::move(header));
  const trace::Sequence question = cut_at(source, "question");
  CHECK(question.prompt_length() == 7);
  CHECK(question.decode_length() == 8);
  const trace::Sequence prompt = cut_at(source, "prompt");
  CHECK(prompt.prompt_length() == 14);
  CHECK(prompt.answered_length() == 3);
}

TEST_CASE("cuts that a sequence does not have are refused by name") {
  const trace::MemoryTrace source(told());
  CHECK_THROWS_WITH(cut_at(source, "12"), Catch::Contains("12 tokens") && Catch::Contains("cut 12"));
  for (const char* text : {"0", "-1", "questions", "", "1.5"})
    CHECK_THROWS_WITH(trace::parse_cut(text), Catch::Contains("prompt") && Catch::Contains("question"));
  for (const char* text : {"prompt", "question", "7"}) CHECK(trace::parse_cut(text).text() == text);

  trace::Header unknown = told();
  unknown.flags_known &= ~static_cast<std::uint32_t>(trace::kFlagContext);
  CHECK_THROWS_WITH(cut_at(trace::MemoryTrace(unknown), "question"), Catch::Contains("does not say"));
  trace::Header none = told();
  for (std::uint32_t& flags : none.token_flags) flags &= ~static_cast<std::uint32_t>(trace::kFlagContext);
  CHECK_THROWS_WITH(cut_at(trace::MemoryTrace(none), "question"), Catch::Contains("no token"));
  trace::Header last = told();
  last.token_flags[8] |= trace::kFlagContext;
  CHECK_THROWS_WITH(cut_at(trace::MemoryTrace(last), "question"), Catch::Contains("nothing follows"));
}

}  // namespace kvsim::test_cut
