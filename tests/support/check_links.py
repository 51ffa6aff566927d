#!/usr/bin/env python3
"""Fails when a document of the project links to a file, or to a heading of a document, that is not there.

    check_links.py ROOT
"""
import pathlib
import re
import subprocess
import sys
import unicodedata

LINK = re.compile(r'!?\[[^\]]*\]\(([^()\s]+(?:\([^()\s]*\))?)\)|(?:src|srcset|href)="([^"]+)"')
FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)


def documents(root: pathlib.Path) -> list[pathlib.Path]:
    """Every document under version control; without git, every document outside build folders."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True, text=True)
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.splitlines() if (root / name).exists()]
    return [path for path in root.rglob("*.md") if "build" not in path.relative_to(root).parts]


def anchor(heading: str) -> str:
    """The name that GitHub gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return "".join(c for c in plain if c in "-_ " or unicodedata.category(c)[0] in "LN").replace(" ", "-")


def anchors(document: pathlib.Path) -> set[str]:
    """Of all headings of a document, where those that come again are numbered, and of its HTML."""
    seen, out = {}, set()
    text = FENCE.sub("", document.read_text())
    for heading in re.findall(r"^#+ +(.*?) *#*$", text, re.M):
        name = anchor(heading)
        count = seen[name] = seen.get(name, -1) + 1
        out.add(f"{name}-{count}" if count else name)
    return out | set(re.findall(r'<\w+ id="([^"]+)"', text))


def main() -> int:
    root = pathlib.Path(sys.argv[1]).resolve()
    errors, checked = [], 0
    for document in documents(root):
        text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), document.read_text())
        for link in LINK.finditer(text):
            target = link[1] or link[2]
            if re.match(r"[a-z]+:", target):
                continue
            checked += 1
            path, _, heading = target.partition("#")
            file = (document.parent / path).resolve() if path else document
            line = text.count("\n", 0, link.start()) + 1
            where = f"{document.relative_to(root)}:{line}"
            if not file.exists():
                errors.append(f"{where}: {target} is not there")
            elif root not in file.parents and file != root:
                errors.append(f"{where}: {target} lies outside the project")
            elif heading and file.suffix == ".md" and heading not in anchors(file):
                errors.append(f"{where}: {target}: no such heading")
    print("\n".join(errors) if errors else f"{checked} links, every one leads somewhere")
    return 1 if errors or checked < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
