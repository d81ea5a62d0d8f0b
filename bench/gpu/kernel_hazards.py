#!/usr/bin/env python3
"""Walks every path through the machine code of kernels with wgmma (SASS: HGMMA), and reports instructions that touch a
register of a product in flight. A product's groups are in flight from HGMMA to the wait that leaves fewer of them
(WARPGROUP.DEPBAR.LE). Until then, nothing may read or write its sums, nothing may write its first operand if that is in
registers, and no other product may use its sums except to add to all of them. After each USETMAXREG, no register beyond
the new number may be named. Ends with 1 if a hazard is found, 2 if a file contains no kernel with wgmma.

Usage: bench/gpu/kernel_hazards.py [--cuobjdump PROGRAM] FILE...    cubins, object files or programs; or SASS as text
"""
import argparse
import collections
import os
import re
import shutil
import sys

from kernel_resources import dump

LINE = re.compile(r"^\s*/\*([0-9a-f]{4,6})\*/\s+(.*?)\s*;\s*(?:/\*|$)")
GUARD = re.compile(r"^@!?U?P\w+\s+")
STORES = ("ST", "STG", "STS", "STL", "STSM", "RED", "REDG", "UTMASTG", "UTMAREDG", "BAR", "SYNCS", "R2UR", "WARPSYNC")
MOST_STATES, MOST_GROUPS = 1_000_000, 32


class Unreadable(Exception):
    """An instruction that this program does not understand, so that it cannot vouch for the kernel."""


