#!/usr/bin/env python3
"""Trains the judge of changes and of wishes on the texts beside this file, and writes it for ONNX Runtime.

    train.py --base DIR --encoder DIR --out DIR    bge-small-en-v1.5.onnx with its tokenizer, and .keepsake/model

It learns stories, contrasts, standing and tasks, and prints what it finds of held-out, pairs and of tests/data/standing,
which it does not learn.
"""

import argparse
import glob
import json
import os
import random
import time

import numpy as np
import torch
from torch.nn import functional

import model as judge_model
from model import LABELS, RELATIONS, WISHES, Judge, base_weights, batch_of, read_stories, smaller, statement

import export

HERE = os.path.dirname(os.path.abspath(__file__))
TURNS = os.path.join(HERE, "..", "..", "tests", "data", "standing")
PIECES = 15_000
LAYERS = 10
OF_CHANGE, OF_WISH = slice(0, len(RELATIONS)), slice(len(RELATIONS), len(LABELS))
CHANGES = [RELATIONS.index("ends"), RELATIONS.index("replaces")]
STANDING = [WISHES.index("standing")]
LEFT_OUT = 10  # every so many-th story and sentence, to measure the probabilities
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


def examples(stories, nearness, rng, contrasts):
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


def sentences(standing, people):
    """What is a wish for all answers, what is not. A task is none."""
    rows = [(one["text"], None, WISHES.index(one["label"])) for one in standing]
    for one in people:
        rows += [(text, None, WISHES.index("standing")) for text in one["wishes"]]
        rows += [(task["text"], None, WISHES.index("none")) for task in one["tasks"]]
    return rows


def encoded(tokenizer, first, second):
    return tokenizer.encode(first) if second is None else tokenizer.encode(first, second)


def batches(rows, tokenizer, size, rng):
    """Of similar length, in random order."""
    made = [(encoded(tokenizer, a, b), label) for a, b, label in rows]
    made.sort(key=lambda one: len(one[0].ids) + rng.random() * 8)
    groups = [made[n : n + size] for n in range(0, len(made), size)]
    rng.shuffle(groups)
    return groups


def train(judge, tokenizer, tasks, chosen, say):
    """`tasks`: columns of the output, and a function that draws the examples of a round."""
    rng = random.Random(chosen.seed)
    torch.manual_seed(chosen.seed)
    known, new = [], []
    for name, value in judge.named_parameters():
        (new if name.startswith(("dense", "head")) else known).append(value)
    optimizer = torch.optim.AdamW([{"params": known}, {"params": new}], lr=chosen.rate, weight_decay=0.01)
    steps = chosen.epochs * sum(len(draw(random.Random(chosen.seed))) // chosen.batch + 1 for _, draw in tasks)
    spare = 40  # rounds differ a little in length
    rates = [chosen.rate, 5 * chosen.rate]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps + spare, pct_start=0.1, anneal_strategy="linear")
    judge.train()
    began, step = time.time(), 0
    for epoch in range(chosen.epochs):
        groups = [(columns, group) for columns, draw in tasks for group in batches(draw(rng), tokenizer, chosen.batch, rng)]
        rng.shuffle(groups)
        losses = {columns.start: [] for columns, _ in tasks}
        for columns, group in groups:
            ids, types, mask = batch_of([one for one, _ in group])
            wanted = torch.tensor([label for _, label in group])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = judge(ids, types, mask)
            loss = functional.cross_entropy(logits.float()[:, columns], wanted, label_smoothing=0.02)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(judge.parameters(), 1.0)
            optimizer.step()
            if step < steps + spare - 1:
                schedule.step()
            step += 1
            losses[columns.start].append(loss.item())
            if step % 100 == 0:
                say(f"step {step} of {steps}: losses {recent(losses)}, {time.time() - began:.0f} s")
        say(f"round {epoch + 1}: {time.time() - began:.0f} s")
    judge.eval()


