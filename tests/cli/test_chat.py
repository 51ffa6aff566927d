#!/usr/bin/env python3
"""Tests prompts through a model's chat template: workload, capture and evaluate with --chat, and what is said without it."""
import csv
import io
import json

import h5py
from kvsim_command import SOURCE, CommandTest, main

SAMPLE = SOURCE / "traces" / "sample" / "model"
TEMPLATES = SOURCE / "tests" / "golden" / "chat"
BEFORE, AFTER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
MARKUP, QUESTION, CONTEXT, EVIDENCE = 1 << 1, 1 << 3, 1 << 4, 1 << 5
NOTE = "has a chat template, which kvsim does not apply"

# The first two lines are those of https://platform.openai.com/docs/guides/batch.
BATCH = """\
{"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-3.5-turbo-0125", "messages": \
[{"role": "system", "content": "You are a helpful assistant."},{"role": "user", "content": "Hello world!"}],"max_tokens": 1000}}
{"custom_id": "request-2", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt-3.5-turbo-0125", "messages": \
[{"role": "system", "content": "You are an unhelpful assistant."},{"role": "user", "content": "Hello world!"}],"max_tokens": 1000}}
{"custom_id": "request-3", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": \
[{"role": "user", "content": [{"type": "text", "text": "Who "}, {"type": "text", "text": "is it?"}]}], "max_completion_tokens": 20}}
{"custom_id": "request-4", "method": "POST", "url": "/v1/completions", "body": {"model": "m", "prompt": "Say this is a test", \
"max_tokens": 7}}
"""


