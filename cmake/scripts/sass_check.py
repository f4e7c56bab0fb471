#!/usr/bin/env python3
"""Counts the machine instructions of CUDA kernels and holds them to a table: sass_check.py TABLE CUBIN...

Needs neither cuobjdump nor nvdisasm, which not every machine with nvcc has. A cubin is an ELF file with one section
.text.<kernel> for each kernel. Since compute capability 7.0 an instruction has 16 bytes, whose lowest 12 bits are the
operation together with the kind of its operands (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", arXiv:1804.06826, section 2).

A line of the table: a regular expression for the whole demangled name of kernels (without their parameters), then
conditions NAME>=n, NAME<=n or NAME=n. Every kernel must match one line at least and fulfil all that it matches; a
line that matches no kernel is an error too.
"""

import argparse
import collections
import re
import struct
import subprocess
import sys
from pathlib import Path

INSTRUCTION_BYTES = 16
OPCODE_MASK = 0xFFF

# Several codes of one name differ in where an operand comes from.
OPCODES = {
    "HMMA": {0x23C},
    "IMMA": {0x237},
    "LDSM": {0x83B},
    "LDGSTS": {0xFAE},
    "LDGDEPBAR": {0x9AF},
    "DEPBAR": {0x91A},
    "LDG": {0x981},
    "STG": {0x986},
    "LDS": {0x984},
    "STS": {0x388, 0x988},
    "LDL": {0x983},
    "STL": {0x387},
    "ATOMS": {0x38C, 0x88C, 0x98C},
    "ATOMSCAS": {0x38D},
    "BAR": {0xB1D},
    "SHFL": {0xF89, 0x389, 0x589, 0x989},
    "MUFU": {0x308},
    "EXIT": {0x94D},
}

CONDITION = re.compile(r"([A-Z]+)(>=|<=|=)(\d+)")
COMPARE = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, "=": lambda a, b: a == b}


class Malformed(Exception):
    pass


def kernels(data: bytes):
    """Yields the mangled name and the code of each kernel of a 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise Malformed("not a 64-bit little-endian ELF file")
    try:
        (section_offset,) = struct.unpack_from("<Q", data, 0x28)
        entry_bytes, count, names_index = struct.unpack_from("<HHH", data, 0x3A)

        def section(index):  # (name, type, flags, address, offset, size)
            return struct.unpack_from("<IIQQQQ", data, section_offset + index * entry_bytes)

        names = section(names_index)[4]
        for index in range(count):
            name_at, _, _, _, offset, size = section(index)
            begin = names + name_at
            name = data[begin:data.index(b"\0", begin)].decode()
            if not name.startswith(".text."):
                continue
            if offset + size > len(data) or size % INSTRUCTION_BYTES:
                raise Malformed(f"section {name} is cut off")
            yield name.removeprefix(".text."), data[offset:offset + size]
    except (struct.error, ValueError) as error:
        raise Malformed(f"truncated ELF file: {error}") from error


def count_opcodes(code: bytes) -> collections.Counter:
    codes = collections.Counter(
        struct.unpack_from("<H", code, at)[0] & OPCODE_MASK for at in range(0, len(code), INSTRUCTION_BYTES))
    return collections.Counter({name: sum(codes[value] for value in values) for name, values in OPCODES.items()})


def demangle(names: list) -> list:
    # -p: without parameters. A name that is none stays as it is.
    output = subprocess.run(["c++filt", "-p"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return output.splitlines()


def read_table(path: Path) -> list:
    table = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fields = line.split("#")[0].split()
        if not fields:
            continue
        conditions = []
        for field in fields[1:]:
            match = CONDITION.fullmatch(field)
            if not match or match[1] not in OPCODES:
                raise Malformed(f"{path}:{number}: '{field}' is no condition on one of {', '.join(OPCODES)}")
            conditions.append((match[1], match[2], int(match[3])))
        table.append((re.compile(fields[0]), conditions))
    return table


def faults(table: list, counted: list):
    """counted: pairs of a kernel's name and its opcodes."""
    used = set()
    for name, opcodes in counted:
        lines = [index for index, (pattern, _) in enumerate(table) if pattern.fullmatch(name)]
        used.update(lines)
        if not lines:
            yield f"{name}: no line of the table matches it"
        for index in lines:
            for opcode, comparison, number in table[index][1]:
                if not COMPARE[comparison](opcodes[opcode], number):
                    yield f"{name}: {opcode} is {opcodes[opcode]}, must be {comparison}{number}"
    for index, (pattern, _) in enumerate(table):
        if index not in used:
            yield f"'{pattern.pattern}' matches no kernel"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("cubins", type=Path, nargs="+")
    arguments = parser.parse_args()
    try:
        table = read_table(arguments.table)
        counted = []
        for cubin in arguments.cubins:
            found = list(kernels(cubin.read_bytes()))
            names = demangle([name for name, _ in found])
            counted += [(name, count_opcodes(code)) for name, (_, code) in zip(names, found)]
    except (Malformed, OSError) as error:
        print(f"sass_check: {error}", file=sys.stderr)
        return 2
    for name, opcodes in counted:
        print(f"{name}: " + " ".join(f"{opcode}={number}" for opcode, number in opcodes.items() if number))
    found = list(faults(table, counted))
    print("\n".join(found) or f"{len(counted)} kernels are as the table says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
