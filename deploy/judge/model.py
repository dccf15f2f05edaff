"""The judge as torch computes it, and the same as an ONNX graph: the first layers of bge-small-en-v1.5 over a pair of
statements or one sentence, and one number for each of LABELS."""

import datetime
import json
import os
import sys

import numpy as np
import onnx
import torch
from onnx import TensorProto, checker, helper, numpy_helper
from tokenizers import Tokenizer
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "model"))
import export

RELATIONS = ["unrelated", "same", "adds", "ends", "replaces"]
WISHES = ["none", "standing", "one_off", "quoted"]
LABELS = RELATIONS + WISHES
TOKENS_MAX = 160
LAYERS = 12  # of the base


def read_stories(files):
    stories = []
    for file in files:
        with open(file, encoding="utf-8") as lines:
            stories += [dict(json.loads(line), writer=os.path.basename(file)) for line in lines if line.strip()]
    return stories


def statement(one):
    """As the compaction worker writes it: "Ann, 2 March, 2025: I live in Porto."."""
    date, speaker, text = one
    return f"{speaker}, {datetime.date.fromisoformat(date):%-d %B, %Y}: {text}"


def base_weights(path):
    """By BERT's names. The exported graph names only vectors; its matrices come in the order of their use."""
    model = onnx.load(path)
    named = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    used = [name for node in model.graph.node if node.op_type == "MatMul" for name in node.input if name in named]
    matrices = iter(named[name].T.copy() for name in dict.fromkeys(used))
    parts = [Layer.NAMES[part] for part in ("query", "key", "value", "out", "wide", "narrow")]
    for number in range(LAYERS):
        named |= {f"encoder.layer.{number}.{part}.weight": next(matrices) for part in parts}
    return named


def smaller(path, texts, count):
    """The base's tokenizer with the pieces that the texts use and its first others. Returns it and the old ids."""
    whole = Tokenizer.from_file(path)
    whole.no_truncation()
    whole.no_padding()
    with open(path, encoding="utf-8") as file:
        written = json.load(file)
    names = {number: piece for piece, number in written["model"]["vocab"].items()}
    special = {one["id"] for one in written["added_tokens"]}
    kept = special | {number for text in texts for number in whole.encode(text).ids}
    others = [number for number in sorted(names) if number not in kept and not names[number].startswith("[unused")]
    kept = sorted(kept | set(others[: max(0, count - len(kept))]))
    place = {old: new for new, old in enumerate(kept)}
    written["model"]["vocab"] = {names[old]: new for old, new in place.items()}
    for one in written["added_tokens"]:
        one["id"] = place[one["id"]]
    for one in written["post_processor"]["special_tokens"].values():
        one["ids"] = [place[number] for number in one["ids"]]
    return Tokenizer.from_str(json.dumps(written)), kept


class Layer(nn.Module):
    def __init__(self, hidden=export.HIDDEN, wide=4 * export.HIDDEN):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden) for _ in range(4))
        self.wide, self.narrow = nn.Linear(hidden, wide), nn.Linear(wide, hidden)
        self.after_attention = nn.LayerNorm(hidden, eps=export.LAYER_NORM_EPSILON)
        self.after_feed = nn.LayerNorm(hidden, eps=export.LAYER_NORM_EPSILON)
        self.dropout = nn.Dropout(0.1)

    NAMES = {"query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
             "out": "attention.output.dense", "wide": "intermediate.dense", "narrow": "output.dense",
             "after_attention": "attention.output.LayerNorm", "after_feed": "output.LayerNorm"}

    def forward(self, x, bias):
        rows, length, hidden = x.shape

        def heads(part):
            return part.view(rows, length, export.HEADS, export.HEAD).transpose(1, 2)

        query, key, value = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        shares = torch.softmax(query @ key.transpose(2, 3) * export.HEAD**-0.5 + bias, dim=-1)
        mixed = (self.dropout(shares) @ value).transpose(1, 2).reshape(rows, length, hidden)
        x = self.after_attention(x + self.dropout(self.out(mixed)))
        return self.after_feed(x + self.dropout(self.narrow(functional.gelu(self.wide(x)))))


