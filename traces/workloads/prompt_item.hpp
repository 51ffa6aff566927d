#pragma once
/// A prompt of a workload: its text, the roles of its parts, and the expected answers.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvsim::workload {

/// The role of a part of a prompt. Question, context and markup share no byte; evidence lies inside the
/// context.
enum class Role {
  question,  ///< instruction or question
  context,   ///< text that the question is about
  evidence,  ///< text that holds the answer
  markup,    ///< what a chat template writes
};
/// "question", "context", "evidence", "markup".
const char* role_name(Role role);
/// Throws Error(input) naming `where` for any other name.
Role role_of_name(const std::string& name, const std::string& where);
/// The trace's token flag for a part (traces/format/SCHEMA.md).
std::uint32_t role_flag(Role role);
constexpr std::uint32_t kFlagMarkup = 1U << 1;  ///< of Role::markup

/// Bytes [begin, end) of a prompt.
struct RoleSpan {
  std::uint64_t begin = 0, end = 0;
  Role role = Role::context;
  friend bool operator==(const RoleSpan&, const RoleSpan&) = default;
};

/// Bytes [begin, end) of a prompt.
struct ByteSpan {
  std::uint64_t begin = 0, end = 0;
  friend bool operator==(const ByteSpan&, const ByteSpan&) = default;
};

/// The condition for a right answer.
enum class Expect {
  nothing,  ///< there is no answer
  first,    ///< it begins with the only answer
  any,      ///< it begins with one of the answers
  all,      ///< every answer occurs in it, in any order
  // Other projects' benchmarks look for answers anywhere, without regard to case (of ASCII letters) and
  // white space around them.
  holds_any,  ///< one of the answers occurs in it
  holds_all,  ///< every answer occurs in it
};
/// "nothing", "first", "any", "all", "holds-any", "holds-all".
const char* expect_name(Expect expect);
/// Throws Error(input) naming `where` for any other name.
Expect expect_of_name(const std::string& name, const std::string& where);
/// Whether a generated text meets the condition; never for Expect::nothing. The text, like the answers, has
/// its leading space.
bool is_right(const std::string& text, Expect expect, const std::vector<std::string>& answers);

struct PromptItem {
  std::string id;    ///< KIND-CONTEXT-sSEED-INDEX
  std::string kind;  ///< such as needle-multi-key
  std::uint64_t seed = 0;
  std::uint64_t context_tokens = 0;   ///< tokens requested
  std::uint64_t tokens = 0;           ///< tokens of the prompt, at most context_tokens
  std::uint64_t answer_tokens = 0;    ///< tokens of all answers, concatenated
  std::string context_id;             ///< items with the same id share their context
  std::uint64_t turn = 0, turns = 1;  ///< index of the question, and number of questions about its context
  std::string prompt;
  std::string chat;             ///< SHA-256 of the chat template that made `prompt`; empty: none did
  std::vector<RoleSpan> spans;  ///< by begin
  /// Texts that other prompts hold, too, in other company; ascending, none within another.
  std::vector<ByteSpan> documents{};
  Expect expect = Expect::nothing;
  std::vector<std::string> answers;  ///< with their leading space
  /// Bytes at the end of `prompt` that begin the answer; a chat template puts them into the model's turn.
  std::uint64_t answer_prefix = 0;
};

/// The item as one line of JSON, without the end of the line (traces/workloads/README.md).
std::string json_line(const PromptItem& item);

/// Text composed of parts, each with its role.
class SpannedText {
 public:
  /// Appends a part. Evidence also counts as context; adjacent parts of the same role become one span.
  SpannedText& add(std::string_view text, Role role);

  /// Appends the words with which the answer begins, as part of the question; nothing follows them. A chat
  /// template puts them into the model's turn.
  SpannedText& begin_answer(std::string_view prefix);
  /// The byte at which they begin; the size of the text where there are none.
  std::uint64_t answer_begin() const { return answer_begin_ ? *answer_begin_ : text_.size(); }

  /// What was added since byte `begin` is a document.
  SpannedText& end_document(std::uint64_t begin);
  const std::vector<ByteSpan>& documents() const { return documents_; }

  /// This text behind a part.
  SpannedText behind(std::string_view text, Role role) const;

  const std::string& text() const { return text_; }
  /// The spans, sorted by begin, then role.
  std::vector<RoleSpan> spans() const;

 private:
  void extend(std::vector<RoleSpan>& spans, std::uint64_t begin, Role role);

  std::string text_;
  std::vector<RoleSpan> parts_, evidence_;
  std::vector<ByteSpan> documents_;
  std::optional<std::uint64_t> answer_begin_;
};

}  // namespace kvsim::workload
