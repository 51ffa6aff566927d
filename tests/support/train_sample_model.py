#!/usr/bin/env python3
"""Train kvsim's sample model: a small Llama (GQA, RoPE, SwiGLU) that has learned to look back.

Sub-commands, in the order they are used (WORK is a scratch folder outside the repository):

  data    WORK             collect text from this Debian 12 system, split it by whole files into
                           train and held-out parts, train the byte-level BPE tokenizer, encode.
  train   WORK             train; resumes from WORK/ckpt.pt when it exists; logs to stdout.
  export  WORK DIR         write config.json, tokenizer.json, model.safetensors (bf16) to DIR.
  eval    WORK DIR         evaluate the *exported* weights in fp32: held-out loss, answers found at
                           512/1024/2048 tokens, attention facts. Prints JSON.
  prompts WORK DIR OUT     write the sample prompts and answers.json, judged with the model in DIR.
  check   WORK DIR         compare with transformers' LlamaForCausalLM (needs `transformers`).

Debian packages whose text is used (apt-get install them first): python3-doc perl-doc manpages
manpages-dev bash-doc debian-handbook debian-policy, and what a development image already has
(python3 standard library, perl modules, libc and linux headers, man pages, /usr/share/doc).
Python packages: torch, numpy, tokenizers, safetensors.

On a shared CPU set OMP_WAIT_POLICY=passive, GLIBC_TUNABLES=glibc.malloc.hugetlb=1, MALLOC_ARENA_MAX=1,
MALLOC_MMAP_MAX_=0, MALLOC_TRIM_THRESHOLD_=20000000000, MALLOC_TOP_PAD_=500000000: page faults cost a third.

Everything is seeded (--seed); threads, instruction set and the resume points change the low bits.
"""
import argparse, glob, gzip, hashlib, html, json, math, os, random, re, sys, time

import numpy as np

# ---------------------------------------------------------------------------------------------
# Shape (frozen: kvsim's tests read the exported checkpoint)
CFG = dict(vocab_size=2048, hidden_size=256, intermediate_size=768, num_hidden_layers=4,
           num_attention_heads=8, num_key_value_heads=4, head_dim=64, rope_theta=100000.0,
           rms_norm_eps=1e-5, max_position_embeddings=2048)

WORDS = """apple river tiger piano castle lemon violin desert falcon marble copper velvet anchor
banana candle dragon eagle forest garden hammer island jungle kettle ladder magnet needle ocean
pepper quartz rabbit saddle temple umbrella valley walnut zebra amber basket camel daisy ember
ferry goose honey igloo jacket koala lantern mango nectar olive panda quilt raven salmon tulip
urchin vulture wagon yacht acorn badger cactus dolphin elbow fiddle gravel hazel iris jasmine
kitten lobster maple nutmeg orchid pebble radish silver turtle violet whale beaver cherry donkey
emerald feather ginger helmet ivory jewel lizard meadow onion parrot rocket scarlet thunder vessel
willow barley cotton dagger engine flute giraffe hornet indigo juniper knight lotus mirror noodle
otter pirate rubber spider trumpet vanilla wizard almond bamboo canyon dinner fabric galaxy harbor
insect jaguar lagoon monkey oyster puppet ribbon sunset tomato velcro window bishop carrot diamond
elephant fossil goblin hunter infant jockey lettuce mustard ostrich pillow rooster sailor tunnel
winter autumn butter coffee doctor family guitar hockey kidney leather mother nurse palace queen
rhythm sugar tailor uncle voyage wheat bread chalk drum fruit grape horse juice lamp moon nest
opera pearl robot shark train wolf bear cloud dance earth flame glass heart ink jelly kite leaf
music night oak plum rain snow tree vine wine zinc arrow bell corn deer elm fig gold hawk iron
jade knee lime milk nose oven pine rose salt toad urn vase wax yarn atom bone clay duck fern
goat hill lace mint opal pond rice seal tent wand yeast bacon cedar dove fox gull hen lark
mole newt peach skunk swan trout viper wasp crane crow bronze cobalt nickel pewter steel
tin satin silk linen wool denim suede tweed plaid lilac mauve olive teal peony poppy aster
clover thistle nettle moss lichen acacia birch poplar cypress walrus panther leopard cougar
bison moose gazelle antelope hamster ferret weasel hedgehog squirrel sparrow pigeon finch robin
magpie puffin pelican heron stork tango waltz polka banjo cello harp oboe sitar bugle organ
barn cabin tower bridge church school market bakery museum library kitchen attic cellar balcony
pencil crayon ruler eraser paper ticket wallet purse basin bucket barrel bottle goblet saucer""".split()

MARK_L, MARK_R = " <<", " >>"


# ---------------------------------------------------------------------------------------------
# Text
def unroff(s):
    out = []
    for line in s.split("\n"):
        if line.startswith((".\\\"", "'\\\"", ".de", "..", ".ie", ".el", ".if", ".ds", ".nr", ".\\}")):
            continue
        m = re.match(r"[.'](SH|SS)\s+(.*)", line)
        if m:
            out.append("\n" + m.group(2).strip('"'))
            continue
        m = re.match(r"[.'](TP|PP|P|LP|IP|sp|HP|RS|RE|fi|nf|EX|EE|in|ad|na|hy|TQ|br|UE|UR|MT|ME)\b", line)
        if m:
            out.append("" if m.group(1) in ("PP", "P", "LP", "sp", "TP", "IP") else None)
            continue
        m = re.match(r"[.'](B|I|BR|RB|IR|RI|BI|IB|SM|SB|Nm|Fl|Ar|Xr|Pa|Dv|Em|Sy|Cm|Op|Fa|Fn|It|Va|Li|Ev)\s+(.*)", line)
        if m:
            line = re.sub(r'"([^"]*)"', r"\1", m.group(2))
        elif line[:1] in ".'":
            continue
        if "\\h'" in line:
            continue
        line = re.sub(r"\\f\(..|\\f\[[^]]*\]|\\f.|\\s[-+]?\d", "", line)
        line = re.sub(r"\\\((..)", lambda m: {"em": "--", "en": "-", "aq": "'", "dq": '"', "bu": "*", "co": "(c)",
                                               "lq": '"', "rq": '"', "cq": "'", "oq": "'", "ha": "^", "ti": "~", "rs": "\\"}.get(m.group(1), ""), line)
        line = re.sub(r"\\\*\(..|\\\*\[[^]]*\]|\\\[[^]]*\]", "", line)
        line = line.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\").replace("\\ ", " ").replace("\\|", "").replace("\\,", "").replace("\\/", "").replace("\\%", "").replace("\\:", "")
        out.append(line)
    return "\n".join(x for x in out if x is not None)


def unhtml(s):
    s = re.sub(r"(?is)<(script|style|head).*?</\1>", " ", s)
    s = re.sub(r"(?i)</(p|div|h\d|li|dt|dd|tr|pre)>|<br[^>]*>", "\n", s)
    s = html.unescape(re.sub(r"(?s)<[^>]+>", "", s))
    return "\n".join(x.strip() for x in s.split("\n"))


