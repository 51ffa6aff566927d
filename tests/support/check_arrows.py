#!/usr/bin/env python3
"""Fails when a file includes something its layer must not see, or when two files share a name.

The arrows of the design point one way:
    tools -> analysis -> sim/cost -> sim -> policies/api <- policies/*,   traces below sim,   sim/base below all
"""
import pathlib
import re
import sys

ALLOWED = {
    "sim/base": {"sim/base"},
    "policies/api": {"policies/api", "sim/base"},
    "policies/parts": {"policies/parts", "policies/api", "sim/base"},
    "policies": {"policies", "policies/api", "policies/parts", "sim/base"},
    "traces": {"traces", "sim/base"},
    "traces/capture": {"traces", "traces/capture", "sim/base"},
    "sim": {"sim", "sim/base", "policies/api", "policies/parts", "traces"},
    "sim/cost": {"sim/cost", "sim", "sim/base", "policies/api", "traces"},
    "analysis": {"analysis", "sim", "sim/base", "sim/cost", "policies/api", "traces"},
    "tools": {"tools", "analysis", "sim", "sim/cost", "sim/base", "policies", "policies/api", "traces", "traces/capture"},
}
LAYERS = sorted(ALLOWED, key=len, reverse=True)


def layer_of(path: str) -> str:
    """The deepest layer whose folder holds `path`."""
    for layer in LAYERS:
        if path.startswith(layer + "/"):
            return layer
    return ""


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    errors, seen, checked = [], {}, 0
    for top in ("sim", "policies", "traces", "analysis", "tools"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in (".hpp", ".cpp"):
                continue
            name = file.relative_to(root).as_posix()
            checked += 1
            if file.name in seen:
                errors.append(f"{name}: the file name is taken by {seen[file.name]}")
            seen[file.name] = name
            layer = layer_of(name)
            for number, line in enumerate(file.read_text().splitlines(), 1):
                match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
                if not match:
                    continue
                target = layer_of(match[1])
                if not target:
                    errors.append(f"{name}:{number}: include {match[1]} from the root, e.g. \"{layer}/...\"")
                elif target not in ALLOWED[layer]:
                    errors.append(f"{name}:{number}: {layer} must not see {target} ({match[1]})")
    # One eviction or allocation policy may not include another: each file is one policy.
    for kind in ("eviction", "allocation", "oracle"):
        for file in (root / "policies" / kind).glob("*.cpp"):
            for line in file.read_text().splitlines():
                if re.match(r'\s*#\s*include\s+"policies/(eviction|allocation|oracle)/', line):
                    errors.append(f"policies/{kind}/{file.name}: includes another policy")
    print("\n".join(errors) if errors else f"{checked} files, every include points down")
    return 1 if errors or checked < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
