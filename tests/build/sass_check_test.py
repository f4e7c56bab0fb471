#!/usr/bin/env python3
"""Tests cmake/scripts/sass_check.py on cubins made here: sass_check_test.py PATH_OF_THE_SCRIPT"""

import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(sys.argv.pop(1))
HMMA, STL, EXIT = 0x23C, 0x387, 0x94D


def cubin(kernels: dict) -> bytes:
    """An ELF file with a section of code for each kernel: name -> opcodes."""
    names, body, sections = b"\0", b"", [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    header_bytes = 64
    for name, opcodes in kernels.items():
        # Predicates and operands beside the opcode must not matter.
        code = b"".join(struct.pack("<QQ", 0x1122334455667000 | opcode, 0x99) for opcode in opcodes)
        sections.append(struct.pack("<IIQQQQIIQQ", len(names), 1, 6, 0, header_bytes + len(body), len(code), 0, 0, 128, 0))
        names += f".text.{name}".encode() + b"\0"
        body += code
    sections.append(struct.pack("<IIQQQQIIQQ", len(names), 3, 0, 0, header_bytes + len(body), 0, 0, 0, 1, 0))
    names += b".shstrtab\0"
    body += names
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, header_bytes + len(body), 0, 64, 0, 0, 64, len(sections), len(sections) - 1)
    return header + body + b"".join(sections)


class SassCheckTest(unittest.TestCase):
    def check(self, table: str, data: bytes):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "table").write_text(table, encoding="utf-8")
            (Path(folder) / "cubin").write_bytes(data)
            run = subprocess.run([sys.executable, SCRIPT, Path(folder) / "table", Path(folder) / "cubin"],
                                 capture_output=True, text=True, check=False)
        return run.returncode, run.stdout + run.stderr

    def test_counts_by_kernel(self):
        data = cubin({"_ZN1a4MainEi": [HMMA, HMMA, EXIT], "_ZN1a5OtherEi": [EXIT]})
        code, output = self.check("a::Main HMMA=2 STL=0\na::Other HMMA=0 EXIT>=1\n", data)
        self.assertEqual(code, 0, output)
        self.assertIn("a::Main: HMMA=2 EXIT=1", output)

    def test_a_missing_or_forbidden_opcode_is_named(self):
        code, output = self.check(".* HMMA>=2 STL=0\n", cubin({"Main": [HMMA, STL, EXIT]}))
        self.assertEqual(code, 1)
        self.assertIn("Main: HMMA is 1, must be >=2", output)
        self.assertIn("Main: STL is 1, must be =0", output)

    def test_every_kernel_and_every_line_must_be_used(self):
        code, output = self.check("Gone STL=0\n", cubin({"Main": [EXIT]}))
        self.assertEqual(code, 1)
        self.assertIn("Main: no line of the table matches it", output)
        self.assertIn("'Gone' matches no kernel", output)

    def test_what_cannot_be_read_is_an_error(self):
        good = cubin({"Main": [EXIT]})
        for data in (b"", b"\x7fELF\x01\x01", good[:70], good[:-30]):
            self.assertEqual(self.check(".* STL=0\n", data)[0], 2)
        self.assertEqual(self.check("Main NOSUCH=1\n", good)[0], 2)
        self.assertEqual(self.check("Main STL\n", good)[0], 2)


if __name__ == "__main__":
    unittest.main()