SOURCES = [  # (name, glob patterns, filter, cap in bytes, licence note)
    ("python3-doc", ["/usr/share/doc/python3.11/html/_sources/**/*.txt"], None, 14e6, "PSF-2.0, documentation examples also 0BSD"),
    ("perl-doc", ["/usr/share/perl/**/*.pod"], None, 8e6, "GPL-1.0-or-later or Artistic-1.0-Perl"),
    ("debian-handbook", ["/usr/share/doc/debian-handbook/html/en-US/*.html"], unhtml, 4e6, "GPL-2.0-or-later or CC-BY-SA-3.0"),
    ("debian-policy", ["/usr/share/doc/debian-policy/*.txt.gz"], None, 3e6, "GPL-2.0-or-later"),
    ("manpages", ["/usr/share/man/man%d/*.gz" % i for i in (2, 3, 4, 5, 7, 8, 1)], unroff, 11e6, "as each page says; manpages: mostly Linux-man-pages-copyleft, GPL-2.0+, BSD, MIT"),
    ("python3 stdlib", ["/usr/lib/python3.11/**/*.py"], None, 7e6, "PSF-2.0"),
    ("perl modules", ["/usr/share/perl/**/*.pm"], None, 3e6, "GPL-1.0-or-later or Artistic-1.0-Perl"),
    ("headers", ["/usr/include/*.h", "/usr/include/linux/*.h", "/usr/include/x86_64-linux-gnu/**/*.h", "/usr/include/c++/12/**/*.h"], None, 3e6, "LGPL-2.1+ (glibc), GPL-2.0 WITH Linux-syscall-note, GPL-3.0+ WITH GCC-exception"),
    ("licences", ["/usr/share/common-licenses/*"], None, 1e6, "verbatim copying permitted"),
    ("doc folders", ["/usr/share/doc/*/README*", "/usr/share/doc/*/NEWS*", "/usr/share/doc/*/*.txt*", "/usr/share/doc/bash-doc/**/*", "/usr/share/doc/bash/*"], None, 4e6, "as each package's copyright file says"),
]


PERLMAN = re.compile(r"perl\.gz$|3pm\.gz$|/man1/(perl|c\+\+|g\+\+|gcc|x86_64)")  # the same text as the pods: would leak across the split


def collect(seed):
    seen_par, seen_real, stats, train, held = set(), set(), {}, [], []
    for name, pats, filt, cap, lic in SOURCES:
        files = sorted({f for p in pats for f in glob.glob(p, recursive=True)})
        random.Random(seed).shuffle(files)
        tot = [0, 0, 0, 0]
        for f in files:
            if sum(tot[:2]) > cap:
                break
            r = os.path.realpath(f)
            if r in seen_real or not os.path.isfile(r) or "/test" in f or "/idlelib/" in f or "encodings/" in f or "/lib2to3/" in f or "pydoc_data" in f or PERLMAN.search(f):
                continue
            seen_real.add(r)
            try:
                b = gzip.open(r).read(2_000_000) if r.endswith(".gz") else open(r, "rb").read(2_000_000)
                s = b.decode("utf-8")
            except Exception:
                continue
            if "\0" in s or s.startswith(".so ") or len(s) < 400:
                continue
            if filt:
                s = filt(s)
            if sum(ord(c) < 128 for c in s) < 0.985 * len(s):
                continue
            s = s.replace("\r", "").replace("\t", "    ")
            keep = []
            for p in re.split(r"\n\s*\n", s):  # drop paragraphs seen before (licence texts, boilerplate)
                h = hashlib.md5(re.sub(r"\W+", " ", p).encode()).digest()[:8]
                if len(p) > 60:
                    if h in seen_par:
                        continue
                    seen_par.add(h)
                keep.append(p.strip("\n"))
            s = re.sub(r"\n{3,}", "\n\n", "\n\n".join(keep))[:160_000]
            if len(s) < 400:
                continue
            is_held = int(hashlib.md5(f.encode()).hexdigest(), 16) % 40 == 0
            (held if is_held else train).append((f, s))
            tot[is_held] += len(s.encode()); tot[2 + is_held] += 1
        stats[name] = dict(train_bytes=tot[0], held_bytes=tot[1], train_files=tot[2], held_files=tot[3], licence=lic)
        print(name, stats[name], flush=True)
    return train, held, stats


def cmd_data(a):
    from tokenizers import Tokenizer, models, pre_tokenizers, decoders, processors, trainers
    os.makedirs(a.work, exist_ok=True)
    train, held, stats = collect(a.seed)
    rng = random.Random(a.seed)
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tok.decoder = decoders.ByteLevel()
    words = sorted(set(WORDS))

    def it():
        some = list(train); rng.shuffle(some); n = 0
        for _, s in some:
            n += len(s); yield s
            if n > 16e6:
                break
        for _ in range(4000):  # the generated tasks are text too: their words become single tokens
            w = list(words); rng.shuffle(w)
            yield "".join("%s %s%s" % (MARK_L, x, MARK_R) for x in w)
    tr = trainers.BpeTrainer(vocab_size=CFG["vocab_size"], special_tokens=["<s>", "</s>"], show_progress=False,
                             initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(it(), tr)
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)])
    tok.save(os.path.join(a.work, "tokenizer.json"))
    one = lambda w: len(tok.encode(w, add_special_tokens=False).ids) == 1
    good = [w for w in words if one(" " + w)]
    rng.shuffle(good)
    n = len(good) // 2
    json.dump(dict(keys=good[:n], values=good[n:]), open(os.path.join(a.work, "words.json"), "w"))
    info = dict(stats=stats, n_words=len(good), held_files=[f for f, _ in held])
    for nm, part in (("train", train), ("held", held)):
        rng.shuffle(part)
        ids, nb, offs = [], 0, []
        for e, (f, s) in zip(tok.encode_batch([s for _, s in part], add_special_tokens=False), part):
            offs.append(len(ids)); ids.extend(e.ids); ids.append(1); nb += len(s.encode())
        np.save(os.path.join(a.work, nm + ".npy"), np.array(ids, np.uint16))
        info[nm] = dict(tokens=len(ids), bytes=nb, files=len(part))
        if nm == "held":
            json.dump([[f, s] for f, s in part], open(os.path.join(a.work, "held.json"), "w"))
    json.dump(info, open(os.path.join(a.work, "data.json"), "w"), indent=1)
    print(len(good), "single-token words;", info["train"], info["held"], "markers single:", one(MARK_L), one(MARK_R))


