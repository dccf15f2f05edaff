#!/usr/bin/env python3
"""Writes the judges of changes of the tests: so small that a reader can work out their scores.

Each word of a short list is a place, a drink or a pet. A statement changes another if one names one of a sort (Lisbon) and the other another
one (Porto), and neither names both. Both `replaces` and `ends` get 8 for each sort of which that holds, less 4; the other labels get 0.
`changes-first` and `changes-last` differ in the order of their five numbers, which `config.json` gives.

    make.py    writes the two folders beside itself; needs numpy and onnx, pinned in deploy/model/requirements.txt
"""

import json
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SORTS = ["lisbon porto madrid", "tea coffee", "cat dog"]
POINTS, SHIFT = 8.0, -4.0
ORDERS = {
    "changes-first": ["replaces", "ends", "adds", "same", "unrelated"],
    "changes-last": ["UNRELATED", "SAME", "ADDS", "ENDS", "REPLACES"],
}
CHANGES = ["replaces", "ends"]


def words():
    return [word for sort in SORTS for word in sort.split()]


def graph(labels):
    names = words()
    table = np.zeros((len(SPECIAL) + len(names), len(names)), dtype=np.float32)
    table[len(SPECIAL) :, :] = np.eye(len(names), dtype=np.float32)
    sort_of = np.array([[word in sort.split() for sort in SORTS] for word in names], dtype=np.float32)
    column = np.array([[label.lower() in CHANGES for label in labels]], dtype=np.float32)
    constants = {
        "table": table,
        "sort_of": sort_of,
        "column": column,
        "one": np.array([1], dtype=np.float32),
        "points": np.array([POINTS], dtype=np.float32),
        "shift": np.array([SHIFT], dtype=np.float32),
        "tokens": np.array([1], dtype=np.int64),
        "last": np.array([-1], dtype=np.int64),
    }
    nodes = []

    def op(kind, inputs, name, **attributes):
        nodes.append(helper.make_node(kind, inputs, [name], name=f"node_{name}", **attributes))
        return name

    def named(weights, side):
        """1 for each word that a side names, however often."""
        weighed = op("Mul", ["found", op("Unsqueeze", [weights, "last"], f"{side}_column")], f"{side}_weighed")
        return op("Min", [op("ReduceSum", [weighed, "tokens"], f"{side}_sum", keepdims=0), "one"], side)

    op("Gather", ["table", "input_ids"], "found")
    op("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    op("Cast", ["token_type_ids"], "types", to=TensorProto.FLOAT)
    earlier = named(op("Mul", ["mask", op("Sub", ["one", "types"], "not_types")], "of_earlier"), "earlier")
    later = named(op("Mul", ["mask", "types"], "of_later"), "later")
    # A sort counts if each side names one of it, and they share none.
    both = op("MatMul", [op("Mul", [earlier, later], "same"), "sort_of"], "both")
    earlier_sorts = op("MatMul", [earlier, "sort_of"], "earlier_sorts")
    later_sorts = op("MatMul", [later, "sort_of"], "later_sorts")
    each = op("Min", [op("Mul", [earlier_sorts, later_sorts], "product"), "one"], "each")
    differ = op("Relu", [op("Sub", [each, both], "less_both")], "differ")
    count = op("ReduceSum", [differ, "last"], "count", keepdims=1)
    gained = op("Add", [op("Mul", [count, "points"], "gains"), "shift"], "gained")
    op("MatMul", [gained, "column"], "logits")

    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"])
        for name in ("input_ids", "attention_mask", "token_type_ids")
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 5])]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    made = helper.make_graph(nodes, "a-small-judge", inputs, outputs, initializers)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="keepsake")
    onnx.checker.check_model(model, full_check=True)
    return model


def tokenizer():
    def special(name):
        return {"id": name, "ids": [SPECIAL.index(name)], "tokens": [name]}

    def piece(kind, name, segment):
        return {kind: {"id": name, "type_id": segment}}

    first = [piece("SpecialToken", "[CLS]", 0), piece("Sequence", "A", 0), piece("SpecialToken", "[SEP]", 0)]
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
        "model": {"type": "WordLevel", "vocab": {token: number for number, token in enumerate(SPECIAL + words())}, "unk_token": "[UNK]"},
    }


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    for name, labels in ORDERS.items():
        folder = os.path.join(here, name)
        os.makedirs(folder, exist_ok=True)
        onnx.save(graph(labels), os.path.join(folder, "model.onnx"))
        for file, content in (("tokenizer.json", tokenizer()), ("config.json", {"id2label": dict(enumerate(labels))})):
            with open(os.path.join(folder, file), "w") as out:
                json.dump(content, out, indent=1)
                out.write("\n")


if __name__ == "__main__":
    main()
