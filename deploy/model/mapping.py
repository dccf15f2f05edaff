#!/usr/bin/env python3
"""Maps the vectors of one encoder into the space of another, so that both can be compared.

The mapping is linear: ridge regression from the centred vectors of multilingual-e5-small to those of all-MiniLM-L6-v2,
over English sentences that both encode. Sentences of other languages are mapped the same way, less the mean of their own
vectors: multilingual-e5-small puts a sentence near its translations, so the mapping holds there too.

    mapping.py --english DIR --multilingual DIR --out mapping.npz TEXTS...

fits `mapping.npz`, which is committed. DIR are encoder directories, the multilingual one exported without a mapping. TEXTS
are the JSON Lines of deploy/judge and texts.tsv. Printed are figures over 2,000 English sentences that were not fitted.
"""

import argparse
import json
import os

import numpy as np

import export

HELD_OUT = 2_000
RIDGE = 1.0


class Mapping:
    """`centre` is subtracted, `matrix` multiplied, and `shared` added, each at length one."""

    def __init__(self, centre, matrix, shared):
        self.centre, self.matrix, self.shared = (np.asarray(part, dtype=np.float32) for part in (centre, matrix, shared))

    @staticmethod
    def read(file):
        with np.load(file) as parts:
            return Mapping(parts["centre"], parts["matrix"], parts["shared"])

    def write(self, file):
        parts = {"centre": self.centre, "matrix": self.matrix, "shared": self.shared}
        np.savez_compressed(file, **{name: part.astype(np.float16) for name, part in parts.items()})

    def apply(self, vectors):
        turned = unit(unit(unit(vectors) - self.centre) @ self.matrix)
        return unit(turned + self.shared)


def unit(vectors):
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def fit(english, multilingual, others):
    """From vectors of the same English sentences by both encoders, and of other languages' sentences by the second."""
    shared = english.mean(axis=0)
    known = unit(multilingual - multilingual.mean(axis=0)).astype(np.float64)
    wanted = (english - shared).astype(np.float64)
    matrix = np.linalg.solve(known.T @ known + RIDGE * np.eye(known.shape[1]), known.T @ wanted)
    return Mapping(others.mean(axis=0), matrix, shared), Mapping(multilingual.mean(axis=0), matrix, shared)


def sentences(files):
    """Pairs of language and sentence, each sentence once."""
    found = {}
    for file in files:
        with open(file, encoding="utf-8") as opened:
            for line in opened:
                if file.endswith(".tsv"):
                    language, *texts = line.rstrip("\n").split("\t")
                else:
                    row = json.loads(line)
                    language = row.get("lang", "en")
                    texts = [row.get(name) for name in ("text", "earlier", "later")]
                    texts += [statement[2] for statement in row.get("statements", [])]
                for text in texts:
                    if isinstance(text, str) and text:
                        found.setdefault(text, language)
    return [(language, text) for text, language in found.items()]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--english", "--multilingual", "--out"):
        arguments.add_argument(name, required=True)
    arguments.add_argument("texts", nargs="+")
    chosen = arguments.parse_args()

    rows = sentences(chosen.texts)
    texts = [text for _, text in rows]
    is_english = np.array([language == "en" for language, _ in rows])
    print(f"mapping: {is_english.sum()} English sentences, {(~is_english).sum()} others")

    def encoded(directory):
        session = export.open_session(os.path.join(directory, "fused.onnx"))
        return export.encode(session, export.open_tokenizer(directory), texts)

    english, multilingual = encoded(chosen.english), encoded(chosen.multilingual)
    order = np.random.default_rng(1).permutation(np.flatnonzero(is_english))
    held_out, fitted = order[:HELD_OUT], order[HELD_OUT:]
    mapping, of_english = fit(english[fitted], multilingual[fitted], multilingual[~is_english])
    mapping.write(chosen.out)
    mapped = of_english.apply(multilingual[held_out])
    cosines = (mapped * unit(english[held_out])).sum(axis=1)
    print(f"mapping: held-out sentences have a cosine of {cosines.mean():.3f} to their own vectors")
    for name, vectors in (("English", mapped), ("others", mapping.apply(multilingual[~is_english]))):
        apart = (vectors @ vectors.T)[~np.eye(len(vectors), dtype=bool)]
        print(f"mapping: unrelated sentences, {name}: cosine {apart.mean():.3f} ± {apart.std():.3f}")


if __name__ == "__main__":
    main()