def fit_wishes(judge, tokenizer, rows):
    """Fits the head's rows of wishes alone, on what the trunk has learned. With ordinary statements among the rows, which
    the sentences lack; relations stay as they are."""
    features = []
    hook = judge.head.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].float()))
    logits_of(judge, tokenizer, [row[:2] for row in rows])
    hook.remove()
    order = sorted(range(len(rows)), key=lambda n: len(encoded(tokenizer, *rows[n][:2]).ids))
    inputs, wanted = torch.cat(features), torch.tensor([rows[n][2] for n in order])
    weight = torch.zeros(len(WISHES), inputs.shape[1], requires_grad=True)
    bias = torch.zeros(len(WISHES), requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=400, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = functional.cross_entropy(inputs @ weight.T + bias, wanted) + 1e-3 * (weight**2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    with torch.no_grad():
        judge.head.weight[OF_WISH], judge.head.bias[OF_WISH] = weight, bias


def recent(losses):
    return ", ".join(f"{np.mean(some[-100:]):.3f}" for some in losses.values() if some)


def logits_of(judge, tokenizer, rows):
    found = np.zeros((len(rows), len(LABELS)), dtype=np.float32)
    made = sorted(((encoded(tokenizer, a, b), n) for n, (a, b) in enumerate(rows)), key=lambda one: len(one[0].ids))
    for begin in range(0, len(made), 64):
        group = made[begin : begin + 64]
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


def report(name, logits, truth, wanted, missed=0, constants=(1.0, 0.0)):
    """`wanted`: the labels that are to be found among these columns. `missed`: those that are no candidates."""
    right = np.isin(truth, wanted)
    p = softmax(calibrated(logits, wanted, constants))[:, wanted].sum(axis=1)
    count = right.sum() + missed
    order = np.argsort(-p)
    hits = np.cumsum(right[order])
    precision = hits / np.arange(1, len(p) + 1)
    average = (precision * right[order]).sum() / count
    line = [f"{name}: {count} of {len(p)}, {missed} no candidates, average precision {average:.3f}"]
    for bound in (0.3, 0.5, 0.7, 0.8):
        sure = p > bound
        line.append(f"p > {bound}: found {right[sure].sum() / count:.1%}, right {right[sure].mean() if sure.any() else 0:.1%}")
    bins = np.clip((p * 10).astype(int), 0, 9)
    error = sum(abs(right[bins == b].mean() - p[bins == b].mean()) * (bins == b).mean() for b in range(10) if (bins == b).any())
    line.append(f"calibration error {error:.3f}")
    return "; ".join(line)


def calibration(logits, truth, wanted):
    """The temperature, and what is taken from the logits of `wanted`, with which their probability is true."""
    right = np.isin(truth, wanted)

    def loss(constants):
        p = softmax(calibrated(logits, wanted, constants))[:, wanted].sum(axis=1).clip(1e-6, 1 - 1e-6)
        return -np.where(right, np.log(p), np.log(1 - p)).mean()

    return min(((t, less) for t in np.arange(0.6, 3.0, 0.1) for less in np.arange(-1.0, 3.0, 0.1)), key=loss)


def calibrated(logits, wanted, constants):
    temperature, less = constants
    changed = logits / temperature
    changed[:, wanted] -= less
    return changed


def save(judge, tokenizer, constants, directory):
    """`constants`: the calibration of the relations."""
    os.makedirs(directory, exist_ok=True)
    temperature, less = constants
    with torch.no_grad():
        judge.head.weight[OF_CHANGE] /= temperature
        judge.head.bias[OF_CHANGE] /= temperature
        judge.head.bias[CHANGES] -= less
    export.quantise(judge_model.as_onnx(judge), os.path.join(directory, "model.onnx"))
    tokenizer.save(os.path.join(directory, "tokenizer.json"), pretty=False)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"id2label": {str(n): name for n, name in enumerate(LABELS)}}, file)
        file.write("\n")


