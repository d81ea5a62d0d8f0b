"""bench/gpu/kernel_hazards.py on machine code that was written for this test: each hazard is found on the path that has
it, and correct code passes."""
import contextlib
import io
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench" / "gpu"))

import kernel_hazards  # noqa: E402  (the path above comes first)

FIRST = "HGMMA.64x16x16.F32.BF16 R24, R4, gdesc[UR8], RZ, !UPT, gsb0"  # sums R24 to R31, first operand R4 to R7
SECOND = "HGMMA.64x16x16.F32.BF16 R40, gdesc[UR12], RZ, !UPT, gsb0"  # sums R40 to R47
WAIT_ALL, WAIT_ONE = "WARPGROUP.DEPBAR.LE gsb0, 0x0", "WARPGROUP.DEPBAR.LE gsb0, 0x1"


def findings(*instructions):
    """Returns the number of findings for a kernel of these instructions, 16 bytes each, and the printed text."""
    lines = ["\t\tFunction : kernel"]
    lines += [f"        /*{16 * i:04x}*/                   {text} ;  /* 0x0 */" for i, text in enumerate(instructions)]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        examined, found = kernel_hazards.examine("\n".join(lines))
    assert examined == 1
    return found, printed.getvalue()


class Hazards(unittest.TestCase):
    def expect(self, count, words, *instructions):
        found, printed = findings(*instructions)
        self.assertEqual(found, count, printed)
        self.assertIn(words, printed)

    def test_what_is_right_passes(self):
        self.expect(0, "no findings", FIRST, SECOND, WAIT_ONE, "FADD R0, R24, R31", WAIT_ALL, "FADD R0, R40, R47",
                    "EXIT")
        self.expect(0, "no findings", FIRST, FIRST, WAIT_ALL, "STS.128 [R2], R24", "EXIT")  # a chain of the same sums
        self.expect(0, "no findings", FIRST, "FADD R0, R4, R7", WAIT_ALL, "EXIT")  # reading the operand is harmless

    def test_sums_are_not_touched_before_their_wait(self):
        self.expect(1, "touches sums of", FIRST, "FADD R0, R1, R24", WAIT_ALL, "EXIT")
        self.expect(1, "touches sums of", FIRST, SECOND, WAIT_ONE, "FADD R0, R40, R1", WAIT_ALL, "EXIT")
        self.expect(1, "touches sums of", FIRST, "STS.128 [R2], R20", "STS.128 [R2], R28", WAIT_ALL, "EXIT")
        self.expect(1, "touches sums of", FIRST, "CS2R R22, SRZ", "CS2R R30, SRZ", WAIT_ALL, "EXIT")
        self.expect(1, "touches sums of", FIRST, "LDG.E.64 R2, desc[UR4][R30.64]", WAIT_ALL, "EXIT")

    def test_one_path_of_many_is_enough(self):
        self.expect(1, "touches sums of", FIRST, "@P0 BRA 0x30", WAIT_ALL, "FADD R0, R24, R1", "EXIT")
        loop = ("FADD R0, R24, R1", WAIT_ALL, FIRST, "@P0 BRA 0x0", WAIT_ALL, "EXIT")  # the second turn reads too early
        self.expect(1, "touches sums of", *loop)
        called = (FIRST, "CALL.REL.NOINC 0x50", WAIT_ALL, "FADD R0, R24, R1", "EXIT", "MOV R1, R25",
                  "RET.REL.NODEC R2 0x0")
        self.expect(1, "MOV R1, R25", *called)

    def test_operands_are_not_overwritten(self):
        self.expect(1, "overwrites the first operand of", FIRST, "LDS.128 R4, [R2]", WAIT_ALL, "EXIT")
        self.expect(1, "overwrites the first operand of", FIRST, "MOV R7, R0", "MOV R8, R0", WAIT_ALL, "EXIT")
        self.expect(1, "overwrites the first operand of", FIRST,
                    "HGMMA.64x16x16.F32.BF16 R6, gdesc[UR12], RZ, !UPT, gsb0", WAIT_ALL, "EXIT")

    def test_products_do_not_share_sums(self):
        self.expect(1, "adds to a part of the sums of", FIRST,
                    "HGMMA.64x16x16.F32.BF16 R28, gdesc[UR12], RZ, !UPT, gsb0", WAIT_ALL, "EXIT")
        self.expect(1, "multiplies sums that are under way", FIRST,
                    "HGMMA.64x16x16.F32.BF16 R40, R24, gdesc[UR12], RZ, !UPT, gsb0", WAIT_ALL, "EXIT")

    def test_registers_that_were_given_back_are_not_named(self):
        self.expect(1, "32 registers are left", FIRST, WAIT_ALL, "USETMAXREG.DEALLOC.CTAPOOL 0x20", "MOV R31, R0",
                    "MOV R32, R0", "EXIT")

    def test_what_it_cannot_follow_is_a_finding(self):
        self.expect(1, "a jump whose target the code does not name", FIRST, WAIT_ALL, "BRX R4 -0x40", "EXIT")
        self.expect(1, "products without a wait", FIRST, "BRA 0x0", "EXIT")
        self.expect(1, "a jump out of the kernel", FIRST, WAIT_ALL, "BRA 0x9990", "EXIT")


if __name__ == "__main__":
    unittest.main()
