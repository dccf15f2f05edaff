#!/usr/bin/env python3
"""Learns to tell chatter from what is worth keeping for weeks, by the vector of a text.

A logistic regression with a ridge, over the vectors that the encoder gives "speaker: text", each sort with the same weight.
The texts are `chatter/*.jsonl`, written for this by four hands; from `../judge`, its standing wishes and the statements of
its stories that a later one changes or adds to are worth keeping, and its wishes for one answer are chatter.
`chatter/held-out.jsonl`, by a fifth hand, is only measured.

    PYTHONPATH=packages python3 chatter.py --english DIR --multilingual DIR --out chatter.json

DIR are the encoder directories that setup.sh makes, and packages those of requirements.txt. `chatter.json` is committed;
other machines give other digits.
"""

import argparse
import glob
import json
import os
import random

import numpy as np

import export

HERE = os.path.dirname(os.path.abspath(__file__))
RIDGE = 0.1
STATEMENTS_OF_STORIES = 3_000
# A vector has the speaker in it, whose name must not matter.
SPEAKERS = ["user"] * 3 + "Ana Callum Dee Filipa Greg Hannah Ivan Kunal Leila Maureen Mei Nils Obi Priya Rosa Tom".split()


def lines(pattern):
    for file in sorted(glob.glob(os.path.join(HERE, pattern))):
        with open(file, encoding="utf-8") as opened:
            yield from map(json.loads, opened)


def written():
    """Text, language, and true for chatter."""
    for row in lines("chatter/[!h]*.jsonl"):
        yield row["text"], row["lang"], row["label"] == "chatter"
    for row in lines("../judge/standing/*.jsonl"):
        # A request with a number in it often carries a fact: "locker 114, code 7703".
        if row["label"] == "standing" or row["label"] == "one_off" and not any(map(str.isdigit, row["text"])):
            yield row["text"], row["lang"], row["label"] == "one_off"


def of_stories():
    found = []
    for story in lines("../judge/stories/*.jsonl"):
        lasting = {place for link in story["links"] if link[2] in ("replaces", "ends", "adds") for place in link[:2]}
        found += [(story["statements"][place][2], story["lang"], False) for place in sorted(lasting)]
    return random.sample(found, STATEMENTS_OF_STORIES)


def fit(vectors, is_chatter):
    """Newton's method; the bias has no ridge."""
    x = np.hstack([vectors, np.ones((len(vectors), 1))]).astype(np.float64)
    balance = np.where(is_chatter, 0.5 / is_chatter.mean(), 0.5 / (~is_chatter).mean())
    ridge = RIDGE * np.eye(x.shape[1])
    ridge[-1, -1] = 0.0
    weights = np.zeros(x.shape[1])
    for _ in range(20):
        p = 1.0 / (1.0 + np.exp(-x @ weights))
        slope = x.T @ (balance * (p - is_chatter)) + ridge @ weights
        curve = (x * (balance * p * (1.0 - p))[:, None]).T @ x + ridge
        weights -= np.linalg.solve(curve, slope)
    return weights


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--english", "--multilingual", "--out"):
        arguments.add_argument(name, required=True)
    chosen = arguments.parse_args()
    random.seed(1)

    def encoded(rows):
        vectors = np.zeros((len(rows), 384), np.float32)
        for directory, is_english in ((chosen.english, True), (os.path.join(chosen.multilingual, "languages"), False)):
            places = [n for n, row in enumerate(rows) if (row[1] == "en") == is_english]
            session = export.open_session(os.path.join(directory, "fused.onnx"))
            texts = [f"{random.choice(SPEAKERS)}: {rows[n][0]}" for n in places]
            vectors[places] = export.encode(session, export.open_tokenizer(directory), texts)
        return vectors, np.array([row[2] for row in rows])

    rows = list(written()) + of_stories()
    vectors, is_chatter = encoded(rows)
    weights = fit(vectors, is_chatter)
    print(f"chatter: {is_chatter.sum()} texts of chatter, {(~is_chatter).sum()} others")
    held_out = [(row["text"], row["lang"], row["label"] == "chatter") for row in lines("chatter/held-out.jsonl")]
    vectors, is_chatter = encoded(held_out)
    logits = vectors @ weights[:-1] + weights[-1]
    for limit in (0.5, 0.8, 0.88, 0.95):
        taken = 1.0 / (1.0 + np.exp(-logits)) > limit
        print(f"chatter: held out, from {limit} on: {taken[is_chatter].mean():.0%} of chatter, {taken[~is_chatter].sum()} of {(~is_chatter).sum()} others")
    with open(chosen.out, "w", encoding="utf-8") as out:
        json.dump({"bias": round(float(weights[-1]), 4), "weights": [round(float(weight), 4) for weight in weights[:-1]]}, out)
        out.write("\n")


if __name__ == "__main__":
    main()