class Chat(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, template in ("model", "chatml"), ("dated", "llama3_2"):
            (cls.folder / name).mkdir()
            for file in SAMPLE.iterdir():
                (cls.folder / name / file.name).symlink_to(file)
            (cls.folder / name / "chat_template.jinja").write_text((TEMPLATES / f"{template}.jinja").read_text())
        (cls.folder / "dated" / "tokenizer_config.json").unlink(missing_ok=True)
        (cls.folder / "dated" / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')

    def items(self, *more):
        made = self.ok("workload", "needle-multi-key", "--context", 300, "--count", 4, "--tokenizer", "model", *more)
        return [json.loads(line) for line in made.splitlines()]

    def write(self, name, items):
        (self.folder / name).write_text("".join(json.dumps(item) + "\n" for item in items))

    def captured(self, *more, model="model"):
        """Ids, flags and text of the prompt's tokens, the flags that are known, and what was said."""
        done = self.kvsim("capture", "--model", model, "--max-new-tokens", 1, "-o", "run.h5", "--overwrite", "--quiet", *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        with h5py.File(self.folder / "run.h5") as file:
            known, ids, flags = file["tokens"].attrs["flags_known"], file["tokens/id"][()], file["tokens/flags"][()]
            text, offsets = bytes(file["text/bytes"][()]), file["text/offset"][()]
            prompt = [i for i, segment in enumerate(file["tokens/segment"][()]) if segment == 0]
        spelled = [text[offsets[i]:offsets[i + 1]].decode() for i in prompt]
        return [int(ids[i]) for i in prompt], [int(flags[i]) for i in prompt], spelled, int(known), done.stderr

    def test_batches_for_the_api_of_openai(self):
        """The lines of the guide's batch.jsonl, a completion, and content in parts."""
        (self.folder / "batch.jsonl").write_text(BATCH)
        with_system = "<|im_start|>system\nYou are a{} assistant.<|im_end|>\n" + BEFORE + "Hello world!" + AFTER
        for item, text in (("request-1", with_system.format(" helpful")), ("request-2", with_system.format("n unhelpful")),
                           ("request-3", BEFORE + "Who is it?" + AFTER)):
            _, _, spelled, _, _ = self.captured("--prompt", "batch.jsonl", "--item", item, "--chat")
            self.assertEqual("".join(spelled), text)
        _, _, spelled, _, _ = self.captured("--workload", "batch.jsonl", "--item", "request-4", model=SAMPLE)
        self.assertEqual("".join(spelled), "<s>Say this is a test")
        self.assertIn("--chat", self.fails(2, "capture", "--model", "model", "--prompt", "batch.jsonl", "--item", "request-1", "-o", "no.h5"))
        for body, what in (({"prompt": ["a", "b"]}, "body prompt: expected messages"), ({"tools": []}, "line 1 body: holds no prompt"),
                           ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 'part of type "image_url"')):
            self.write("bad.jsonl", [{"custom_id": "a", "body": body}])
            self.assertIn(what, self.fails(3, "capture", "--model", "model", "--prompt", "bad.jsonl", "--chat", "-o", "no.h5"))

    def test_a_batch_is_a_log_of_requests_that_arrive_at_once(self):
        """Tokens are those that capture has; the system message that two of them share is a hit."""
        (self.folder / "batch.jsonl").write_text(BATCH)
        self.assertIn("--tokenizer", self.fails(2, "requests", "info", "batch.jsonl"))
        options = "batch.jsonl", "--tokenizer", "model", "--block-tokens", "4"
        ids = [self.captured("--prompt", "batch.jsonl", "--item", f"request-{i}", "--chat")[0] for i in range(1, 4)]
        ids.append(self.captured("--prompt", "batch.jsonl", "--item", "request-4")[0])
        shared = next(at for at, (a, b) in enumerate(zip(*ids[:2])) if a != b) // 4 * 4
        self.assertGreater(shared, 0)
        row, = csv.DictReader(self.ok("requests", "info", *options, "--format", "csv").splitlines())
        own = next(at for at, (a, b) in enumerate(zip(ids[0], ids[2])) if a != b) // 4 * 4
        self.assertEqual([row[key] for key in ("format", "requests", "prompt_tokens", "generated_tokens", "ceiling_tokens")],
                         ["openai", "4", str(sum(map(len, ids))), str(1000 + 1000 + 20 + 7), str(shared + own)])
        lines = [json.loads(line)["body"] | {"time": 0, "output": 1} for line in BATCH.splitlines()[:3]]
        self.write("own.jsonl", lines)
        theirs, = csv.DictReader(self.ok("requests", "info", "own.jsonl", "--from", "jsonl", "--fields", "prompt=messages", *options[1:],
                                         "--format", "csv").splitlines())
        self.assertEqual((theirs["prompt_tokens"], theirs["ceiling_tokens"]), (str(sum(map(len, ids[:3]))), row["ceiling_tokens"]))
        self.assertIn("grouped", self.ok("requests", "batch", *options, "--model", "llama-3.1-8b", "--machine", "h100-sxm", "--quiet"))

    def test_workload(self):
        for raw, item in zip(self.items(), self.items("--chat")):
            prefix = raw["prompt"].encode()[-raw["answer_prefix"]:].decode()  # << KEY: the answer begins with it
            self.assertTrue(prefix.startswith(" <<"))
            self.assertTrue(item["prompt"].startswith(BEFORE) and item["prompt"].endswith(AFTER + prefix))
            self.assertNotIn("chat", raw)
            self.assertEqual(len(item["chat"]), 64)
            self.assertTrue(280 < item["tokens"] <= 300, item["tokens"])
            self.assertEqual((item["expect"], item["answers"]), (raw["expect"], raw["answers"]))
            self.assertGreater(item["answer_tokens"], 0)
            part = {}
            at = 0
            for span in item["spans"]:
                if span["role"] != "evidence":  # the others cover every byte, in order
                    self.assertEqual(span["begin"], at)
                    at = span["end"]
                part.setdefault(span["role"], []).append(item["prompt"][span["begin"]:span["end"]])
            self.assertEqual(at, len(item["prompt"]))
            self.assertEqual(part["markup"], [BEFORE, AFTER])
            for role in "question", "evidence":
                self.assertEqual("".join(part[role]), "".join(raw["prompt"][s["begin"]:s["end"]] for s in raw["spans"] if s["role"] == role))

    def test_capture_and_cut(self):
        items = self.items("--chat")
        self.write("chat.jsonl", items)
        item = items[1]
        ids, flags, text, known, said = self.captured("--workload", "chat.jsonl", "--item", item["id"])
        self.assertNotIn(NOTE, said)
        self.assertEqual(len(ids), item["tokens"])
        self.assertEqual("".join(text), item["prompt"])
        self.assertEqual(known & (MARKUP | QUESTION | CONTEXT | EVIDENCE), MARKUP | QUESTION | CONTEXT | EVIDENCE)
        for flag, role in (MARKUP, "markup"), (QUESTION, "question"), (EVIDENCE, "evidence"):
            wanted, at = set(), 0
            for span in item["spans"]:
                if span["role"] == role:
                    wanted.update(range(span["begin"], span["end"]))
            for token, spelling in enumerate(text):
                end = at + len(spelling.encode())
                self.assertEqual(bool(flags[token] & flag), not wanted.isdisjoint(range(at, end)), (role, token))
                at = end
        rows = list(csv.DictReader(io.StringIO(self.ok("replay", "run.h5", "--policy", "h2o", "--budget", "100%", "--cut", "question", "--format", "csv", "--quiet"))))
        context = max(i for i, flag in enumerate(flags) if flag & CONTEXT) + 1
        self.assertEqual({int(row["budget_tokens"]) for row in rows}, {context})

    def test_texts_and_conversations(self):
        (self.folder / "text.txt").write_text("What is this?")
        said = self.captured("--prompt", "text.txt")[4]
        self.assertEqual(said.count(NOTE), 1)
        self.assertIn("--chat applies it", said)
        ids, flags, text, known, said = self.captured("--prompt", "text.txt", "--chat")
        self.assertNotIn(NOTE, said)
        self.assertEqual("".join(text), BEFORE + "What is this?" + AFTER)
        self.assertEqual(known & (MARKUP | QUESTION | CONTEXT), MARKUP)
        marked = "".join(t for t, flag in zip(text, flags) if flag & MARKUP)
        self.assertIn("<|im_start|>user", marked)
        self.assertNotIn("What", marked)
        (self.folder / "chat.json").write_text(json.dumps([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
                                                           {"role": "user", "content": "Who?"}]))
        _, flags, text, known, _ = self.captured("--prompt", "chat.json", "--chat")
        self.assertEqual("".join(text), BEFORE + "Hi" + AFTER + "Hello<|im_end|>\n" + BEFORE + "Who?" + AFTER)
        self.assertEqual("".join(t for t, flag in zip(text, flags) if flag & QUESTION), "Who?")
        self.assertEqual(known & (MARKUP | QUESTION | CONTEXT), MARKUP | QUESTION | CONTEXT)
        (self.folder / "other.json").write_text('[{"role": "assistant", "content": "Hi"}]')
        self.assertIn("message 0 is not one of the user", self.fails(3, "capture", "--model", "model", "--prompt", "other.json", "--chat", "-o", "x.h5"))

    def test_evaluate(self):
        def answers(*more):
            done = self.kvsim("evaluate", "--model", "model", "--policy", "h2o", "--budget", "50%", "--format", "csv", "--mode", "greedy", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout, done.stderr
        raw = self.items()[:2]
        self.write("raw.jsonl", raw)
        through, said = answers("--workload", "raw.jsonl", "--chat", "--max-new-tokens", 4)
        self.assertNotIn(NOTE, said)
        made = []
        for item in raw:
            # The bytes that begin the answer follow the template's opening of it; the question is on both sides.
            asked = len(item["prompt"]) - item["answer_prefix"]
            spans = [span | {"begin": span["begin"] + len(BEFORE), "end": min(span["end"], asked) + len(BEFORE)} for span in item["spans"]
                     if span["begin"] < asked]
            spans.append({"begin": len(BEFORE) + asked + len(AFTER), "end": len(BEFORE) + len(item["prompt"]) + len(AFTER), "role": "question"})
            made.append(item | {"prompt": BEFORE + item["prompt"][:asked] + AFTER + item["prompt"][asked:], "spans": spans, "tokens": 0,
                                "chat": self.items("--chat")[0]["chat"]})
        self.write("made.jsonl", made)
        self.assertEqual(through, answers("--workload", "made.jsonl", "--max-new-tokens", 4)[0])
        self.assertIn(NOTE, answers("--workload", "raw.jsonl", "--max-new-tokens", 4)[1])
        self.assertNotIn(NOTE, answers("--workload", "raw.jsonl", "--max-new-tokens", 4, "--quiet")[1])
        self.assertIn("went through a chat template when it was made", self.fails(2, "evaluate", "--model", "model", "--workload", "made.jsonl", "--chat", "--policy", "h2o", "--budget", "50%"))

    def test_what_is_refused(self):
        (self.folder / "none.jsonl").write_text(json.dumps({"id": "a", "prompt": "b", "spans": [], "tokens": 0, "answers": []}) + "\n")
        self.assertIn("has no chat template", self.fails(3, "capture", "--model", SAMPLE, "--workload", "none.jsonl", "--chat", "-o", "x.h5"))
        self.assertIn("has no chat template", self.fails(3, "workload", "needle", "--context", 200, "--chat", "--tokenizer", SAMPLE))
        self.assertIn("--chat", self.fails(2, "capture", "--model", "model", "--tokens", "ids.json", "--chat", "-o", "x.h5"))
        self.assertIn("26 Jul 2024", self.captured("--workload", "none.jsonl", "--chat", model="dated")[4])
        template = self.folder / "model" / "chat_template.jinja"
        known = template.read_text()
        try:
            template.write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}")
            self.assertIn('AutoTokenizer.from_pretrained("model").apply_chat_template(messages', self.fails(3, "capture", "--model", "model", "--workload", "none.jsonl", "--chat", "-o", "x.h5"))
            self.assertIn("apply_chat_template", self.captured("--workload", "none.jsonl")[4])
        finally:
            template.write_text(known)

    def test_two_begins_are_told_of_once(self):
        self.write("begin.jsonl", [{"id": name, "prompt": "<s>Some text", "spans": [], "tokens": 0, "answers": []} for name in ("a", "b")])
        said = self.captured("--workload", "begin.jsonl", "--item", "a", model=SAMPLE)
        self.assertEqual(said[0][0], said[0][1])
        self.assertEqual(said[4].count("which the tokenizer puts before every text: the model reads it twice"), 1)
        done = self.kvsim("evaluate", "--model", SAMPLE, "--workload", "begin.jsonl", "--policy", "h2o", "--budget", "50%", "--quiet")
        self.assertEqual(done.stderr.count("the model reads it twice"), 1)
        self.write("plain.jsonl", [{"id": "a", "prompt": "Some text", "spans": [], "tokens": 0, "answers": []}])
        self.assertNotIn("twice", self.captured("--workload", "plain.jsonl", model=SAMPLE)[4])


if __name__ == "__main__":
    main()
