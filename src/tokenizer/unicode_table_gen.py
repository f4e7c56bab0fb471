#!/usr/bin/env python3
"""Writes unicode_table.cc: the class (letter, number, white space, other) of every code point.

Reads UnicodeData.txt and PropList.txt of Debian's package unicode-data (Unicode 15.0). To rerun:

    apt-get install unicode-data && python3 src/tokenizer/unicode_table_gen.py

With --check nothing is written: exit status 0 where the committed table is what would be written, 1 where it is not, 77 where
this machine has no Unicode data of that version.
"""

import pathlib
import sys

UNICODE_DATA = pathlib.Path("/usr/share/unicode")
VERSION = "15.0.0"
OUTPUT = pathlib.Path(__file__).with_name("unicode_table.cc")
LIMIT = 0x110000
OTHER, LETTER, NUMBER, SPACE = range(4)  # as CharClass in unicode.h


def read_classes():
    classes = bytearray(LIMIT)
    first = None
    for line in (UNICODE_DATA / "UnicodeData.txt").read_text().splitlines():
        code, name, category = line.split(";")[:3]
        code = int(code, 16)
        if name.endswith(", First>"):
            first = code
            continue
        start = first if name.endswith(", Last>") else code
        value = {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)
        classes[start:code + 1] = bytes([value]) * (code + 1 - start)
    for line in (UNICODE_DATA / "PropList.txt").read_text().splitlines():
        fields = [field.strip() for field in line.split("#")[0].split(";")]
        if len(fields) == 2 and fields[1] == "White_Space":
            ends = [int(end, 16) for end in fields[0].split("..")]
            for code in range(ends[0], ends[-1] + 1):
                classes[code] = SPACE
    return classes


def render(classes):
    runs = [code << 2 | classes[code] for code in range(LIMIT) if code == 0 or classes[code] != classes[code - 1]]
    lines = ["// Written by unicode_table_gen.py from Unicode %s; do not edit." % VERSION,
             '#include "tokenizer/unicode_table.h"', "", "namespace berth {", "namespace {", "",
             "// clang-format off", "constexpr std::uint32_t kRuns[] = {"]
    row = "   "
    for run in runs:
        item = " 0x%x," % run
        if len(row) + len(item) > 120:
            lines.append(row)
            row = "   "
        row += item
    lines += [row, "};", "// clang-format on", "", "}  // namespace", "",
              "constinit const std::span<const std::uint32_t> kCharClassRuns = kRuns;", "", "}  // namespace berth", ""]
    return "\n".join(lines)


def data_version():
    try:
        first_line = (UNICODE_DATA / "PropList.txt").read_text().splitlines()[0]
    except OSError:
        return None
    return first_line.removeprefix("# PropList-").removesuffix(".txt")


def main():
    check = sys.argv[1:] == ["--check"]
    if data_version() != VERSION:
        print("no Unicode %s data in %s (Debian: unicode-data)" % (VERSION, UNICODE_DATA), file=sys.stderr)
        return 77 if check else 1
    text = render(read_classes())
    if not check:
        OUTPUT.write_text(text)
        return 0
    if OUTPUT.read_text() != text:
        print("%s differs from what %s writes" % (OUTPUT, pathlib.Path(__file__).name), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
