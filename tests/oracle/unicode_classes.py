#!/usr/bin/env python3
"""Writes the character classes that the `tokenizers` package uses.

Its regular expressions (Oniguruma) and its Digits pre-tokenizer (Rust's
char::is_numeric) carry their own Unicode versions, so the classes are read off
the package: every code point is put through it.

  pip install tokenizers==0.23.3
  tests/oracle/unicode_classes.py > src/meshwright/data/unicode_class_ranges.inc
"""
import tokenizers
from tokenizers import Regex
from tokenizers import pre_tokenizers as pre

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
LETTER, NUMBER, SPACE, MARK, NUMERIC = 1, 2, 4, 8, 16


def main():
    text = "".join(map(chr, CODE_POINTS))
    classes = bytearray(0x110000)
    for bit, name in ((LETTER, r"\p{L}"), (NUMBER, r"\p{N}"), (SPACE, r"\s"), (MARK, r"\p{M}")):
        keep = pre.Split(Regex(f"[^{name}]"), "removed")
        for _, (begin, end) in keep.pre_tokenize_str(text):
            for i in range(begin, end):
                classes[CODE_POINTS[i]] |= bit
    # An "x" between neighbours makes every numeric character a piece of its own.
    for piece, _ in pre.Digits(individual_digits=True).pre_tokenize_str("x".join(text.replace("x", ""))):
        if len(piece) == 1 and piece != "x":
            classes[ord(piece)] |= NUMERIC

    print(f"// Written by tests/oracle/unicode_classes.py with tokenizers {tokenizers.__version__}.")
    print("// {first, last, classes}: 1 letter, 2 number, 4 white space, 8 mark, 16 numeric.")
    print("// clang-format off")
    begin, line = 0, ""
    for c in range(1, 0x110001):
        if c == 0x110000 or classes[c] != classes[begin]:
            if classes[begin]:
                entry = "{0x%X,0x%X,%d}," % (begin, c - 1, classes[begin])
                if len(line) + len(entry) > 100:
                    print(line)
                    line = ""
                line += entry
            begin = c
    print(line)
    print("// clang-format on")


main()