class Instruction:
    """One line of SASS: the registers that it names and writes, and where execution may continue."""

    def __init__(self, address, text):
        self.address, self.text = address, text
        self.guarded = bool(GUARD.match(text))
        bare = GUARD.sub("", text)
        self.name, _, rest = bare.partition(" ")
        self.operation = self.name.split(".")[0]
        operands = [operand.strip() for operand in rest.split(",")] if rest else []
        self.sums = self.first_operand = frozenset()
        self.named, self.written = set(), set()
        self.closes_group = self.leaves = self.most_registers = self.target = None
        if self.operation == "HGMMA":
            self.read_product(operands)
        elif "WARPGROUP.DEPBAR.LE" in bare:
            self.leaves = int(re.search(r"gsb0,\s*0x([0-9a-f]+)", bare)[1], 16)
        elif self.operation == "USETMAXREG":
            self.most_registers = int(operands[-1], 0)
        else:
            self.read_operands(operands)
        self.calls, self.returns = self.operation == "CALL", self.operation == "RET"
        if self.operation in ("BRX", "JMX") or (self.calls and not self.name.startswith("CALL.REL")):
            raise Unreadable(f"{address:#x} {text}: a jump whose target the code does not name")
        if self.calls or self.operation in ("BRA", "JMP"):
            self.target = int(re.search(r"(0x[0-9a-f]+)", rest)[1], 16)
            # Threads may take both paths because of a guard, an operand, or a vote, which a modifier names.
            self.always = not self.guarded and self.name in ("BRA", "JMP") and not re.search(r"\bU?P\w", rest)
        self.ends = self.operation == "EXIT" and not self.guarded

    def read_product(self, operands):
        columns = int(re.search(r"HGMMA(?:\.SP)?\.\d+x(\d+)x\d+", self.name)[1])
        sums = re.match(r"R(\d+)$", operands[0])
        if not sums:
            raise Unreadable(f"{self.address:#x} {self.text}: sums that are in no registers")
        # m64nNk16: a thread holds N / 2 float32 sums and, of a first operand in registers, four of two bfloat16 each.
        self.sums = frozenset(range(int(sums[1]), int(sums[1]) + columns // 2))
        if source := re.match(r"R(\d+)", operands[1]):
            self.first_operand = frozenset(range(int(source[1]), int(source[1]) + 4))
        self.named = set(self.sums | self.first_operand)
        self.closes_group = "gsb0" in self.text

    def width(self, index, operand, last):
        """Returns the number of registers of an operand, which names the first."""
        if "[" in operand:  # an address: of 64 bits if it says so, or if a descriptor precedes it
            return 2 if ".64" in operand or "desc" in operand else 1
        parts = self.name.split(".")
        if ".64" in operand:
            return 2
        moves = self.operation.startswith(("LD", "ST", "RED", "ATOM"))
        if moves:
            if self.operation in ("LDSM", "STSM"):
                return 4 if "4" in parts else 2 if "2" in parts else 1
            return 4 if "128" in parts else 2 if "64" in parts or "F32x2" in self.name else 1
        if self.operation == "CS2R":
            return 1 if "32" in parts else 2
        if "WIDE" in parts and index in (0, last):
            return 2
        if self.operation in ("DADD", "DMUL", "DFMA") or ("64" in parts and index == 0):
            return 2
        return 1

    def read_operands(self, operands):
        first = True
        for index, operand in enumerate(operands):
            for register in re.finditer(r"\bR(\d+)", operand):
                begin, count = int(register[1]), self.width(index, operand, len(operands) - 1)
                registers = range(begin, begin + count)
                self.named.update(registers)
                is_result = first and "[" not in operand and index <= 1
                if is_result and self.operation not in STORES and "SETP" not in self.operation:
                    self.written.update(registers)
                first = False


def kernels_of(text):
    """Yields (name, instructions) of each kernel in SASS."""
    name, code = None, []
    for line in text.splitlines():
        if function := re.search(r"Function : (\S+)", line):
            if name:
                yield name, code
            name, code = function[1], []
        elif instruction := LINE.match(line):
            code.append((int(instruction[1], 16), instruction[2]))
    if name:
        yield name, code


def conflicts(one, other):
    """Yields the ways in which instruction one affects product other, which is in flight."""
    if one.sums:
        if one.first_operand & other.sums:
            yield "multiplies sums that are under way"
        if one.sums & other.sums and one.sums != other.sums:
            yield "adds to a part of the sums of"
        if one.sums & other.first_operand:
            yield "overwrites the first operand of"
    else:
        if one.named & other.sums:
            yield "touches sums of"
        if one.written & other.first_operand:
            yield "overwrites the first operand of"


def walk(code):
    """Returns ({what: count}, states) over all paths: the products in flight are part of a state."""
    index = {instruction.address: place for place, instruction in enumerate(code)}
    found, seen, waiting = collections.Counter(), set(), [(0, (), (), ())]
    while waiting:
        place, groups, open_group, callers = waiting.pop()
        while place < len(code) and (place, groups, open_group, callers) not in seen:
            seen.add((place, groups, open_group, callers))
            if len(seen) > MOST_STATES:
                raise Unreadable(f"more than {MOST_STATES:,} states")
            instruction = code[place]
            for product in {product for group in (*groups, open_group) for product in group}:
                for what in conflicts(instruction, code[product]):
                    found[f"{instruction.address:#x} {instruction.text}: {what} {code[product].address:#x} "
                          f"{code[product].text}"] += 1
            if instruction.sums:
                open_group += (place,)
                if instruction.closes_group:
                    groups, open_group = groups + (open_group,), ()
                if len(groups) + len(open_group) > MOST_GROUPS:
                    raise Unreadable(f"{instruction.address:#x}: more than {MOST_GROUPS} products without a wait")
            elif instruction.leaves is not None:
                groups = groups[-instruction.leaves:] if instruction.leaves else ()
            if instruction.target is not None:
                if instruction.target not in index:
                    raise Unreadable(f"{instruction.address:#x} {instruction.text}: a jump out of the kernel")
                if instruction.always:
                    place = index[instruction.target]
                    continue
                behind = (*callers, place + 1) if instruction.calls else callers
                waiting.append((index[instruction.target], groups, open_group, behind))
                if instruction.calls and not instruction.guarded:
                    break
            if instruction.returns:
                if not callers:
                    raise Unreadable(f"{instruction.address:#x} {instruction.text}: nothing has called")
                waiting.append((callers[-1], groups, open_group, callers[:-1]))
                if not instruction.guarded:
                    break
            if instruction.ends:
                break
            place += 1
    return found, len(seen)


def beyond_limits(code):
    """Returns instructions that name a register beyond the limit of the last USETMAXREG on some path to them."""
    index = {instruction.address: place for place, instruction in enumerate(code)}
    found = []
    for start, setter in enumerate(code):
        if setter.most_registers is None:
            continue
        seen, waiting = set(), [start + 1]
        while waiting:
            place = waiting.pop()
            while place < len(code) and place not in seen:
                seen.add(place)
                instruction = code[place]
                # A called function returns to the instruction after the call, so its own path may end at its return.
                if instruction.most_registers is not None or instruction.ends or instruction.returns:
                    break
                if instruction.named and max(instruction.named) >= setter.most_registers:
                    found.append(f"{instruction.address:#x} {instruction.text}: {setter.most_registers} registers are "
                                 f"left since {setter.address:#x}")
                if instruction.target is not None:
                    if instruction.always:
                        place = index[instruction.target]
                        continue
                    waiting.append(index[instruction.target])
                place += 1
    return found


def examine(text):
    """Prints the findings in SASS. Returns (kernels with wgmma, findings)."""
    examined = findings = 0
    for name, lines in kernels_of(text):
        if not any("HGMMA" in line for _, line in lines):
            continue
        examined += 1
        try:
            code = [Instruction(*line) for line in lines]
            hazards, states = walk(code)
            found = list(hazards) + beyond_limits(code)
        except Unreadable as error:
            found, states = [str(error)], 0
        findings += len(found)
        products = sum(bool(instruction.sums) for instruction in code) if states else 0
        print(f"{name}: {len(lines)} instructions, {products} products, {states} states, "
              f"{len(found) or 'no'} finding{'' if len(found) == 1 else 's'}")
        for line in found[:20]:
            print("   " + line)
    return examined, findings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump"), help="(default: that of the PATH)")
    arguments = parser.parse_args()
    wrong = 0
    for path in arguments.files:
        with open(path, "rb") as file:
            head = file.read(4)
        if head == b"\x7fELF":
            if not arguments.cuobjdump:
                parser.error("there is no cuobjdump here; name one with --cuobjdump")
            text = dump(os.path.abspath(arguments.cuobjdump), "--dump-sass", path)
        else:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        examined, findings = examine(text)
        if not examined:
            print(f"{path}: holds no kernel with wgmma", file=sys.stderr)
            return 2
        wrong += findings
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
