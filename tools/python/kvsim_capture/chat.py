"""A conversation as its tokens, each with the role of who speaks and whether it is the template's or the speaker's."""
from .token_tree import Note
from .trace_error import TraceError
from .trace_header import FLAGS, ROLES


def read_messages(messages, where):
    """A list of {"role": ..., "content": ...}, checked."""
    if not isinstance(messages, list) or not messages:
        raise TraceError("expected a JSON array of messages", where, '[{"role": "user", "content": "..."}]')
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or \
                not isinstance(message.get("content"), str):
            raise TraceError("expected an object with the texts role and content", f"{where} message {index}")
    return messages


def tokenize_chat(tokenizer, messages, where):
    """(ids, a Note per token, bits of flags that say something). The answer is asked for at the end."""
    if not getattr(tokenizer, "chat_template", None):
        raise TraceError("this tokenizer has no chat template", where, "Give the text as it is with --prompt.")
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # whatever the template's own code raises
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
    """Turns end with what the assistant said."""
    return sum(message["role"] == "assistant" for message in messages[:index])


def _ends(tokenizer, messages, text):
    """Where each message ends in `text`: where the conversation up to it ends, if templates only ever append, else where
    its content does."""
    ends = []
    for count in range(1, len(messages) + 1):
        try:
            prefix = tokenizer.apply_chat_template(messages[:count], tokenize=False)
        except Exception:  # templates may refuse half a conversation
            prefix = None
        if prefix is None or not text.startswith(prefix):
            break
        ends.append(len(prefix))
    if len(ends) == len(messages):
        return ends
    contents = _contents(messages, text)
    return [stop for _, stop in contents] if contents is not None else [len(text)]


def _contents(messages, text):
    """Where each message's own words are in `text`; None if some are not there as they were given."""
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
