"""Tokenizes a conversation; each token gets the role of its message and whether it comes from the template or the
message."""
from ..writing.token_tree import Note
from ..writing.trace_error import TraceError
from ..writing.trace_header import FLAGS, ROLES


def read_messages(messages, where):
    """Checks and returns a list of {"role": ..., "content": ...}."""
    if not isinstance(messages, list) or not messages:
        raise TraceError("expected a JSON array of messages", where, '[{"role": "user", "content": "..."}]')
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or \
                not isinstance(message.get("content"), str):
            raise TraceError("expected an object with the texts role and content", f"{where} message {index}")
    return messages


def tokenize_chat(tokenizer, messages, where):
    """(ids, a Note per token, bits of known flags). The conversation ends with the template's prompt for an answer."""
    if not getattr(tokenizer, "chat_template", None):
        raise TraceError("this tokenizer has no chat template", where, "Give the text as it is with --prompt.")
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # the template's code can raise anything
        raise TraceError(f"the chat template refuses these messages: {error}", where) from error
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=tokenizer.is_fast)
    ids = encoded["input_ids"]
    if not tokenizer.is_fast:
        return ids, [Note() for _ in ids], 0
    ends, contents = _ends(tokenizer, messages, text), _contents(messages, text)
    known = FLAGS["markup"] if contents is not None else 0
    notes = []
    for begin, end in encoded["offset_mapping"]:
        index = sum(begin >= stop for stop in ends)
        spoken = contents is not None and any(begin < stop and end > start for start, stop in contents)
        role = messages[index]["role"] if index < len(messages) else "assistant"
        notes.append(Note(ROLES.get(role, 0), 0 if spoken else known, _turn(messages, index)))
    return ids, notes, known


def _turn(messages, index):
    """The turn of message `index`; a turn ends with the assistant's message."""
    return sum(message["role"] == "assistant" for message in messages[:index])


def _ends(tokenizer, messages, text):
    """The end of each message in `text`: the end of the conversation up to it if the template only appends, else the
    end of its content."""
    ends = []
    for count in range(1, len(messages) + 1):
        try:
            prefix = tokenizer.apply_chat_template(messages[:count], tokenize=False)
        except Exception:  # templates may refuse an incomplete conversation
            prefix = None
        if prefix is None or not text.startswith(prefix):
            break
        ends.append(len(prefix))
    if len(ends) == len(messages):
        return ends
    contents = _contents(messages, text)
    return [stop for _, stop in contents] if contents is not None else [len(text)]


def _contents(messages, text):
    """The place of each message's content in `text`; None if the template changed some content."""
    spans, after = [], 0
    for message in messages:
        words = message["content"]
        begin = text.find(words, after)
        if begin < 0:
            words = words.strip()
            begin = text.find(words, after)
        if begin < 0:
            return None
        after = begin + len(words)
        spans.append((begin, after))
    return spans