def by_runtime(directory, tokenizer, rows):
    session = export.open_session(os.path.join(directory, "model.onnx"))
    found = []
    for a, b in rows:
        ids, types, mask = (part.numpy() for part in batch_of([encoded(tokenizer, a, b)]))
        found.append(session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": types})[0][0])
    return np.array(found)


def texts_of(kind):
    return read_stories(sorted(glob.glob(os.path.join(HERE, kind, "*.jsonl"))))


def split(rows):
    """What is learned, what is left out."""
    return [row for n, row in enumerate(rows) if n % LEFT_OUT], [row for n, row in enumerate(rows) if not n % LEFT_OUT]


def turns():
    """The user's turns of tests/data/standing, and whether each is a standing wish."""
    with open(os.path.join(TURNS, "labels.jsonl"), encoding="utf-8") as lines:
        standing = {turn for line in lines for turn in json.loads(line)["standing"]}
    with open(os.path.join(TURNS, "tasks.jsonl"), encoding="utf-8") as lines:
        said = [turn for line in lines for turn in json.loads(line)["turns"] if turn["role"] == "user"]
    return [(turn["content"], None, WISHES.index("standing" if turn["id"] in standing else "none")) for turn in said]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--base", required=True, help="directory with bge-small-en-v1.5.onnx and its tokenizer")
    arguments.add_argument("--encoder", required=True, help="directory of the encoder that finds the candidates")
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--epochs", type=int, default=3)
    arguments.add_argument("--rate", type=float, default=8e-5)
    arguments.add_argument("--batch", type=int, default=32)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--part", type=int, default=1, help="learn every so many-th story and group only, for a first try")
    chosen = arguments.parse_args()
    say = lambda text: print(text, flush=True)
    torch.set_num_threads(int(os.environ.get("THREADS", os.cpu_count())))

    stories, held = texts_of("stories")[:: chosen.part], texts_of("held-out")[:: chosen.part]
    contrasts = contrasted(texts_of("contrasts")[:: chosen.part])
    wishes = sentences(texts_of("standing"), texts_of("tasks"))[:: chosen.part]
    base = os.path.join(chosen.base, "bge-small-en-v1.5")
    texts = [statement(one) for story in stories for one in story["statements"]] + [text for a, b, _ in contrasts for text in (a, b)]
    tokenizer, kept = smaller(f"{base}-tokenizer.json", texts + [text for text, _, _ in wishes], PIECES)
    tokenizer.enable_truncation(max_length=judge_model.TOKENS_MAX)
    finder = Nearness(chosen.encoder)
    nearness = {story["id"]: finder.of(story) for story in stories + held}
    say(f"{len(stories)} stories, {len(contrasts)} contrasts, {len(wishes)} sentences, {len(kept)} pieces")

    own, left_out = split(stories)
    tasks = [(OF_CHANGE, lambda rng: examples(own, nearness, rng, contrasts)), (OF_WISH, lambda _: wishes)]
    judge = Judge(base_weights(f"{base}.onnx"), kept, list(range(LAYERS)))
    train(judge, tokenizer, tasks, chosen, say)

    rows, truth, gone = judged(left_out, nearness)
    found = logits_of(judge, tokenizer, rows)[:, OF_CHANGE]
    of_change = calibration(found, truth, CHANGES)
    say(report("changes, left out", found, truth, CHANGES, gone, of_change))
    ordinary = [(text, None, WISHES.index("none")) for story in stories for _, _, text in story["statements"]]
    standing = sentences(texts_of("standing"), [])[:: chosen.part]
    learned, left_wishes = split(standing + random.Random(chosen.seed).sample(ordinary, len(standing)))
    fit_wishes(judge, tokenizer, learned)
    found = logits_of(judge, tokenizer, [row[:2] for row in left_wishes])[:, OF_WISH]
    say(report("wishes, left out", found, np.array([row[2] for row in left_wishes]), STANDING))
    save(judge, tokenizer, of_change, chosen.out)

    def measured(name, rows, truth, columns, wanted, missed=0):
        say(report(name, by_runtime(chosen.out, tokenizer, rows)[:, columns], truth, wanted, missed))

    pairs = texts_of("pairs")[:: chosen.part]
    for name, is_one in (("English", lambda one: one["lang"] == "en"), ("other languages", lambda one: one["lang"] != "en")):
        rows, truth, gone = judged([story for story in held if is_one(story)], nearness)
        measured(f"changes, held out, {name}", rows, truth, OF_CHANGE, CHANGES, gone)
        some = [one for one in pairs if is_one(one)]
        truth = np.array([RELATIONS.index("replaces" if one["changes"] else "unrelated") for one in some])
        measured(f"changes, pairs, {name}", [(statement(one["earlier"]), statement(one["later"])) for one in some], truth, OF_CHANGE, CHANGES)
    said = turns()
    measured("wishes, turns", [row[:2] for row in said], np.array([row[2] for row in said]), OF_WISH, STANDING)


if __name__ == "__main__":
    main()
