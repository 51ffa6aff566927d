#!/usr/bin/env python3
"""Says what a run of the tests left out, why, and how to have it: each skipped test prints a line "skipped: ..." of its own.

Usage: left_out.py JUNIT_FILE [--only TEST...]

JUNIT_FILE is what `ctest --output-junit` wrote. With --only, exit status 1 if any test but those was skipped whole.
"""
import re
import sys
import xml.etree.ElementTree as xml


def reasons(case):
    return re.findall(r"(?mi)^skipped: (.*)$", case.findtext("system-out") or "")


def main(path, *only):
    cases = xml.parse(path).getroot().findall("testcase")
    skipped = [case for case in cases if case.find("skipped") is not None]
    parts = [case for case in cases if case not in skipped and reasons(case)]
    for case in skipped:
        print(f"left out: {case.get('name')}: {' '.join(reasons(case)) or 'it does not say why'}")
    for case in parts:
        for reason in reasons(case):
            print(f"left out, a part of {case.get('name')}: {reason}")
    if not skipped and not parts:
        print("left out: nothing")
    unexpected = [case.get("name") for case in skipped if case.get("name") not in only[1:]]
    if only and unexpected:
        sys.exit(f"left_out.py: must not be left out: {', '.join(unexpected)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
