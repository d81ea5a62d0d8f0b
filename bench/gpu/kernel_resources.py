#!/usr/bin/env python3
"""Prints the compiler's results for every kernel in cubins, object files, or programs, read without a GPU, as a
Markdown table: registers, static shared memory, stack; and, counted in the machine code, matrix instructions (HGMMA:
Hopper's wgmma; HMMA: mma.sync), 16-byte accesses to global memory (LDG/STG.128), bulk copies (UTMA*, UBLK*), and
accesses to local memory (LDL/STL: spills, or arrays that are not in registers). Needs cuobjdump: CUDA's, or that of the
triton package.
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys

COUNTED = {"HGMMA": r"\bHGMMA", "HMMA": r"\bHMMA", "LDG.128": r"\bLDG\.E[.\w]*\.128", "STG.128": r"\bSTG\.E[.\w]*\.128",
           "LDGSTS.128": r"\bLDGSTS\.E[.\w]*\.128", "bulk": r"\b(UTMA|UBLK)", "LDL": r"\bLDL", "STL": r"\bSTL"}


def dump(cuobjdump, option, path):
    environment = dict(os.environ, PATH=os.path.dirname(cuobjdump) + os.pathsep + os.environ["PATH"])
    return subprocess.run([cuobjdump, option, path], env=environment, capture_output=True, text=True, check=True).stdout


def readable(symbols):
    names = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True, check=True).stdout
    short = []
    for name in names.splitlines():
        name = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|ringtrain::cuda::|ringtrain::|^void ", "", name)
        name = re.sub(r"\(.*\)$", "", re.sub(r"\((bool|int|long|unsigned int)\)", "", name))
        short.append(name.replace("__nv_bfloat16", "bf16").replace("|", "\\|"))
    return dict(zip(symbols, short))


def read(cuobjdump, path):
    """Return {(architecture, symbol): figures}."""
    kernels = collections.defaultdict(dict)
    machine_code = dump(cuobjdump, "--dump-sass", path)
    first = re.search(r"code for (\w+)", machine_code)  # a bare cubin has only one, and names it nowhere else
    architecture, symbol = first and first[1], None
    for line in dump(cuobjdump, "--dump-resource-usage", path).splitlines():
        if match := re.match(r"arch = (\w+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function (\w+):", line):
            symbol = match[1]
        elif "REG:" in line:
            kernels[architecture, symbol].update({key: int(value) for key, value in re.findall(r"(\w+):(\d+)", line)})
    code = collections.defaultdict(list)
    architecture = first and first[1]
    for line in machine_code.splitlines():
        if match := re.match(r"arch = (\w+)", line):
            architecture = match[1]
        elif match := re.search(r"Function : (\w+)", line):
            symbol = match[1]
        elif "/*" in line:
            code[architecture, symbol].append(line)
    for kernel, lines in code.items():
        text = "\n".join(lines)
        kernels[kernel].update({name: len(re.findall(pattern, text)) for name, pattern in COUNTED.items()})
    return kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"), help="(default: that of the PATH)")
    arguments = parser.parse_args()
    if not arguments.cuobjdump:
        parser.error("there is no cuobjdump here; name one with --cuobjdump")
    kernels = {}
    for path in arguments.files:
        kernels.update(read(os.path.abspath(arguments.cuobjdump), path))
    names = readable(sorted({symbol for _, symbol in kernels}))
    print("| kernel | code | registers | shared | stack | " + " | ".join(COUNTED) + " |")
    print("|---" * (5 + len(COUNTED)) + "|")
    for (architecture, symbol), k in sorted(kernels.items(), key=lambda item: (names[item[0][1]], item[0][0])):
        if "REG" in k:
            print(f"| {names[symbol]} | {architecture} | {k['REG']} | {k['SHARED']} | {k['STACK']} | " +
                  " | ".join(str(k.get(name, 0)) for name in COUNTED) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