class Judge(nn.Module):
    """`layers`: which layers of the encoder are taken."""

    def __init__(self, weights, kept, layers):
        super().__init__()
        hidden = export.HIDDEN
        self.words = nn.Embedding.from_pretrained(torch.tensor(weights["embeddings.word_embeddings.weight"][kept]), freeze=True)
        first, second = weights["embeddings.token_type_embeddings.weight"]
        self.positions = nn.Parameter(torch.tensor(weights["embeddings.position_embeddings.weight"][:TOKENS_MAX] + first))
        self.segments = nn.Embedding.from_pretrained(torch.tensor(np.stack([np.zeros_like(first), second - first])), freeze=False)
        self.norm = nn.LayerNorm(hidden, eps=export.LAYER_NORM_EPSILON)
        self.norm.weight.data = torch.tensor(weights["embeddings.LayerNorm.weight"])
        self.norm.bias.data = torch.tensor(weights["embeddings.LayerNorm.bias"])
        self.layers = nn.ModuleList(Layer() for _ in layers)
        for layer, number in zip(self.layers, layers):
            for own, theirs in Layer.NAMES.items():
                part = getattr(layer, own)
                part.weight.data = torch.tensor(weights[f"encoder.layer.{number}.{theirs}.weight"])
                part.bias.data = torch.tensor(weights[f"encoder.layer.{number}.{theirs}.bias"])
        self.dense, self.head = nn.Linear(4 * hidden, hidden), nn.Linear(hidden, len(LABELS))
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids, types, mask):
        x = self.words(ids) + self.positions[: ids.shape[1]] + self.segments(types)
        x = self.dropout(self.norm(x))
        bias = ((1 - mask.float()) * -1e4)[:, None, None, :].to(x.dtype)
        for layer in self.layers:
            x = layer(x, bias)
        # The mean of each statement's tokens, as the encoder was trained, and how the two differ.
        second = (types * mask).to(x.dtype)[:, :, None]
        first = mask.to(x.dtype)[:, :, None] - second
        a, b = ((x * part).sum(dim=1) / part.sum(dim=1).clamp(min=1) for part in (first, second))
        joined = torch.cat([a, b, (a - b).abs(), a * b], dim=1)
        return self.head(self.dropout(torch.tanh(self.dense(joined))))


def batch_of(encodings):
    length = max(len(one.ids) for one in encodings)
    rows = np.zeros((3, len(encodings), length), dtype=np.int64)
    for number, one in enumerate(encodings):
        size = len(one.ids)
        rows[0, number, :size], rows[1, number, :size], rows[2, number, :size] = one.ids, one.type_ids, 1
    return [torch.from_numpy(part) for part in rows]


def as_onnx(judge):
    """The graph, with the layers of deploy/model/export.py."""
    graph = export.constants()
    state = {name: value.detach().float().numpy() for name, value in judge.state_dict().items()}
    weights = {}
    for number in range(len(judge.layers)):
        for own, theirs in Layer.NAMES.items():
            for part in ("weight", "bias"):
                weights[f"encoder.layer.{number}.{theirs}.{part}"] = state[f"layers.{number}.{own}.{part}"]
    weights |= {"norm.weight": state["norm.weight"], "norm.bias": state["norm.bias"]}
    mask = graph.op("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    per_head = graph.op("Unsqueeze", [mask, "head_axes"], "mask_per_head")
    bias = graph.op("Mul", [graph.op("Sub", ["one", per_head], "mask_inverted"), "masked_out"], "mask_bias")
    length = graph.op("Slice", [graph.op("Shape", ["input_ids"], "shape"), "first_axis", "second_axis", "zero"], "length")
    positions = graph.op("Slice", [graph.constant("positions_table", state["positions"]), "zero", length, "zero"], "positions")
    words = graph.op("Gather", [graph.constant("words", state["words.weight"]), "input_ids"], "word_vectors")
    segments = graph.op("Gather", [graph.constant("segments", state["segments.weight"]), "token_type_ids"], "segment_vectors")
    x = graph.op("Add", [graph.op("Add", [words, positions], "placed"), segments], "embedded")
    x = graph.layer_norm(x, "embedded_norm", weights, "norm")
    for number in range(len(judge.layers)):
        x = export.attention(graph, weights, number, x, bias)
        x = export.feed_forward(graph, weights, number, x)
    types = graph.op("Cast", ["token_type_ids"], "types", to=TensorProto.FLOAT)
    of_second = graph.op("Mul", [types, mask], "of_second")
    means = []
    for name, part in (("earlier", graph.op("Sub", [mask, of_second], "of_first")), ("later", of_second)):
        column = graph.op("Unsqueeze", [part, "last_axis"], f"{name}_column")
        total = graph.op("ReduceSum", [graph.op("Mul", [x, column], f"{name}_tokens"), "first_axis"], f"{name}_total", keepdims=0)
        count = graph.op("Max", [graph.op("ReduceSum", [column, "first_axis"], f"{name}_count_raw", keepdims=0), "one"], f"{name}_count")
        means.append(graph.op("Div", [total, count], f"{name}_mean"))
    apart = graph.op("Abs", [graph.op("Sub", means, "difference")], "apart")
    joined = graph.op("Concat", [*means, apart, graph.op("Mul", means, "product")], "joined", axis=1)
    dense = graph.op("Tanh", [graph.linear(joined, "dense", state["dense.weight"].T, state["dense.bias"])], "dense_tanh")
    product = graph.op("MatMul", [dense, graph.constant("head_weight", state["head.weight"].T)], "head_product")
    graph.op("Add", [product, graph.constant("head_bias", state["head.bias"])], "logits")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(LABELS)])
    made = helper.make_graph(graph.nodes, "judge of changes", inputs, [output], graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="keepsake")
    checker.check_model(model, full_check=True)
    return model
