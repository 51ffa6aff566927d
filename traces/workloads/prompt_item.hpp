#pragma once
/// A prompt of a workload: text, what each part of it is for, and what should come next.
#include <cstdint>
#include <string>
#include <vector>

namespace kvsim::workload {

/// What a part of a prompt is for. Question and context share no byte; evidence lies inside the context.
enum class Role {
  question,  ///< instruction or question
  context,   ///< what is to be read
  evidence,  ///< where the answer stands
};
/// "question", "context", "evidence".
const char* role_name(Role role);
/// Throws Error(input) at `where`.
Role role_of_name(const std::string& name, const std::string& where);
/// The trace's token flag for a part (traces/format/SCHEMA.md).
std::uint32_t role_flag(Role role);

/// Bytes [begin, end) of a prompt.
struct RoleSpan {
  std::uint64_t begin = 0, end = 0;
  Role role = Role::context;
  friend bool operator==(const RoleSpan&, const RoleSpan&) = default;
};

/// When an answer is right.
enum class Expect {
  nothing,  ///< there is no answer
  first,    ///< it begins with the only answer
  any,      ///< it begins with one of the answers
  all,      ///< every answer occurs in it, in any order
};
/// "nothing", "first", "any", "all".
const char* expect_name(Expect expect);

struct PromptItem {
  std::string id;    ///< KIND-CONTEXT-sSEED-INDEX
  std::string kind;  ///< such as needle-multi-key
  std::uint64_t seed = 0;
  std::uint64_t context_tokens = 0;   ///< tokens asked for
  std::uint64_t tokens = 0;           ///< tokens of the prompt, at most context_tokens
  std::uint64_t answer_tokens = 0;    ///< tokens of all answers, one behind the other
  std::string context_id;             ///< items with the same one share their context
  std::uint64_t turn = 0, turns = 1;  ///< number of the question, and how many its context is asked
  std::string prompt;
  std::vector<RoleSpan> spans;  ///< by begin
  Expect expect = Expect::nothing;
  std::vector<std::string> answers;  ///< with their leading space
};

/// The item as one line of JSON, without the end of the line (traces/workloads/README.md).
std::string json_line(const PromptItem& item);

}  // namespace kvsim::workload
