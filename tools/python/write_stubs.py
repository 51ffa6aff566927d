#!/usr/bin/env python3
"""Writes tools/python/kvsim/_commands.pyi, by which editors complete and check calls: the functions of _commands.py with every option
of their commands by its name, as `kvsim help COMMAND` says it. Argument: the kvsim command. --check: only says whether it would change."""
import ast
import pathlib
import re
import subprocess
import sys

HOME = pathlib.Path(__file__).resolve().parent / "kvsim"
OPTION = re.compile(r"^  (?:-\w,)?--([a-z][\w-]*)(?: (\S+)|  |$)", re.M)  # a flag, or an option and what it takes
HIDDEN = {"help", "format", "quiet", "wide", "columns"}  # functions say these themselves
FILES = {"FILE", "DIR", "TRACE", "MODEL", "MACHINE"}


def command_of(function):
    """The words of the command that a function runs: the leading ones of the first list that begins with one."""
    for node in ast.walk(function):
        if isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant):
            words = []
            for word in node.elts:
                if not (isinstance(word, ast.Constant) and re.fullmatch("[a-z]+", str(word.value))):
                    break
                words.append(word.value)
            return words
    return ["replay"]  # by kvsim.replay()


def type_of(kind):
    if not kind:
        return "bool"
    words = kind.split("=")[0].split("|")
    if len(words) > 1 and all(re.fullmatch("[a-z0-9_-]+", word) for word in words):
        return f"Literal[{', '.join(map(repr, words))}] | None"
    return "Path | None" if words[0] in FILES else "_Option"


def options_of(kvsim, words):
    """Names and types of the options of a command and of those below it."""
    text = subprocess.run([kvsim, "help", *words], capture_output=True, text=True, check=True).stdout
    found = {name.replace("-", "_"): type_of(kind) for name, kind in OPTION.findall(text)}
    if "\nSubcommands:\n" in text:
        for line in text.split("\nSubcommands:\n")[1].split("\n\n")[0].splitlines():
            if re.match("  [a-z]", line):
                found |= options_of(kvsim, [*words, line.split()[0]])
    return found


def with_options(function, kvsim):
    arguments = function.args
    if arguments.kwarg is not None and function.name != "command":
        known = {each.arg for each in arguments.args + arguments.kwonlyargs} | HIDDEN
        known |= {"policy", "budget"} if "policies" in known else set()
        for name, kind in sorted(options_of(kvsim, command_of(function)).items()):
            if name not in known:
                arguments.kwonlyargs.append(ast.arg(name, ast.parse(kind, mode="eval").body))
                arguments.kw_defaults.append(ast.Constant(...))
        arguments.kwarg = None
    described = ast.get_docstring(function, clean=False)
    function.body = ([ast.Expr(ast.Constant(described))] if described else []) + [ast.Expr(ast.Constant(...))]
    return function


def stub(kvsim):
    tree = ast.parse((HOME / "_commands.py").read_text(encoding="utf-8"))
    kept = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            kept.append(with_options(node, kvsim))
        elif isinstance(node, ast.ClassDef):
            node.body = [with_options(each, kvsim) if isinstance(each, ast.FunctionDef) else each for each in node.body]
            kept.append(node)
        elif not isinstance(node, ast.Expr):
            kept.append(node)
        if isinstance(node, ast.Assign) and node.targets[0].id == "Budget":
            kept += ast.parse("_Option = str | int | float | os.PathLike | Iterable[str | int | float | os.PathLike] | None").body
    tree.body = kept
    text = ast.unparse(ast.fix_missing_locations(tree)).replace("from typing import Any, ", "from typing import Any, Literal, ")
    return "# Written by tools/python/write_stubs.py from what `kvsim help` says of each command.\n" + text + "\n"


if __name__ == "__main__":
    written = stub(sys.argv[1])
    if "--check" in sys.argv:
        sys.exit((HOME / "_commands.pyi").read_text(encoding="utf-8") != written)
    (HOME / "_commands.pyi").write_text(written, encoding="utf-8")
