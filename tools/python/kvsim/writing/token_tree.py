"""The tokens of a session in the order in which they ran, each with the token before it on its path. They form a tree
in which equal prefixes exist once. At the end the tree is divided into the segments of a trace file."""
from dataclasses import dataclass

from .trace_header import FLAGS, PROMPT, Pass, Segment

ROOT = -1


@dataclass
class Note:
    """What the caller knows of a prompt token besides its id."""
    role: int = 0
    flags: int = 0
    turn: int = None  # None: derived from the path


class TokenTree:
    def __init__(self):
        self.id, self.previous, self.length, self.logprob = [], [], [], []
        self.phase, self.turn, self.role, self.flags = [], [], [], []
        self._next = {}  # (token, id) -> the token that follows
        self._branched = set()  # tokens whose next token is elsewhere in the file, so that a segment ends there
        self._calls = []  # (first token, tokens, start_ns, dur_ns)

    def __len__(self):
        return len(self.id)

    def path_length(self, tip):
        return 0 if tip == ROOT else self.length[tip]

    def cut(self, tip, length):
        """The last of the first `length` tokens of the path to `tip`."""
        while self.path_length(tip) > length:
            tip = self.previous[tip]
        return tip

    def follow(self, tip, ids):
        """Descends from `tip` along `ids` as far as they are in the tree; returns (last token reached, number of tokens
        found)."""
        for known, token_id in enumerate(ids):
            after = self._next.get((tip, token_id))
            if after is None:
                return tip, known
            tip = after
        return tip, len(ids)

    def append(self, tip, token_id, phase, note, logprob):
        """Adds a token after `tip` and returns it."""
        token = len(self.id)
        if token != tip + 1:
            self._branched.add(tip)
        self._next[tip, token_id] = token
        self.id.append(token_id)
        self.previous.append(tip)
        self.length.append(self.path_length(tip) + 1)
        self.phase.append(phase)
        self.logprob.append(logprob)
        self.role.append(note.role)
        self.flags.append(note.flags | (FLAGS["generated"] if phase != PROMPT else 0))
        self.turn.append(self._turn_after(tip, phase) if note.turn is None else note.turn)
        return token

    def called(self, first, start_ns, dur_ns):
        """Records a forward call over all tokens from `first` on."""
        if len(self.id) > first:
            self._calls.append((first, len(self.id) - first, start_ns, dur_ns))

    def segments(self):
        """Divides the tree into spans without a branch inside, each of one phase, turn and role: (segments, the segment
        of each token)."""
        segments, owner = [], []
        for token in range(len(self.id)):
            if self._starts_segment(token):
                tip = self.previous[token]
                segments.append(Segment(0, ROOT if tip == ROOT else owner[tip], self.phase[token], self.turn[token],
                                        self.role[token]))
            segments[-1].count += 1
            owner.append(len(segments) - 1)
        return segments, owner

    def passes(self, owner):
        """The forward calls; a call over several segments becomes several passes that share its time in proportion to
        their tokens."""
        passes = []
        for first, count, start_ns, dur_ns in self._calls:
            begin, end = first, first + count
            while begin < end:
                stop = begin + 1
                while stop < end and owner[stop] == owner[begin]:
                    stop += 1
                passes.append(Pass(owner[begin], begin, stop - begin, start_ns + dur_ns * (begin - first) // count,
                                   dur_ns * (stop - begin) // count))
                begin = stop
        return passes

    def _starts_segment(self, token):
        before = token - 1
        return (self.previous[token] != before or before == ROOT or before in self._branched or
                any(column[token] != column[before] for column in (self.phase, self.turn, self.role)))

    def _turn_after(self, tip, phase):
        """The turn of a token after `tip`: a prompt token after a generated token begins the next turn."""
        if tip == ROOT:
            return 0
        return self.turn[tip] + (phase == PROMPT and self.phase[tip] != PROMPT)
