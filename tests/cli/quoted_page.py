"""Reads the numbers that a page reports as findings. A test reads them one by one, and unread() lists the others, so
that no number stays unchecked.

Findings begin at "**Here**"; the text above it reports the paper. Code, links and figures, names of layers, the heads
of tables and their first column are not findings, nor are headings.
"""
import re

NUMBER = re.compile(r"(?<![\w.])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
NO_FINDING = re.compile(r"```.*?```|`[^`\n]*`|!?\[[^\]]*\]\([^)]*\)|[Ll]ayers?\s\d(?:\sand\s\d)?|(?m:^#### [^\n]*)", re.DOTALL)


class Number:
    """A number of the text. Percentages become shares."""

    def __init__(self, text, begin, end, percent):
        shown = text[begin:end].replace(",", "")
        unit = 0.01 if percent else 1
        below_zero = begin > 0 and text[begin - 1] == "-" and not text[:begin - 1].endswith(tuple("0123456789%)"))
        self.begin, self.end, self.unit, self.sign = begin, end, unit, -1 if below_zero else 1
        self.value = self.sign * float(shown) * unit
        self.digit = unit * 10 ** -len(shown.partition(".")[2])  # value of one unit in the last digit shown


class QuotedPage:
    def __init__(self, text):
        self.text = text
        findings = self.text[self.text.index("**Here**"):]
        blank = NO_FINDING.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), findings)
        self.body = " " * (len(self.text) - len(findings)) + blank
        self.left = {match.start(): match for match in NUMBER.finditer(self.body)}
        self.tables = self._tables()

    def _tables(self):
        """[[(first column, [numbers of each further column]) of each row] of each table]."""
        tables, lines, begin = [], [], 0
        for line in self.body.splitlines(keepends=True):
            if line.startswith("|"):
                lines.append((begin, line))
            elif lines:
                tables.append(lines)
                lines = []
            begin += len(line)
        return [[self._row(*line) for line in lines[2:]] for lines in [self._head(lines) for lines in tables + [lines] if lines]]

    def _head(self, lines):
        self._read(lines[0][0], lines[0][0] + len(lines[0][1]))
        return lines

    def _row(self, begin, line):
        bars = [begin + at for at, letter in enumerate(line) if letter == "|"]
        first, *others = zip(bars, bars[1:])
        self._read(*first)
        return self.text[first[0] + 1:first[1]].strip(), [self._cell(*field) for field in others]

    def _cell(self, begin, end):
        percent = "%" in self.body[begin:end]
        return [Number(self.body, match.start(), match.end(), percent) for match in NUMBER.finditer(self.body, begin, end)]

    def _read(self, begin, end):
        for at in [at for at in self.left if begin <= at < end]:
            del self.left[at]

    def cell(self, cell):
        """Returns the numbers of a table's cell and marks them as read."""
        for number in cell:
            del self.left[number.begin]
        return cell

    def sentence(self, form):
        """The numbers at each # of `form`, a piece of the text; line breaks do not matter."""
        pattern = r"\s+".join(re.escape(word).replace(r"\#", r"(-?\d[\d,]*(?:\.\d+)?)") for word in form.split())
        found = list(re.finditer(pattern, self.body))
        if len(found) != 1:
            raise AssertionError(f"{form!r} stands {len(found)} times on the page")
        self._read(*found[0].span())
        numbers = []
        for group in range(1, found[0].re.groups + 1):
            begin, end = found[0].span(group)
            begin += self.body[begin] == "-"
            numbers.append(Number(self.body, begin, end, re.match(r"\s?%|(-| to | and )\d[\d.]*\s?%", self.body[end:])))
        return numbers

    def given(self, *pieces):
        """Marks pieces of the text whose numbers are not findings, such as the number of prompts."""
        for piece in pieces:
            self.sentence(piece)

    def unread(self):
        """Every number that no test has read, with its context."""
        return [self.body[max(0, match.start() - 40):match.end() + 20].replace("\n", " ") for match in self.left.values()]
