// Qwen-Bailian's JSON Lines (alibaba-edu/qwen-bailian-usagetraces-anon; Wang et al., USENIX ATC 2025): turns
// of conversations, each with its whole prompt. block_size and delay, seconds after the end of the parent in
// place of a timestamp, are what kvsim writes besides.
#include "sim/base/error.hpp"
#include "sim/base/message_text.hpp"
#include "traces/requests/json_fields.hpp"
#include "traces/requests/line_format.hpp"

namespace kvsim::requests {
namespace {

class BailianReader : public LineReader {
 public:
  enum Column : std::size_t {
    kChat,
    kParent,
    kTime,
    kPrompt,
    kGenerated,
    kType,
    kTurn,
    kIds,
    kBlock,
    kDelay
  };

  void read(std::string_view line, TraceBuilder& out) override {
    fields_.parse(line, [&] { return out.where(); });
    if (fields_.has(kBlock)) out.declare_block_tokens(fields_.whole(kBlock));
    const std::string& chat = fields_.name(kChat);
    refuse_second(chat, out);
    Request request;
    const bool has_parent = fields_.has(kParent) && fields_.name(kParent) != "-1";
    std::string root = chat;
    if (has_parent) {
      const std::string& parent = fields_.name(kParent);
      const auto known = chats_.find(parent);
      if (known == chats_.end()) {
        missing_.try_emplace(parent, out.where());
        root = parent;
      } else {
        request.parent = known->second;
        root = out.trace().sessions[out.trace().requests[known->second].session];
      }
    }
    set_time(request, out);
    request.turn = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(fields_.whole_or(kTurn, has_parent ? 2 : 1), kNone - 1));
    request.session = out.session(root);
    if (fields_.has(kType)) request.category = out.category(fields_.name(kType));
    chats_[chat] =
        out.add(request, fields_.whole(kPrompt), fields_.whole_or(kGenerated, 0), fields_.list(kIds));
  }

 private:
  void refuse_second(const std::string& chat, const TraceBuilder& out) const {
    if (chats_.contains(chat))
      input_error("the chat_id " + in_quotes(chat) + " occurs a second time", out.where(),
                  "A chat_id names one request; turns of a conversation follow parent_chat_id.");
    if (const auto child = missing_.find(chat); child != missing_.end())
      input_error(
          "the request " + in_quotes(chat) + " stands behind one that continues it (" + child->second + ")",
          out.where(), "Parents come before their children.");
  }

  void set_time(Request& request, const TraceBuilder& out) const {
    if (fields_.has(kTime) == fields_.has(kDelay))
      input_error(fields_.has(kTime) ? "has a timestamp and a delay" : "has no field \"timestamp\"",
                  out.where(), "A request arrives at a timestamp, or a delay after the end of its parent.");
    request.after_parent = fields_.has(kDelay);
    if (request.after_parent && request.parent == kNone)
      input_error("waits for a request that the trace does not have", out.where(),
                  "A delay counts from the end of the request that parent_chat_id names.");
    request.time_s = fields_.real(request.after_parent ? kDelay : kTime);
  }

  JsonFields fields_{{{"chat_id", FieldKind::name, true},
                      {"parent_chat_id", FieldKind::name, false},
                      {"timestamp", FieldKind::real, false},
                      {"input_length", FieldKind::whole, true},
                      {"output_length", FieldKind::whole, true},
                      {"type", FieldKind::name, false},
                      {"turn", FieldKind::whole, false},
                      {"hash_ids", FieldKind::ids, false},
                      {"block_size", FieldKind::whole, false},
                      {"delay", FieldKind::real, false}}};
  boost::unordered_flat_map<std::string, std::uint32_t> chats_;
  boost::unordered_flat_map<std::string, std::string> missing_;  ///< parents, and the line that named them
};

}  // namespace

LineFormat bailian_format() {
  LineFormat format;
  format.said = {"bailian",
                 "JSON Lines with chat_id, parent_chat_id, timestamp (s), type, turn, hash_ids of 16 tokens",
                 true};
  format.defaults = {.block_tokens = 16};
  format.shown_by = {{"chat_id", "input_length"}};
  format.reader = made<BailianReader>;
  return format;
}

}  // namespace kvsim::requests
