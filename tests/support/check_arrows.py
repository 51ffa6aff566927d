#!/usr/bin/env python3
"""Fails when a file includes something its layer must not see, or when two files share a name.

ALLOWED below is the map of the project: which room may include from which.
"""
import pathlib
import re
import sys

# A room sees itself, the rooms listed here beside it, and sim/base, the ground floor of all rooms.
TRACES = {"traces/format"}
ANALYSIS = {f"analysis/{room}" for room in ("agreement", "asked", "choice", "cost", "drawing", "figures", "kinds", "loop", "report", "results",
                                            "statistics", "study", "view")}
PARTS = {f"policies/parts/{room}" for room in ("blocks", "codes", "costs", "index", "merging", "oracles", "rows", "splits")}
ALLOWED = {
    "sim/base": set(),
    "policies/api": set(),
    "policies/parts/rows": {"policies/api"},
    "policies/parts/splits": {"policies/api"},
    "policies/parts/blocks": {"policies/api"},
    "policies/parts/costs": {"policies/api", "policies/parts/rows"},
    "policies/parts/codes": {"policies/api", "policies/parts/costs"},
    "policies/parts/index": {"policies/api", "policies/parts/codes"},
    "policies/parts/merging": {"policies/api", "policies/parts/codes", "policies/parts/costs", "policies/parts/rows"},
    "policies/parts/oracles": {"policies/api", "policies/parts/splits"},
    "policies": {"policies/api", *PARTS},
    "traces/format": set(),
    "traces/comparison": TRACES,
    "traces/workloads": TRACES,
    "traces/model": TRACES,
    "traces/capture": {*TRACES, "traces/model", "traces/workloads"},
    "traces/requests": set(),
    "sim/feed": {"policies/api"},
    "sim/attention": {*TRACES, "policies/api", "policies/parts/rows", "sim/feed"},
    "sim/replay": {*TRACES, "policies/api", "policies/parts/oracles", "policies/parts/rows", "sim/feed", "sim/attention"},
    "sim/loop": {*TRACES, "traces/model", "policies/api", "sim/feed", "sim/attention", "sim/replay"},
    "sim/inspect": {*TRACES, "policies/api", "policies/parts/index", "policies/parts/rows", "sim/feed", "sim/attention", "sim/replay"},
    "sim/cost": {*TRACES, "traces/model", "policies/api", "sim/feed", "sim/replay"},
    "sim/requests": {"traces/requests", "policies/api", "sim/cost"},
    "analysis/results": {*TRACES, "policies/api", "sim/replay", "sim/cost"},
    "analysis/statistics": {"analysis/results"},
    "analysis/agreement": {"analysis/results", "analysis/statistics"},
    "analysis/drawing": {"analysis/results"},
    "analysis/asked": {"policies/api", "sim/replay"},
    "analysis/cost": {"analysis/results", "policies/api", "sim/replay", "sim/cost"},
    "analysis/kinds": {*TRACES, "analysis/results", "analysis/statistics", "policies/api", "sim/attention", "sim/replay", "sim/inspect"},
    "analysis/figures": {"analysis/results", "analysis/statistics", "analysis/agreement", "analysis/drawing", "sim/replay", "sim/cost"},
    "analysis/report": {"analysis/results", "analysis/statistics", "analysis/agreement", "analysis/drawing", "analysis/cost",
                        "analysis/kinds", "analysis/figures"},
    "analysis/view": {*TRACES, "analysis/results", "analysis/drawing", "analysis/report", "policies/api", "sim/attention", "sim/replay"},
    "analysis/loop": {*TRACES, "analysis/results", "analysis/statistics", "policies/api", "sim/replay", "sim/loop", "traces/workloads",
                      "traces/model", "traces/capture"},
    "analysis/study": {*TRACES, "analysis/results", "analysis/statistics", "analysis/asked", "analysis/cost", "analysis/kinds",
                       "analysis/report", "analysis/loop", "policies/api", "sim/replay", "sim/cost", "traces/workloads", "traces/model",
                       "traces/capture"},
    "analysis/choice": {*TRACES, "analysis/asked", "analysis/results", "analysis/statistics", "analysis/cost", "analysis/drawing",
                        "analysis/report", "analysis/loop", "analysis/study", "policies/api", "sim/replay", "sim/loop", "sim/cost",
                        "traces/capture"},
    "tools": {*ANALYSIS, "policies", "policies/api", "sim/attention", "sim/replay", "sim/inspect", "sim/loop", "sim/cost", "traces/format",
              "traces/comparison", "traces/workloads", "traces/model", "traces/capture"},
    # Nothing outside the wing of requests includes a file of it.
    "analysis/requests": {"analysis/results", "analysis/statistics", "analysis/agreement", "analysis/cost", "analysis/figures",
                          "policies/api", "sim/replay", "sim/cost", "traces/requests", "sim/requests"},
    "tools/requests": {*ANALYSIS, "tools", "analysis/requests", "policies/api", "sim/cost", "traces/model", "traces/capture",
                       "traces/requests", "sim/requests"},
    "tools/python/core": {"tools", *ANALYSIS, "policies", "policies/api", *PARTS, "sim/attention",
                          "sim/replay", "sim/loop", "traces/format", "traces/model", "traces/capture"},
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
                elif target not in {layer, "sim/base", *ALLOWED[layer]}:
                    errors.append(f"{name}:{number}: {layer} must not see {target} ({match[1]})")
    # No policy may include another: each file is one policy.
    for kind in ("eviction", "allocation", "oracle", "representation", "selection", "replacement"):
        for file in (root / "policies" / kind).glob("*.cpp"):
            for line in file.read_text().splitlines():
                if re.match(r'\s*#\s*include\s+"policies/(eviction|allocation|oracle|representation|selection|replacement)/', line):
                    errors.append(f"policies/{kind}/{file.name}: includes another policy")
    print("\n".join(errors) if errors else f"{checked} files, every include points down")
    return 1 if errors or checked < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
