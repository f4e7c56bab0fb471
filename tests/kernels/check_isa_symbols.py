"""Fails where an object built for one instruction set defines a function that the linker may choose for the whole program.

usage: check_isa_symbols.py <nm> <libberth_kernels.a>
Members whose names hold _avx are such objects; weak definitions (inline functions, templates) are such functions.
"""
import re
import subprocess
import sys

nm, library = sys.argv[1:]
listing = subprocess.run([nm, "--print-file-name", "--defined-only", "--demangle", library],
                         check=True, capture_output=True, text=True).stdout
# One line per symbol: library:member: address type name
symbols = re.findall(r":([^:]*_avx[^:]*):[0-9a-fA-F]* +(\w) (.*)", listing)
weak = [f"{member}: {name}" for member, kind, name in symbols if kind in "Wu"]
print(f"{len(symbols)} symbols, {len(weak)} weak")
print("\n".join(weak))
sys.exit(1 if weak else 0)
