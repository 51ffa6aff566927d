#!/usr/bin/env python3
"""Tests kvsim requests: info, check, convert and generate."""
import csv
import gzip
import hashlib
import io
import json
import re

import kvsim_command
from kvsim_command import SOURCE, CommandTest, columns_of

SAMPLE = SOURCE / "traces" / "sample" / "requests" / "mooncake_conversation.jsonl.gz"


def mooncake(*lines):
    return "".join(json.dumps({"timestamp": t, "input_length": n, "output_length": 1, "hash_ids": ids}) + "\n" for t, n, ids in lines)


class Requests(CommandTest):
    def setUp(self):
        for path in self.folder.glob("*.json*"):
            path.unlink()

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def row(self, *arguments):
        (row,) = csv.DictReader(io.StringIO(self.ok("requests", "info", *arguments, "--format", "csv")))
        return row

    def test_the_sample_is_the_published_file(self):
        lines = [line for line in (SOURCE / "traces" / "sample" / "README.md").read_text().splitlines() if "sha256" in line]
        for column, path in enumerate([SAMPLE, SAMPLE.with_name("mooncake_synthetic.jsonl.gz")]):
            stated = [line.split("`")[1 + 2 * column] for line in lines]
            self.assertEqual([hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest(),
                              hashlib.sha256(path.read_bytes()).hexdigest()], stated)

    def test_info_counts_as_python_does(self):
        seen, hits, half, tokens, elsewhere = set(), 0, [0, 0], 0, 0
        lines = gzip.decompress(SAMPLE.read_bytes()).decode().splitlines()
        for i, line in enumerate(lines):
            request = json.loads(line)
            run = 0
            for place, block in enumerate(request["hash_ids"]):
                if block not in seen:
                    break
                run += min(512, request["input_length"] - 512 * place)
            elsewhere += sum(min(512, request["input_length"] - 512 * place) for place, block in enumerate(request["hash_ids"])
                             if block in seen) - run
            seen.update(request["hash_ids"])
            hits += run
            tokens += request["input_length"]
            if i >= len(lines) // 2:
                half[0] += run
                half[1] += request["input_length"]
        row = self.row(SAMPLE)
        self.assertEqual([int(row[key]) for key in ("requests", "distinct_blocks", "prompt_tokens", "ceiling_tokens",
                                                    "half_ceiling_tokens", "half_tokens")],
                         [len(lines), len(seen), tokens, hits, *half])
        self.assertEqual(float(row["ceiling"]), hits / tokens)
        self.assertEqual(row["elsewhere_tokens"], "")
        self.assertEqual(self.row(SAMPLE, "--hash", "content")["elsewhere_tokens"], str(elsewhere))
        text = self.ok("requests", "info", SAMPLE)
        self.assertIn(f"({hits} of {tokens} prompt tokens)", text)

    def test_what_there_is_none_of_is_null(self):
        """One request has no gap to another, and of one token no time per further token."""
        (self.folder / "one.jsonl").write_text('{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1]}\n')
        served = ["--model", "llama-3.1-8b", "--machine", "h100-sxm"]
        for verb, absent, there in (["info"], "gap", "prompt"), (["serve", *served], "tpot", "ttft"):
            row, = json.loads(self.ok("requests", verb[0], "one.jsonl", *verb[1:], "--quiet", "--format", "json"))["results"]
            for part in "mean", "p50", "p90", "p99", "max":
                self.assertIsNone(row[f"{absent}_{part}"])
                self.assertGreater(row[f"{there}_{part}"], 0)
        self.assertNotIn("gaps", self.ok("requests", "info", "one.jsonl"))

    def test_columns_are_those_that_are_promised(self):
        served = ["--model", "llama-3.1-8b", "--machine", "h100-sxm", "--limit", "20", "--quiet"]
        for command in ["info", SAMPLE], ["batch", SAMPLE, *served], ["serve", SAMPLE, *served], ["serve", SAMPLE, *served, "--each"]:
            columns = self.ok("requests", *command, "--format", "csv").splitlines()[0].split(",")
            self.assertEqual(columns, columns_of(f"requests {command[0]}" + (" --each" if "--each" in command else "")))

    def test_info_of_several_traces(self):
        a = self.write("a.jsonl", mooncake((0, 600, [0, 1]), (5, 600, [0, 2])))
        b = self.write("b.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,7,2\n")
        rows = json.loads(self.ok("requests", "info", a, b, "--format", "json"))["results"]
        self.assertEqual([row["format"] for row in rows], ["mooncake", "vidur"])
        self.assertEqual([row["ceiling_tokens"] for row in rows], [512, None])
        self.assertIn("without ids of blocks", self.ok("requests", "info", b))

    def test_check_lists_bad_lines(self):
        name = self.write("bad.jsonl", mooncake((9, 600, [0, 1]), (5, 600, [0, 2]), (9, 600, [3, 1]), (9, 9000, [0])) + "{\n")
        done = self.kvsim("requests", "check", name)
        self.assertEqual(done.returncode, 3)
        for line, words in (2, "arrives before"), (3, "another prefix"), (4, "the line has 1 ids"), (5, "JSON"):
            self.assertRegex(done.stdout, f"line {line}: .*{words}")
        self.assertIn("BAD in 4 lines", done.stdout)
        self.assertIn("and 3 more", self.kvsim("requests", "check", name, "--most", 1).stdout)
        self.assertIn("sound (mooncake, 12031 requests, 288500 blocks)", self.ok("requests", "check", SAMPLE))

    def test_check_says_what_info_says_where_every_line_is_bad(self):
        name = self.write("sizes.jsonl", '{"timestamp":0,"input_length":10,"output_length":5,"hash_ids":[1,2]}\n')
        done = self.kvsim("requests", "check", name)
        self.assertEqual(done.returncode, 3)
        self.assertIn("line 1: 10 tokens are 0 or 1 block of 512 tokens, but the line has 2 ids", done.stdout)
        for message in done.stdout, self.fails(3, "requests", "info", name):
            self.assertIn("--block-tokens N", message)
        self.assertIn("sound", self.ok("requests", "check", name, "--block-tokens", "5"))
        self.assertIn("has no requests", self.fails(3, "requests", "check", self.write("empty.jsonl", "")))

    def test_a_request_without_a_prompt_is_bad_everywhere(self):
        name = self.write("none.jsonl", mooncake((0, 600, [0, 1]), (1, 0, [])))
        served = "requests", "serve", name, "--model", "llama-3.1-8b", "--machine", "h100-sxm"
        for command in ("requests", "info", name), ("requests", "replay", name), served:
            message = self.fails(3, *command)
            for words in "none.jsonl line 2", "a request without a prompt", "leave the line out":
                self.assertIn(words, message)
        self.assertIn("line 2: a request without a prompt", self.kvsim("requests", "check", name).stdout)

    def test_chunk_hashes_of_lmcache_need_the_size_of_a_chunk(self):
        log = [{"timestamp": 1700000000.5 + i, "lookup_id": str(i), "chunk_hashes": hashes}
               for i, hashes in enumerate([["0x1", "0x2"], ["0x1", "0x2", "0x3"]])]
        name = self.write("chunk_hashes_1700000000_000000.jsonl", "".join(json.dumps(line) + "\n" for line in log))
        message = self.fails(3, "requests", "info", name)
        for words in "line 1", "chunk_hashes without chunk_size", "--block-tokens 256":
            self.assertIn(words, message)
        row = self.row(name, "--block-tokens", "256")
        self.assertEqual((row["format"], row["prompt_tokens"], row["ceiling_tokens"]), ("lmcache", str(5 * 256), str(2 * 256)))

    @staticmethod
    def dynamo(received, ended, tokens, hashes, session=None):
        record = {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": ended,
                  "request": {"request_id": f"{received}-{ended}", "model": "m", "output_tokens": 4, "request_received_ms": received,
                              "replay": {"trace_block_size": 2, "input_length": tokens, "input_sequence_hashes": hashes}}}
        return record | ({"agent_context": {"session_id": session}} if session else {})

    def test_dynamo_writes_requests_when_they_end(self):
        """As types.rs of Dynamo's request traces serialises them; the recorder of its files wraps each record."""
        tool = {"schema": "dynamo.request.trace.v1", "event_type": "tool_end", "event_time_unix_ms": 3000,
                "tool": {"tool_call_id": "t", "tool_class": "c"}}
        records = [self.dynamo(2000, 2500, 4, [2**64 - 1, 22]), tool, self.dynamo(1000, 3000, 3, [2**64 - 1, 33], "s"),
                   self.dynamo(4000, 5000, 5, [2**64 - 1, 55, 44], "s")]
        plain = self.write("d.jsonl", "".join(json.dumps(record) + "\n" for record in records))
        wrapped = self.write("w.jsonl", "".join(json.dumps({"timestamp": 7, "event": record}) + "\n" for record in records))
        row = self.row(plain)
        self.assertEqual([row[key] for key in ("format", "requests", "prompt_tokens", "ceiling_tokens")], ["dynamo", "3", "12", str(2 + 2)])
        self.assertEqual({**self.row(wrapped), "trace": ""}, {**row, "trace": ""})
        self.ok("requests", "convert", plain, "--to", "bailian", "-o", "b.jsonl")
        lines = [json.loads(line) for line in (self.folder / "b.jsonl").read_text().splitlines()]
        self.assertEqual([line["input_length"] for line in lines], [3, 4, 5])
        self.assertEqual(lines[2]["parent_chat_id"], lines[0]["chat_id"])
        overlapping = self.write("o.jsonl", "".join(json.dumps(record) + "\n" for record in [
            self.dynamo(2000, 2500, 2, [1], "s"), self.dynamo(1000, 3000, 2, [2], "s")]))
        self.assertEqual(self.row(overlapping)["requests"], "2")
        bare = self.dynamo(1, 2, 2, [1])
        del bare["request"]["replay"]
        self.assertIn("has no hashes of its blocks", self.fails(3, "requests", "info", self.write("x.jsonl", json.dumps(bare) + "\n")))

    def test_fields_of_ones_own_log_may_lie_in_objects(self):
        """As OpenAI's API answers: created, usage.prompt_tokens, usage.completion_tokens."""
        lines = [{"id": f"c{i}", "created": 1700000000 + i, "usage": {"prompt_tokens": 90 + i, "completion_tokens": 7}} for i in range(3)]
        name = self.write("api.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
        message = self.fails(3, "requests", "info", name)
        self.assertIn("--from jsonl --fields time=NAME,prompt=NAME,output=NAME", message)
        fields = "--from", "jsonl", "--fields", "time=created,prompt=usage.prompt_tokens,output=usage.completion_tokens"
        row = self.row(name, *fields)
        self.assertEqual([row[key] for key in ("requests", "prompt_tokens")], ["3", str(90 + 91 + 92)])
        self.assertIn('usage: missing "tokens"', self.fails(3, "requests", "info", name, *fields[:3],
                                                             "time=created,prompt=usage.tokens,output=usage.completion_tokens"))

    def test_events_of_a_cache_are_no_requests(self):
        event = {"timestamp": 5, "event": {"worker_id": 1, "event": {"event_id": 0, "data": {"removed": {"block_hashes": [7]}}}}}
        stored = {"block_hashes": [11], "parent_block_hash": None, "token_ids": [1, 2], "block_size": 2, "lora_id": None}
        for line in (event, {"type": "BlockStored", **stored}, {"ts": 1.5, "events": [{"type": "BlockStored", **stored}]},
                     [1.5, [["BlockRemoved", [11], "GPU"]], 0]):  # of Dynamo; of vLLM as objects, in a batch, as its arrays
            message = self.fails(3, "requests", "info", self.write("kv.jsonl", json.dumps(line) + "\n"))
            for words in "what was stored and not what was asked for", 'kvsim.vllm.record(llm, None, log="requests.jsonl")':
                self.assertIn(words, message)
            if isinstance(line, dict):
                message = self.fails(3, "capture", "--model", SOURCE / "traces/sample/model", "--prompt", "kv.jsonl", "-o", "no.h5")
                for words in "what was stored and not what was asked for", 'kvsim.vllm.record(llm, "out-{request}.h5")':
                    self.assertIn(words, message)

    def test_the_files_of_a_folder_are_one_log(self):
        lines = mooncake((0, 600, [0, 1]), (5, 600, [0, 2]), (9, 600, [0, 1])).splitlines(keepends=True)
        folder = self.folder / "rotated"
        folder.mkdir()
        (folder / "log.000000.jsonl.gz").write_bytes(gzip.compress(lines[0].encode()))
        (folder / "log.000001.jsonl").write_text("")
        (folder / "log.000002.jsonl").write_text("".join(lines[1:]))
        whole = self.write("whole.jsonl", "".join(lines))
        self.assertEqual({**self.row("rotated"), "trace": ""}, {**self.row(whole), "trace": ""})
        (folder / "log.000003.jsonl").write_text(mooncake((3, 600, [0, 1])))
        self.assertIn("rotated/* line 4: arrives before", self.fails(3, "requests", "info", "rotated"))
        (folder / "inner").mkdir()
        self.assertIn("is no file of a log", self.fails(3, "requests", "info", "rotated"))
        tables = self.folder / "tables"
        tables.mkdir()
        for i in range(2):
            (tables / f"{i}.csv").write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{i},7,2\n")
        self.assertEqual(self.row("tables")["requests"], "2")

    def test_convert_repairs_the_order(self):
        name = self.write("mixed.jsonl", mooncake((9, 600, [7, 8]), (5, 600, [7, 6])))
        self.assertIn("--sort", self.fails(3, "requests", "info", name))
        self.ok("requests", "convert", name, "--sort", "-o", "sorted.jsonl")
        self.assertEqual((self.folder / "sorted.jsonl").read_text(), mooncake((5, 600, [0, 1]), (9, 600, [0, 2])))

    def test_convert_keeps_the_sample_and_refuses_what_cannot_be_said(self):
        self.ok("requests", "convert", SAMPLE, "-o", "copy.jsonl.gz")
        self.assertEqual(gzip.decompress((self.folder / "copy.jsonl.gz").read_bytes()), gzip.decompress(SAMPLE.read_bytes()))
        session = {"session_id": "s", "arrival_time_ns": 0, "sub_requests": [{"input_toks": 4, "output_toks": 2}] * 2}
        name = self.write("session.jsonl", json.dumps(session) + "\n")
        self.assertIn("--to bailian", self.fails(2, "requests", "convert", name, "--to", "mooncake", "-o", "no.jsonl"))
        self.assertFalse((self.folder / "no.jsonl").exists())
        self.ok("requests", "convert", name, "-o", "turns.jsonl")
        self.assertEqual(self.row("turns.jsonl")["waiting"], "1")
        self.assertIn("stands behind another prefix",
                      self.fails(3, "requests", "convert", self.write("x.jsonl", mooncake((0, 600, [0, 1]), (0, 600, [2, 1]))),
                                 "-o", "no.jsonl"))

    def test_generate_is_the_same_for_the_same_seed(self):
        more = "--requests", 300, "--block-tokens", 64, "--mix", "chat=0.5,agent=0.5"
        self.ok("requests", "generate", *more, "-o", "a.jsonl")
        self.ok("requests", "generate", *more, "-o", "b.jsonl.gz")
        self.ok("requests", "generate", *more, "--seed", 2, "-o", "c.jsonl")
        a = (self.folder / "a.jsonl").read_bytes()
        self.assertEqual(gzip.decompress((self.folder / "b.jsonl.gz").read_bytes()), a)
        self.assertNotEqual((self.folder / "c.jsonl").read_bytes(), a)
        self.assertEqual(self.row("a.jsonl")["requests"], "300")
        self.assertIn("sound", self.ok("requests", "check", "a.jsonl"))
        self.assertIn("exists already", self.fails(2, "requests", "generate", "-o", "a.jsonl"))

    def test_generated_bytes_are_those_of_every_machine(self):
        """No draw depends on a library of mathematics: the digest was taken once, with GCC 12."""
        self.ok("requests", "generate", "--requests", 2000, "--arrivals", "bursty", "-o", "g.jsonl")
        digest = hashlib.sha256((self.folder / "g.jsonl").read_bytes()).hexdigest()
        self.assertEqual(digest, "7dcc05b4c25fa0d02512f4882714736cc862cf27686d1b2cbf2f8cb67795750d")

    def test_like_keeps_the_sharing(self):
        self.ok("requests", "generate", "--like", SAMPLE, "-o", "like.jsonl.gz")
        like, sample = self.row("like.jsonl.gz"), self.row(SAMPLE)
        same = ["requests", "end", "prompt_tokens", "generated_tokens", "blocks", "distinct_blocks", "seen_once", "widest",
                "top_reuse", "ceiling", "half_ceiling_tokens", "gap_cv"]
        self.assertEqual([like[key] for key in same], [sample[key] for key in same])
        self.assertNotEqual(gzip.decompress((self.folder / "like.jsonl.gz").read_bytes()), gzip.decompress(SAMPLE.read_bytes()))
        self.assertIn("means nothing with --like",
                      self.fails(2, "requests", "generate", "--like", SAMPLE, "--rate", 2, "-o", "no.jsonl"))

    def test_mistakes_are_answered(self):
        name = self.write("a.jsonl", mooncake((0, 600, [0, 1])))
        self.assertIn("Did you mean chat", self.fails(2, "requests", "generate", "--mix", "caht=1", "-o", "no.jsonl"))
        self.assertIn("Did you mean chat_turns", self.fails(2, "requests", "generate", "--shape", "chat_turn=2", "-o", "no.jsonl"))
        self.assertIn("Did you mean mooncake", self.fails(2, "requests", "info", name, "--from", "moncake"))
        self.assertIn("block-tokens", self.fails(3, "requests", "info", name, "--block-tokens", 16))
        self.assertIn("cannot be opened", self.fails(3, "requests", "info", "none.jsonl"))

    def test_the_help_describes_every_format(self):
        formats = re.findall(r"(?m)^  ([a-z-]+) {2,}\S", self.ok("requests", "--help").split("Formats:\n")[1])
        self.assertEqual(formats, re.search(r"--from (\S+)", self.ok("requests", "info", "--help"))[1].split("|"))


if __name__ == "__main__":
    kvsim_command.main()
