#!/usr/bin/env python3
"""Writes the cross-encoders of the tests: so small that a reader can work out their scores.

Each word of a short list has a meaning, and some share one (boat, ship). The score of a pair is the number of its words, one in the
question and one in the text, that mean the same: 4 for each, less 2. `typed` tells question and text apart by `token_type_ids`, as BERTs do;
`untyped` has no such input, as RoBERTas have not, and counts all words of a pair that mean the same as another.

    make.py    writes typed/ and untyped/ beside itself; needs numpy and onnx, pinned in deploy/model/requirements.txt
"""

import json
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
MEANINGS = ["boat ship", "dog puppy pet", "tea drink", "home flat live", "anna", "harbour", "a"]
POINTS, SHIFT = 4.0, -2.0


def words():
    """Every word with the place of its meaning; special tokens have none."""
    return [(word, place) for place, meaning in enumerate(MEANINGS) for word in meaning.split()]


def table():
    rows = np.zeros((len(SPECIAL) + len(words()), len(MEANINGS)), dtype=np.float32)
    for row, (_, place) in enumerate(words(), len(SPECIAL)):
        rows[row, place] = 1
    return rows


def graph(typed):
    constants = {
        "table": table(),
        "one": np.array([1], dtype=np.float32),
        "points": np.array([POINTS if typed else POINTS / 2], dtype=np.float32),
        "shift": np.array([SHIFT], dtype=np.float32),
        "tokens": np.array([1], dtype=np.int64),
        "last": np.array([-1], dtype=np.int64),
    }
    nodes = []

    def op(kind, inputs, name, **attributes):
        nodes.append(helper.make_node(kind, inputs, [name], name=f"node_{name}", **attributes))
        return name

    def summed(weights, name):
        column = op("Unsqueeze", [weights, "last"], f"{name}_column")
        return op("ReduceSum", [op("Mul", ["meanings", column], f"{name}_weighed"), "tokens"], name, keepdims=0)

    op("Gather", ["table", "input_ids"], "meanings")
    op("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    if typed:
        op("Cast", ["token_type_ids"], "types", to=TensorProto.FLOAT)
        of_text = op("Mul", ["mask", "types"], "of_text")
        of_question = op("Mul", ["mask", op("Sub", ["one", "types"], "not_types")], "of_question")
        same = op("Mul", [summed(of_question, "question"), summed(of_text, "text")], "same")
        count = op("ReduceSum", [same, "last"], "count", keepdims=1)
    else:
        all_of_it = summed("mask", "pair")
        squares = op("ReduceSum", [op("Mul", [all_of_it, all_of_it], "square"), "last"], "squares", keepdims=1)
        count = op("Sub", [squares, op("ReduceSum", [all_of_it, "last"], "itself", keepdims=1)], "count")
    op("Add", [op("Mul", [count, "points"], "gained"), "shift"], "logits")

    names = ["input_ids", "attention_mask"] + ["token_type_ids"] * typed
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"]) for name in names]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1])]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    if not typed:
        initializers = [one for one in initializers if one.name != "one"]
    made = helper.make_graph(nodes, "a-small-cross-encoder", inputs, outputs, initializers)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="keepsake")
    onnx.checker.check_model(model, full_check=True)
    return model


def tokenizer():
    def special(name):
        return {"id": name, "ids": [SPECIAL.index(name)], "tokens": [name]}

    def piece(kind, name, segment):
        return {kind: {"id": name, "type_id": segment}}

    first = [piece("SpecialToken", "[CLS]", 0), piece("Sequence", "A", 0), piece("SpecialToken", "[SEP]", 0)]
    vocabulary = SPECIAL + [word for word, _ in words()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for number, token in enumerate(SPECIAL)
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": first,
            "pair": first + [piece("Sequence", "B", 1), piece("SpecialToken", "[SEP]", 1)],
            "special_tokens": {name: special(name) for name in ("[CLS]", "[SEP]")},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {token: number for number, token in enumerate(vocabulary)}, "unk_token": "[UNK]"},
    }


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    for name in ("typed", "untyped"):
        folder = os.path.join(here, name)
        os.makedirs(folder, exist_ok=True)
        onnx.save(graph(name == "typed"), os.path.join(folder, "model.onnx"))
        with open(os.path.join(folder, "tokenizer.json"), "w") as file:
            json.dump(tokenizer(), file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