# ---------------------------------------------------------------------------------------------
# Sequences. Every generator returns (ids, weight) with len T+1; weight[i] weighs predicting ids[i].
class Gen:
    def __init__(self, work, split, seed):
        from tokenizers import Tokenizer
        self.tok = Tokenizer.from_file(os.path.join(work, "tokenizer.json"))
        self.text = np.load(os.path.join(work, split + ".npy")).astype(np.int64)
        w = json.load(open(os.path.join(work, "words.json")))
        t1 = lambda s: self.t(s)[0]
        self.keys = np.array([t1(" " + x) for x in w["keys"]])
        self.vals = np.array([t1(" " + x) for x in w["values"]])
        self.vars = np.array([t1(" " + c) for c in "abcdefghijklmnopqrstuvwxyz" if len(self.t(" " + c)) == 1])
        self.L, self.R = self.t(MARK_L), self.t(MARK_R)
        self.r = np.random.default_rng(seed)
        self.V = CFG["vocab_size"]
        vocab = self.tok.get_vocab()
        self.cut = np.zeros(self.V, bool)  # tokens before which an insertion re-tokenizes the same way
        for s, i in vocab.items():
            self.cut[i] = s.startswith("Ġ") and len(s) > 1 and s[1].isalpha()
        self.ans_w = 5.0

    def t(self, s):
        return self.tok.encode(s, add_special_tokens=False).ids

    def crop(self, n):
        i = self.r.integers(0, len(self.text) - n)
        return self.text[i:i + n]

    def text_seq(self, T):
        return np.concatenate(([0], self.crop(T))), np.ones(T + 1, np.float32)

    def rep(self, T):
        p = int(np.exp(self.r.uniform(math.log(6), math.log(T * 0.55))))
        kind = self.r.integers(0, 4)
        if kind == 0:
            b = self.r.integers(2, self.V, p)
        elif kind == 1:
            b = self.text[self.r.integers(0, len(self.text), p)]
        elif kind == 2:
            b = self.r.permutation(self.crop(p))
        else:
            b = self.r.choice(np.concatenate((self.keys, self.vals)), p)
        x = np.concatenate(([0], np.tile(b, T // p + 1)[:T]))
        w = np.ones(T + 1, np.float32); w[:p + 2] = 0.0
        return x, w

    def copy(self, T):
        x = np.concatenate(([0], self.crop(T))).copy(); w = np.ones(T + 1, np.float32)
        for _ in range(self.r.integers(1, 5)):
            n = int(self.r.integers(12, max(13, min(96, T // 4))))
            if T < 3 * n:
                continue
            src = int(self.r.integers(1, T - 2 * n)); dst = int(self.r.integers(src + n, T + 1 - n))
            x[dst:dst + n] = x[src:src + n]; w[dst] = 0; w[dst + 1] = .3
        return x, w

    def _weave(self, T, items, dens):
        """items: list of (ids, weights); lay them out in order inside T tokens of text."""
        x = [np.array([0])]; w = [np.zeros(1, np.float32)]; n = 1
        tl = sum(len(i) for i, _ in items); gaps = max(0, T + 1 - 1 - tl)
        k = len(items)
        g = self.r.dirichlet(np.full(k + 1, 1.0)) * gaps if gaps else np.zeros(k + 1)
        src = self.crop(gaps + 80 * 1 + 1) if gaps else self.crop(1)
        c = self.cut[src]; pos = 0
        for j in range(k):
            m = int(g[j])
            if m > 0:
                e = pos + m
                while e < len(src) - 1 and not c[e] and e - pos - m < 12:
                    e += 1
                e = min(e, len(src)); x.append(src[pos:e]); w.append(np.ones(e - pos, np.float32)); pos = e
            x.append(items[j][0]); w.append(items[j][1])
        if pos < len(src):
            x.append(src[pos:]); w.append(np.ones(len(src) - pos, np.float32))
        x = np.concatenate(x); w = np.concatenate(w)
        if len(x) < T + 1:
            f = self.crop(T + 1 - len(x)); x = np.concatenate((x, f)); w = np.concatenate((w, np.ones(len(f), np.float32)))
        return x[:T + 1], w[:T + 1]

    def facts(self, T, dens=None):
        if dens is None:
            dens = [0.95, 0.6, 0.3, 0.1][self.r.choice(4, p=self.dens_p)]
        form = self.r.random() < self.form2
        if form:
            pre, mid, post = self.t(" The code of"), self.t(" is"), self.t(".")
        else:
            pre, mid, post = self.L, [], self.R
        il = len(pre) + len(mid) + len(post) + 2
        k = max(2, int(T * dens / il))
        nf = int(np.clip(round(k * self.r.uniform(0.2, 0.6)), 1, min(k - 1, len(self.keys))))
        ks = self.r.choice(self.keys, nf, replace=False); vs = self.r.choice(self.vals, nf)
        # order: facts appear at random places among the first part, queries anywhere after
        isf = np.zeros(k, bool); isf[0] = True
        if nf > 1:
            isf[1 + self.r.choice(max(nf - 1, int((k - 1) * self.r.uniform(.4, 1))), nf - 1, replace=False)] = True
        items, j = [], 0
        wq = np.ones(il, np.float32); wq[0] = .1; wq[len(pre)] = 0; wq[len(pre) + 1 + len(mid)] = self.ans_w
        wf = wq.copy(); wf[len(pre) + 1 + len(mid)] = 0
        wq[1:len(pre)] = .1; wf[1:len(pre)] = .1; wq[-1] = wf[-1] = .1
        for b in isf:
            if b:
                q = j; j += 1
            else:
                q = int(self.r.integers(0, j))
            items.append((np.array(pre + [ks[q]] + mid + [vs[q]] + post), wf if b else wq))
        return self._weave(T, items, dens)

    def vtrack(self, T):
        """set c river; set d c; get d c river;   -- a query is answered by walking the chain, link by link"""
        S, G, E = self.t(" set"), self.t(" get"), self.t(";")
        dens = [0.95, 0.5, 0.15][self.r.integers(0, 3)]
        k = max(3, int(T * dens / 4.3)); items = []; val = {}; free = list(self.r.permutation(self.vars))
        wa = np.full(len(S) + 2 + len(E), .1, np.float32); wa[len(S)] = wa[len(S) + 1] = 0
        for i in range(k):
            u = self.r.random()
            if not val or (u < .3 and free):
                n = free.pop(); val[n] = [int(self.r.choice(self.vals))]; items.append((np.array(S + [n, val[n][0]] + E), wa))
            elif u < .5 and free:
                b = list(val)[self.r.integers(0, len(val))]
                if len(val[b]) > 2:
                    continue
                n = free.pop(); val[n] = [b] + val[b]; items.append((np.array(S + [n, b] + E), wa))
            else:
                far = [n for n in val if len(val[n]) > 1] if self.r.random() < .6 else []
                far = far or list(val); n = far[self.r.integers(0, len(far))]; c = val[n]
                wg = np.full(len(G) + 1 + len(c) + len(E), .1, np.float32); wg[len(G)] = 0; wg[len(G) + 1:len(G) + 1 + len(c)] = self.ans_w
                items.append((np.array(G + [n] + c + E), wg))
        return self._weave(T, items, dens)

    dens_p = [.4, .3, .2, .1]
    form2 = 0.1

    def batch(self, N, T, mix):
        names = list(mix); p = np.array([mix[n] for n in names]); p = p / p.sum()
        X, W = np.empty((N // T, T + 1), np.int64), np.empty((N // T, T + 1), np.float32)
        for i in range(N // T):
            X[i], W[i] = getattr(self, names[self.r.choice(len(names), p=p)])(T)
        return X, W

    def needle(self, T, nf, depth=None, form=0):
        """A prompt of exactly T tokens that ends in ' << key' with nf facts hidden before; -> ids, answer."""
        pre, mid, post = (self.t(" The code of"), self.t(" is"), self.t(".")) if form else (self.L, [], self.R)
        ks = self.r.choice(self.keys, nf, replace=False); vs = self.r.choice(self.vals, nf, replace=False)
        items = [(np.array(pre + [k] + mid + [v] + post), np.zeros(len(pre) + len(mid) + len(post) + 2, np.float32)) for k, v in zip(ks, vs)]
        q = int(self.r.integers(0, nf)); tail = np.array(pre + [ks[q]] + mid)
        while True:
            x, _ = self._weave(T - len(tail) - 1, items, 0)
            if all(self._has(x, it[0]) for it in items):
                return np.concatenate((x, tail)), int(vs[q])

    def vneedle(self, T, hops):
        """Variable tracking inside text: one chain of `hops` copies and two distractor variables; ends ' get x'.
        -> ids and the chain of answer tokens; the prompt has T tokens with the answer's last token left out."""
        S, G, E = self.t(" set"), self.t(" get"), self.t(";")
        n = self.r.choice(self.vars, hops + 3, replace=False); v = self.r.choice(self.vals, 3, replace=False)
        items = [np.array(S + [n[0], v[0]] + E)] + [np.array(S + [n[i + 1], n[i]] + E) for i in range(hops)]
        for j in (1, 2):
            items.insert(int(self.r.integers(0, len(items) + 1)), np.array(S + [n[hops + j], v[j]] + E))
        tail = np.array(G + [n[hops]]); chain = [int(x) for x in n[:hops][::-1]] + [int(v[0])]
        while True:
            x, _ = self._weave(T - len(tail) - len(chain), [(i, np.zeros(len(i), np.float32)) for i in items], 0)
            if all(self._has(x, it) for it in items):
                return np.concatenate((x, tail)), chain

    @staticmethod
    def _has(x, y):
        w = np.lib.stride_tricks.sliding_window_view(x, len(y))
        return bool((w == y).all(1).any())


# ---------------------------------------------------------------------------------------------
# Model. All token-wise work runs on flat [N, hidden] so that torch.compile sees one shape for all T.
def lazy_torch():
    global torch, F, Attn
    import torch
    import torch.nn.functional as F
    masks = {}

    def cmask(c, G):
        if (c, G) not in masks:
            t = torch.arange(c * G) // G
            masks[(c, G)] = torch.zeros(c * G, c).masked_fill_(t[:, None] < torch.arange(c)[None], float("-inf")).bfloat16()
        return masks[(c, G)]

    class Attn_(torch.autograd.Function):
        """Causal GQA by row blocks with bf16 batched GEMMs (AMX); q [B*K, T*G, hd] scaled, k, v [B*K, T, hd]."""
        @staticmethod
        def forward(ctx, q, k, v, G, C):
            T = k.shape[1]; C = min(C, T); ps, os_ = [], []
            kt = k.transpose(1, 2)
            for i in range(0, T, C):
                e = i + C
                s = torch.bmm(q[:, i * G:e * G], kt[:, :, :e])
                s[:, :, i:] += cmask(C, G)
                p = torch.softmax(s, -1); ps.append(p)
                os_.append(torch.bmm(p, v[:, :e]))
            ctx.save_for_backward(q, k, v, *ps); ctx.G, ctx.C = G, C
            return torch.cat(os_, 1) if len(os_) > 1 else os_[0]

        @staticmethod
        def backward(ctx, do):
            q, k, v, *ps = ctx.saved_tensors
            G, C, T = ctx.G, ctx.C, k.shape[1]
            do = do.contiguous(); dq, vt = [], v.transpose(1, 2)
            many = len(ps) > 1
            dk = torch.zeros_like(k, dtype=torch.float32) if many else None
            dv = torch.zeros_like(dk) if many else None
            for j, p in enumerate(ps):
                i, e = j * C, j * C + C
                d = do[:, i * G:e * G]
                ds = torch._softmax_backward_data(torch.bmm(d, vt[:, :, :e]), p, -1, p.dtype)
                dq.append(torch.bmm(ds, k[:, :e]))
                a_, b_ = torch.bmm(ds.transpose(1, 2), q[:, i * G:e * G]), torch.bmm(p.transpose(1, 2), d)
                if many:
                    dk[:, :e] += a_; dv[:, :e] += b_
                else:
                    dk, dv = a_, b_
            return (torch.cat(dq, 1) if many else dq[0]), dk.to(k.dtype), dv.to(k.dtype), None, None
    Attn = Attn_


D, H, K, HD, FF, L = (CFG[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "num_hidden_layers"))
G = H // K


def rms(x, w):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + CFG["rms_norm_eps"]) * w).to(torch.bfloat16)


def f_pre(x, nw, wqkv, c, s):
    z = F.linear(rms(x, nw), wqkv).view(x.shape[0], H + 2 * K, HD)
    qk = z[:, :H + K].float(); a, b = qk.chunk(2, -1); c = c[:, None]; s = s[:, None]
    qk = torch.cat((a * c - b * s, b * c + a * s), -1)
    return (qk[:, :H] * HD ** -0.5).to(torch.bfloat16), qk[:, H:].to(torch.bfloat16), z[:, H + K:]


def f_post(x, a, wo, nw, wgu, wd):
    x = x + F.linear(a, wo).float()
    g, u = F.linear(rms(x, nw), wgu).chunk(2, -1)
    return x + F.linear((F.silu(g.float()) * u.float()).to(torch.bfloat16), wd).float()


def f_head(x, nw, e, y, w):
    lg = F.linear(rms(x, nw), e).float()
    return ((torch.logsumexp(lg, -1) - lg.gather(-1, y[:, None])[:, 0]) * w).sum()


class Net:
    """fp32 master weights in self.m, bf16 working copies (with grad) in self.p."""
    def __init__(self, seed, compile_=True):
        g = torch.Generator().manual_seed(seed)
        n = lambda *s, std=0.02: torch.randn(*s, generator=g) * std
        self.m = {"emb": n(CFG["vocab_size"], D), "nf": torch.ones(D)}
        for i in range(L):
            self.m.update({"%d.qkv" % i: n((H + 2 * K) * HD, D, std=0.04), "%d.o" % i: torch.zeros(D, H * HD), "%d.gu" % i: n(2 * FF, D, std=0.04),
                           "%d.d" % i: torch.zeros(D, FF), "%d.n1" % i: torch.ones(D), "%d.n2" % i: torch.ones(D)})
        self.pre, self.post, self.head = f_pre, f_post, f_head
        if compile_:
            self.pre, self.post, self.head = (torch.compile(f, dynamic=False) for f in (f_pre, f_post, f_head))
        self.rope = {}
        self.sync()

    def sync(self):
        if not hasattr(self, "p"):
            self.p = {k: (v.clone() if v.dim() == 1 else v.bfloat16()).requires_grad_() for k, v in self.m.items()}
        else:
            with torch.no_grad():
                for k, v in self.m.items():
                    self.p[k].copy_(v)

    def tables(self, N, T):
        if (N, T) not in self.rope:
            ang = torch.arange(T).float()[:, None] * (CFG["rope_theta"] ** (-torch.arange(HD // 2).float() / (HD // 2)))[None]
            self.rope[(N, T)] = (ang.cos().repeat(N // T, 1), ang.sin().repeat(N // T, 1))
        return self.rope[(N, T)]

    def hidden(self, ids, T):
        N = ids.shape[0]; B = N // T; c, s = self.tables(N, T); p = self.p
        x = F.embedding(ids, p["emb"]).float()
        C = T if T <= 128 else 128 if T <= 512 else 256
        for i in range(L):
            q, k, v = self.pre(x, p["%d.n1" % i], p["%d.qkv" % i], c, s)
            q = q.view(B, T, K, G * HD).transpose(1, 2).reshape(B * K, T * G, HD)
            k, v = (t.reshape(B, T, K, HD).transpose(1, 2).reshape(B * K, T, HD) for t in (k, v))
            a = Attn.apply(q, k, v, G, C).view(B, K, T, G * HD).transpose(1, 2).reshape(N, H * HD)
            x = self.post(x, a, p["%d.o" % i], p["%d.n2" % i], p["%d.gu" % i], p["%d.d" % i])
        return x

    def loss(self, ids, y, w, T):
        return self.head(self.hidden(ids, T), self.p["nf"], self.p["emb"], y, w)


def newton_schulz(X, steps=5):
    """X [n, r, c] with r <= c -> nearly orthogonal, bf16."""
    X = X.bfloat16(); X = X / (X.float().flatten(1).norm(dim=1)[:, None, None] + 1e-7).bfloat16()
    for _ in range(steps):
        A = torch.bmm(X, X.transpose(1, 2))
        X = 3.4445 * X + torch.bmm(torch.baddbmm(A, A, A, beta=-4.7750, alpha=2.0315), X)
    return X


class Opt:
    """Muon for the 2-D hidden matrices (fused ones split), Adam for embeddings and norms."""
    def __init__(self, net, lr_muon, lr_adam, wd):
        self.net, self.lm, self.la, self.wd = net, lr_muon, lr_adam, wd
        self.mom = {k: torch.zeros_like(v) for k, v in net.m.items()}
        self.sq = {k: torch.zeros_like(v) for k, v in net.m.items() if v.dim() == 1 or k == "emb"}
        self.t = 0

    def parts(self, k):
        if k.endswith("qkv"):
            return [(0, H * HD, False), (H * HD, (H + K) * HD, False), ((H + K) * HD, (H + 2 * K) * HD, False)]
        if k.endswith("gu"):
            return [(0, FF, False), (FF, 2 * FF, False)]
        return [(0, D, True)]

    def step(self, mult, mom):
        with torch.no_grad():
            self.t += 1
            net, jobs = self.net, {}
            for k, m in net.m.items():
                p = net.p[k]; g = p.gradf if p.grad is None else p.grad.float()
                if k in self.sq:
                    b1, b2 = 0.9, 0.95
                    self.mom[k].lerp_(g, 1 - b1); self.sq[k].lerp_(g * g, 1 - b2)
                    u = (self.mom[k] / (1 - b1 ** self.t)) / ((self.sq[k] / (1 - b2 ** self.t)).sqrt() + 1e-10)
                    m.add_(u, alpha=-self.la * mult)
                else:
                    self.mom[k].mul_(mom).add_(g, alpha=1 - mom)
                    u = g.lerp(self.mom[k], mom)
                    for a, b, tr in self.parts(k):
                        x = u[a:b]; x = x if tr else x.t()  # -> [256, c]
                        jobs.setdefault(x.shape[1], []).append((m[a:b], x, tr))
                net.p[k].grad = None
            for c, js in jobs.items():
                O = newton_schulz(torch.stack([x for _, x, _ in js]))
                for (m, _, tr), o in zip(js, O):
                    o = o.float() if tr else o.float().t()
                    m.mul_(1 - self.lm * mult * self.wd).add_(o, alpha=-self.lm * mult * max(1, m.shape[0] / m.shape[1]) ** 0.5)
            net.sync()


# ---------------------------------------------------------------------------------------------
def phase_of(plan, step):
    for ph in plan:
        if step < ph["until"]:
            return ph
    return plan[-1]


MIX_A = dict(rep=.35, facts=.35, vtrack=.05, copy=.05, text_seq=.20)
MIX_B = dict(rep=.12, facts=.28, vtrack=.20, copy=.08, text_seq=.32)
MIX_C = dict(rep=.05, facts=.22, vtrack=.22, copy=.06, text_seq=.45)
MIX_D = dict(rep=.03, facts=.22, vtrack=.22, copy=.05, text_seq=.48)
PLAN = [  # until step, tokens per step, {T: share}, mix, density of facts (95/60/30/10 % of the tokens), share of the sentence form
    dict(until=600, N=4096, T={64: 1.0}, mix=MIX_A, dens=[.6, .3, .1, 0], form2=0.0),
    dict(until=1200, N=4096, T={128: .7, 64: .2, 256: .1}, mix=MIX_A, dens=[.5, .3, .15, .05], form2=0.1),
    dict(until=1800, N=8192, T={256: .6, 512: .2, 128: .2}, mix=MIX_B, dens=[.3, .3, .25, .15], form2=0.15),
    dict(until=2045, N=8192, T={512: .55, 1024: .25, 256: .2}, mix=MIX_C, dens=[.2, .25, .3, .25], form2=0.15),
    dict(until=2218, N=8192, T={4096: .04, 2048: .36, 1024: .3, 512: .3}, mix=MIX_D, dens=[.1, .2, .3, .4], form2=0.15),
    dict(until=10**9, N=8192, T={4096: .03, 2048: .12, 1024: .2, 512: .4, 256: .25}, mix=MIX_D, dens=[.1, .2, .3, .4], form2=0.15),
]


def quick_eval(net, gen, specs, n=64):
    out = []
    with torch.no_grad():
        for T, kind, arg in specs:
            b = 8192 // T; ok = tot = 0
            while tot < n:
                pr = [gen.vneedle(T, arg) if kind == "v" else gen.needle(T, arg, form=int(kind == "s")) for _ in range(b)]
                ch = [c if isinstance(c, list) else [c] for _, c in pr]; nc = len(ch[0])
                ids = np.concatenate([np.concatenate((p, c[:-1])) for (p, _), c in zip(pr, ch)]).astype(np.int64)
                x = net.hidden(torch.from_numpy(ids), T).view(b, T, D)[:, -nc:]
                ans = F.linear(rms(x.reshape(b * nc, D), net.p["nf"]), net.p["emb"]).argmax(-1).view(b, nc).tolist()
                ok += sum(int(g == c) for g, c in zip(ans, ch)); tot += b
            out.append("%d%s%d:%.0f%%" % (T, kind, arg, 100 * ok / tot))
        l = []
        for _ in range(8):
            X = np.stack([gen.text_seq(512)[0] for _ in range(16)])
            l.append(net.loss(torch.from_numpy(X[:, :-1].reshape(-1).copy()), torch.from_numpy(X[:, 1:].reshape(-1).copy()), torch.full((8192,), 1 / 8192), 512).item())
    return " ".join(out) + " text512 %.4f" % (sum(l) / len(l))


def cmd_train(a):
    rank, R = 0, a.workers
    if R > 1:  # data-parallel processes meet once a step; OpenMP threads would meet after every operation
        rv = os.path.join(os.path.abspath(a.work), "rendezvous")
        if os.path.exists(rv):
            os.remove(rv)
        for r in range(1, R):
            if os.fork() == 0:
                rank = r
                os.setsid()  # a scheduling group (autogroup) of its own, as for any other job
                break
    lazy_torch()
    if R > 1:
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method="file://" + rv, rank=rank, world_size=R)
    torch.set_num_threads(a.threads); torch.manual_seed(a.seed)
    plan = PLAN if not a.plan else json.load(open(a.plan))
    net = Net(a.seed, not a.no_compile); opt = Opt(net, a.lr_muon, a.lr_adam, a.wd)
    ck = os.path.join(a.work, "ckpt.pt"); step0 = 0; toks = 0; wall = 0.0
    if os.path.exists(ck):
        c = torch.load(ck, weights_only=True)
        for k in net.m:
            net.m[k].copy_(c["m"][k]); opt.mom[k].copy_(c["mom"][k])
        for k in opt.sq:
            opt.sq[k].copy_(c["sq"][k])
        opt.t = c["t"]; step0 = c["step"]; toks = c["toks"]; wall = c["wall"]; net.sync()
        print("resumed at step", step0, flush=True)
    gen = Gen(a.work, "train", a.seed * 1000003 + step0 + 7919 * rank); common = np.random.default_rng(a.seed * 31 + step0)

    def save():
        torch.save(dict(m=net.m, mom=opt.mom, sq=opt.sq, t=opt.t, step=step0, toks=toks, wall=wall + time.time() - t0), ck + ".tmp")
        os.replace(ck + ".tmp", ck)
    t0 = tl = ts = time.time(); acc = {}; lt = 0; decaying = False
    while step0 < a.steps:
        ph = phase_of(plan, step0); N = ph["N"]
        Ts = [int(t) for t in ph["T"]]; T = Ts[common.choice(len(Ts), p=np.array(list(ph["T"].values())) / sum(ph["T"].values()))]
        gen.dens_p = ph["dens"]; gen.form2 = ph["form2"]
        X, W = gen.batch(N // R, T, ph["mix"])
        x = torch.from_numpy(X[:, :-1].reshape(-1).copy()); y = torch.from_numpy(X[:, 1:].reshape(-1).copy())
        w = torch.from_numpy(W[:, 1:].reshape(-1).copy()); w /= w.sum()
        loss = net.loss(x, y, w, T); loss.backward()
        step0 += 1; toks += N; lt += N
        mult = min(1.0, step0 / 100)
        if a.decay_steps and step0 > a.steps - a.decay_steps:
            mult *= max(0.0, (a.steps - step0 + 1) / a.decay_steps)
        stop = False
        if a.deadline:  # the same by the clock, for a shared machine whose speed is not known ahead
            left = a.deadline - time.time(); stop = left <= 0
            if left < a.deadline_decay:
                if not decaying and not rank:
                    decaying = True; print("decay starts after step", step0, flush=True)
                mult *= max(0.0, left / a.deadline_decay)
        stop = stop or bool(a.stop_file and os.path.exists(a.stop_file))
        if R > 1:  # sum the gradients; rank 0 alone says the rate and whether to stop
            g = torch.cat([p.grad.float().flatten() for p in net.p.values()] + [torch.tensor([mult, float(stop)]) * (rank == 0) * R]) / R
            dist.all_reduce(g); i = 0
            for p in net.p.values():
                p.grad = None; p.gradf = g[i:i + p.numel()].view(p.shape); i += p.numel()
            mult, stop = g[-2].item(), g[-1].item() > .5
        opt.step(mult * ph.get("lr", 1.0), min(0.95, 0.85 + step0 / 3000))
        if R > 1 and step0 % 100 == 0:
            for v in net.m.values():
                dist.broadcast(v, 0)
            net.sync()
        if rank:
            if stop:
                os._exit(0)
            continue
        acc.setdefault(T, []).append(loss.item())
        if step0 % 50 == 0:
            now = time.time()
            print("step %d toks %.2fM %s lr %.3f %.0f tok/s %.0fs" % (step0, toks / 1e6, " ".join("L%d=%.3f" % (t, sum(v) / len(v)) for t, v in sorted(acc.items())), mult, lt / (now - tl), wall + now - t0), flush=True)
            acc = {}; tl = now; lt = 0
        if step0 % a.eval_every == 0:
            ev = Gen(a.work, "held", 7)
            mt = max(Ts)
            specs = [(128, "f", 4), (512, "f", 4), (128, "v", 1)] if mt <= 256 else [(512, "f", 4), (1024, "f", 4), (2048, "f", 4), (512, "s", 4), (512, "v", 0), (512, "v", 1), (512, "v", 2)]
            print("  eval", quick_eval(net, ev, specs, a.eval_n), flush=True)
            tl = time.time()
        if time.time() - ts > 240:
            save(); ts = time.time(); tl += 0
        if stop:
            print("stopped by the clock or the stop file"); break
    if rank:
        os._exit(0)
    save()
    print("done step", step0, "wall", wall + time.time() - t0)


# ---------------------------------------------------------------------------------------------
def cmd_export(a):
    lazy_torch()
    from safetensors.torch import save_file
    c = torch.load(os.path.join(a.work, "ckpt.pt"), weights_only=True); m = c["m"]
    os.makedirs(a.dir, exist_ok=True)
    sd = {"model.embed_tokens.weight": m["emb"], "model.norm.weight": m["nf"]}
    for i in range(L):
        b = "model.layers.%d." % i; w = m["%d.qkv" % i]; gu = m["%d.gu" % i]
        sd.update({b + "self_attn.q_proj.weight": w[:H * HD], b + "self_attn.k_proj.weight": w[H * HD:(H + K) * HD], b + "self_attn.v_proj.weight": w[(H + K) * HD:],
                   b + "self_attn.o_proj.weight": m["%d.o" % i], b + "mlp.gate_proj.weight": gu[:FF], b + "mlp.up_proj.weight": gu[FF:], b + "mlp.down_proj.weight": m["%d.d" % i],
                   b + "input_layernorm.weight": m["%d.n1" % i], b + "post_attention_layernorm.weight": m["%d.n2" % i]})
    save_file({k: v.bfloat16().contiguous() for k, v in sd.items()}, os.path.join(a.dir, "model.safetensors"), metadata={"format": "pt"})
    cfg = dict(architectures=["LlamaForCausalLM"], model_type="llama", attention_bias=False, attention_dropout=0.0, mlp_bias=False, bos_token_id=0, eos_token_id=1,
               hidden_act="silu", initializer_range=0.02, pretraining_tp=1, rope_scaling=None, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, **CFG)
    json.dump(cfg, open(os.path.join(a.dir, "config.json"), "w"), indent=2, sort_keys=True); open(os.path.join(a.dir, "config.json"), "a").write("\n")
    open(os.path.join(a.dir, "tokenizer.json"), "w").write(open(os.path.join(a.work, "tokenizer.json")).read())
    print("exported step", c["step"], "tokens", c["toks"], "train wall s", round(c["wall"]), "bytes", os.path.getsize(os.path.join(a.dir, "model.safetensors")))


class Plain:
    """Plain fp32 forward of an exported folder, one sequence at a time; can return attention."""
    def __init__(self, d):
        from safetensors.torch import load_file
        self.c = json.load(open(os.path.join(d, "config.json")))
        self.w = {k: v.float() for k, v in load_file(os.path.join(d, "model.safetensors")).items()}

    @staticmethod
    def norm(x, w, eps):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

    def __call__(self, ids, attn=None, last=0):
        c, w = self.c, self.w; T = len(ids); hd, nh, nk = c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]; eps = c["rms_norm_eps"]
        ang = torch.arange(T).float()[:, None] * (c["rope_theta"] ** (-torch.arange(0, hd, 2).float() / hd))[None]
        co, si = (torch.cat((t, t), -1) for t in (ang.cos(), ang.sin()))
        rot = lambda t: t * co + torch.cat((-t[..., hd // 2:], t[..., :hd // 2]), -1) * si
        x = w["model.embed_tokens.weight"][torch.as_tensor(np.asarray(ids))]
        with torch.no_grad():
            for i in range(c["num_hidden_layers"]):
                b = "model.layers.%d." % i; h = self.norm(x, w[b + "input_layernorm.weight"], eps)
                q, k, v = ((h @ w[b + "self_attn.%s_proj.weight" % n].t()).view(T, -1, hd).transpose(0, 1) for n in "qkv")
                q, k = rot(q), rot(k); k, v = (t.repeat_interleave(nh // nk, 0) for t in (k, v))
                if attn is None:
                    o = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
                else:
                    s = (q @ k.transpose(1, 2) * hd ** -0.5).masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
                    attn(i, s); o = s @ v
                x = x + o.transpose(0, 1).reshape(T, -1) @ w[b + "self_attn.o_proj.weight"].t()
                h = self.norm(x, w[b + "post_attention_layernorm.weight"], eps)
                x = x + (F.silu(h @ w[b + "mlp.gate_proj.weight"].t()) * (h @ w[b + "mlp.up_proj.weight"].t())) @ w[b + "mlp.down_proj.weight"].t()
            if last:
                x = x[-last:]
            return self.norm(x, w["model.norm.weight"], eps) @ w["model.embed_tokens.weight"].t()


def cmd_eval(a):
    lazy_torch(); torch.set_num_threads(a.threads)
    m = Plain(a.dir); gen = Gen(a.work, "held", 4242 + sum(map(ord, a.lengths))); out = {"answers": {}, "n": a.n}
    for T in [int(x) for x in a.lengths.split(",") if x]:
        for name, f in (("1 fact", lambda: gen.needle(T, 1)), ("4 facts", lambda: gen.needle(T, 4)), ("16 facts", lambda: gen.needle(T, 16)),
                        ("sentence form, 4 facts", lambda: gen.needle(T, 4, form=1)), ("variable, direct", lambda: gen.vneedle(T, 0)),
                        ("variable, 1 copy", lambda: gen.vneedle(T, 1)), ("variable, 2 copies", lambda: gen.vneedle(T, 2))):
            n = a.n if "facts" in name or "1 fact" in name else max(1, a.n // 2); ok = 0
            for _ in range(n):
                p, v = f(); v = v if isinstance(v, list) else [v]
                g = m(np.concatenate((p, v[:-1])).astype(np.int64), last=len(v)).argmax(-1).tolist(); ok += g == v  # all right = greedy walks the same way
            out["answers"].setdefault(name, {})[T] = [ok, n]
            print(T, name, ok, "/", n, file=sys.stderr, flush=True)
    if not a.windows:
        return print(json.dumps(out, indent=1))
    # held-out loss: whole held-out text in windows of 1,023 tokens after BOS
    info = json.load(open(os.path.join(a.work, "data.json"))); t = gen.text; nll = cnt = 0
    W = 1023; starts = range(0, len(t) - W, W * max(1, (len(t) // W) // a.windows))
    by = 0; pos = np.zeros(W)
    for s in starts:
        ids = np.concatenate(([0], t[s:s + W])); lp = torch.log_softmax(m(ids[:-1]), -1)
        l = -lp.gather(1, torch.as_tensor(ids[1:])[:, None])[:, 0].numpy(); keep = ids[1:] != 1
        nll += l[keep].sum(); cnt += int(keep.sum()); by += len(gen.tok.decode(ids[1:][keep].tolist(), skip_special_tokens=False).encode()); pos += l
    out["held_out"] = dict(windows=len(starts), tokens=cnt, bytes=int(by), nats_per_token=round(float(nll / cnt), 4), nats_per_byte=round(float(nll / by), 4),
                           first_64=round(float(pos[:64].mean() / len(starts)), 3), last_256=round(float(pos[-256:].mean() / len(starts)), 3))
    # attention facts on text (sink, local) and on retrieval (answer position, repeated tokens)
    A = {k: np.zeros((L, H)) for k in ("pos0", "last16", "retrieval", "induction")}
    nt = 12
    for s in range(nt):
        T = 1024; ids = np.concatenate(([0], gen.crop(T - 1)))
        def f(i, p):
            q = p[:, 64:]; A["pos0"][i] += q[:, :, 0].mean(1).numpy() / nt
            band = torch.stack([p[:, r, max(1, r - 15):r + 1].sum(-1) for r in range(64, T)], 1); A["last16"][i] += band.mean(1).numpy() / nt
        m(ids, f)
    ok = 0
    for s in range(24):
        ids, v = gen.needle(1024, 4); key = ids[-1]
        at = [j for j in range(1, 1022) if ids[j] == v and ids[j - 1] == key]
        def f(i, p):
            A["retrieval"][i] += p[:, -1, at].sum(-1).numpy() / 24
        m(ids, f)
    for s in range(12):
        P = 200; b = gen.r.integers(2, 2048, P); ids = np.concatenate(([0], b, b))
        def f(i, p):
            j = torch.arange(P + 2, 2 * P + 1); A["induction"][i] += p[:, j, j - P + 1].mean(1).numpy() / 12
        m(ids, f)
    out["attention"] = {k: np.round(v, 3).tolist() for k, v in A.items()}
    print(json.dumps(out, indent=1))


def cmd_check(a):
    lazy_torch()
    from transformers import LlamaForCausalLM
    hf = LlamaForCausalLM.from_pretrained(a.dir, torch_dtype=torch.float32).eval(); m = Plain(a.dir); gen = Gen(a.work, "held", 99); same = right = 0; worst = 0.0
    for i in range(a.n):
        ids, v = gen.needle((256, 512, 1024, 2048)[i % 4], 4)
        with torch.no_grad():
            l1 = hf(torch.as_tensor(ids)[None]).logits[0]
        l2 = m(ids); worst = max(worst, float((l1 - l2).abs().max())); same += bool((l1.argmax(-1) == l2.argmax(-1)).all()); right += int(l1[-1].argmax()) == v
    print(json.dumps(dict(prompts=a.n, greedy_equal_at_all_positions=same, right=right, max_abs_logit_difference=worst)))


# ---------------------------------------------------------------------------------------------
def greedy(m, ids, n):
    ids = list(ids)
    for _ in range(n):
        ids.append(int(m(ids, last=1)[0].argmax()))
    return ids[-n:]


PROMPTS = [  # file, kind, tokens at most, what is hidden
    ("needle-0500-one.txt", "needle", 500, dict(facts=1)),
    ("needle-0500-multi.txt", "multi-key needle", 500, dict(facts=6)),
    ("needle-1000-one.txt", "needle", 1000, dict(facts=1)),
    ("needle-1000-multi.txt", "multi-key needle", 1000, dict(facts=8)),
    ("needle-2000-one.txt", "needle", 2000, dict(facts=1)),
    ("needle-2000-multi.txt", "multi-key needle", 2000, dict(facts=12)),
    ("variables-1000.txt", "variable through one copy", 1000, dict(hops=1)),
    ("copy-1000.txt", "copying", 1000, dict(copy=60)),
    ("text-1500.txt", "plain text", 1500, dict()),
    ("variables-0500.txt", "variable, direct", 500, dict(hops=0)),
    ("copy-0500.txt", "copying a list of words", 500, dict(list=24)),
]


def cmd_prompts(a):
    """Uses only held-out files; the texts depend on --seed and WORK, not on the weights; DIR only judges them."""
    lazy_torch(); torch.set_num_threads(a.threads)
    gen = Gen(a.work, "held", a.seed); tok = gen.tok; rng = random.Random(a.seed + 11)
    words = json.load(open(os.path.join(a.work, "words.json"))); os.makedirs(a.out, exist_ok=True)
    docs = sorted((f, s) for f, s in json.load(open(os.path.join(a.work, "held.json"))) if len(s) > 3000 and ("python3" in f or "handbook" in f or "man2" in f or "man7" in f or "man3" in f or ".pod" in f or "bash" in f) and "changelog" not in f)
    rng.shuffle(docs); used, out = [], {}
    m = Plain(a.dir) if os.path.exists(os.path.join(a.dir, "model.safetensors")) else None
    n_tok = lambda s: len(tok.encode(s).ids)
    ends = lambda s: [x.end() for x in re.finditer(r"[a-z]{3}\.(?=[ \n])", s)]  # ends of sentences
    def build(body, want, o):
        """-> prompt text and answer, or None when this passage does not suit"""
        ans, tail, ins = None, "", []
        if "facts" in o:
            ks, vs = rng.sample(words["keys"], o["facts"]), rng.sample(words["values"], o["facts"])
            ins = ["%s %s %s%s" % (MARK_L, k, v, MARK_R) for k, v in zip(ks, vs)]; q = rng.randrange(len(ks) // 2 + 1)
            tail, ans = "%s %s" % (MARK_L, ks[q]), " " + vs[q]
        elif "hops" in o:
            ks, x = rng.sample(words["values"], 2), rng.sample("bcdfghklmprtw", 3)
            ins = [" set %s %s;" % (x[0], ks[0]), " set %s %s;" % (x[1], ks[1]), " set %s %s;" % (x[2], x[0])][:2 + o["hops"]]
            tail, ans = (" get " + x[2], " %s %s" % (x[0], ks[0])) if o["hops"] else (" get " + x[0], " " + ks[0])
        elif "list" in o:  # a list of words comes again at the end, cut in the middle
            ws = rng.sample(words["keys"] + words["values"], o["list"]); k = o["list"] // 2
            ins = [" " + " ".join(ws) + "."]; tail, ans = " " + " ".join(ws[:k]), " " + " ".join(ws[k:k + 4])
        elif "copy" in o:  # a span near the start comes again at the end, cut in the middle
            E = [x for x in ends(body) if x > 300]
            if not E:
                return
            w = body[E[0]:E[0] + 420]; c = [x.start() for x in re.finditer(r" (?=[a-z])", w) if x.start() > 150]
            c = [(x, y) for x in c for y in c if y > x + 25]
            if not c:
                return
            tail, ans = w[:c[0][0]], w[c[0][0]:c[0][1]]
        lo, hi = 0, len(body)
        while hi - lo > 1:  # longest body that fits
            mid = (lo + hi) // 2
            lo, hi = (mid, hi) if n_tok(body[:mid] + "".join(ins) + tail) <= want else (lo, mid)
        E = ends(body[:lo])
        if len(E) < len(ins) + 5 or n_tok(body[:E[-1]] + "".join(ins) + tail) < .96 * want:
            return
        b = body[:E[-1]]; E = E[:-2]
        at = [E[int(len(E) * rng.uniform(.1, .6))]] if len(ins) == 1 else sorted(rng.sample(E, len(ins)))
        for p, t in reversed(list(zip(at, ins))):
            b = b[:p] + t + b[p:]
        return b + tail, ans

    for name, kind, want, o in PROMPTS:
        got = None
        for f, s in docs:  # a passage of prose from a file not used so far
            if f in used or got:
                continue
            for _ in range(4):
                st = s.find("\n\n", rng.randrange(100, max(101, int(len(s) * .6)))) + 2; body = s[st:st + int(want * 3.6)]
                if "\\h'" in body or len(ends(body)) * 100 < len(body) * .5 or n_tok(body) < want + 20:
                    continue
                got = build(body, want, o)
                if got:
                    src = f; break
        if not got:
            sys.exit("no passage for " + name)
        used.append(src); text, ans = got; f = src
        ids = tok.encode(text).ids; rec = dict(answer=ans, kind=kind, tokens=len(ids), source=f)
        if ans is not None:
            full = tok.encode(text + ans).ids; assert full[:len(ids)] == ids, name
            rec["answer_tokens"] = len(full) - len(ids)
            if m:
                g = greedy(m, ids, rec["answer_tokens"]); rec["model_right"] = g == full[len(ids):]; rec["model_says"] = tok.decode(g)
        open(os.path.join(a.out, name), "w").write(text); out[name] = rec; print(name, rec)
    json.dump(out, open(os.path.join(a.out, "answers.json"), "w"), indent=2); open(os.path.join(a.out, "answers.json"), "a").write("\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=2)
    sp = ap.add_subparsers(dest="cmd", required=True)
    p = sp.add_parser("data", help="collect text, train tokenizer, encode"); p.add_argument("work")
    p = sp.add_parser("train", help="train or resume"); p.add_argument("work")
    p.add_argument("--steps", type=int, default=100000, help="stop after this step")
    p.add_argument("--decay-steps", type=int, default=0, help="linear decay to zero over the last N steps")
    p.add_argument("--workers", type=int, default=1, help="data-parallel processes; with --threads 1 each the better choice on a busy machine")
    p.add_argument("--deadline", type=float, default=0, help="UNIX time at which training stops with the rate at zero")
    p.add_argument("--deadline-decay", type=float, default=1500, help="linear decay over this many seconds before --deadline")
    p.add_argument("--lr-muon", type=float, default=0.02); p.add_argument("--lr-adam", type=float, default=0.004); p.add_argument("--wd", type=float, default=0.05)
    p.add_argument("--eval-every", type=int, default=250); p.add_argument("--eval-n", type=int, default=64)
    p.add_argument("--plan", help="JSON file with the curriculum (default: PLAN in this file)")
    p.add_argument("--stop-file", help="save and stop when this file exists"); p.add_argument("--no-compile", action="store_true")
    p = sp.add_parser("export", help="write the Hugging Face folder"); p.add_argument("work"); p.add_argument("dir")
    p = sp.add_parser("eval", help="evaluate exported weights"); p.add_argument("work"); p.add_argument("dir"); p.add_argument("-n", type=int, default=100); p.add_argument("--windows", type=int, default=200, help="windows of held-out text; 0: answers only")
    p.add_argument("--lengths", default="512,1024,2048", help="prompt lengths; empty: held-out text and attention only")
    p = sp.add_parser("prompts", help="write the sample prompts"); p.add_argument("work"); p.add_argument("dir"); p.add_argument("out")
    p = sp.add_parser("check", help="compare with transformers"); p.add_argument("work"); p.add_argument("dir"); p.add_argument("-n", type=int, default=16)
    a = ap.parse_args()
    globals()["cmd_" + a.cmd](a)


if __name__ == "__main__":
    main()
