#!/usr/bin/env python3
"""Writes all-MiniLM-L6-v2 as a small ONNX graph: token ids in, unit vector out.

Built from the weights with numpy and onnx alone, so that nobody has to install torch to run Keepsake. The graph is the
whole encoder (BERT of 6 layers, masked mean, L2 norm); only the int8 variant is kept, and only after it has been run.
It is written twice: model.onnx in operators that every runtime has, and fused.onnx for one text without padding, with
ONNX Runtime's own operator for attention, which computes the same vectors in less time.

    export.py --source DIR --out DIR       SOURCE holds model.safetensors and tokenizer.json
    export.py --source DIR --check DIR     compares both graphs in DIR, and model.onnx before quantisation, with a float64
                                           forward pass
"""

import argparse
import logging
import math
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from safetensors.numpy import load_file
from tokenizers import Tokenizer

HIDDEN, HEADS = 384, 12
HEAD = HIDDEN // HEADS
PROJECTIONS = ("query", "key", "value")
FUSED = "com.microsoft"  # the operators of ONNX Runtime itself
LAYER_NORM_EPSILON = 1e-12
TOKENS_MAX = 256  # the model's training length; Keepsake cuts texts there too

GRAPHS = ("model.onnx", "fused.onnx")
MAPPED = "mapped"  # the product with the matrix of a mapping, which is not quantised

EXAMPLE = "This is an example sentence"
EXAMPLE_STARTS = [0.0676569, 0.0634959, 0.0487131, 0.0793049]  # published by the model's authors
# int8 against fp32 over TEXTS: measured mean 0.988, smallest 0.976 ("ok"); per-tensor weights, a known mistake, give 0.918.
COSINE_MEAN_MIN = 0.98

# fused.onnx against model.onnx: measured 1.0, bit for bit, over 2,099 texts. Another order of additions, as on another
# processor, can turn a rounding of an activation; .967 was the smallest cosine seen of that, over a text of two words.
COSINE_FUSED_MIN = 0.95

TEXTS = [
    EXAMPLE,
    "Each sentence is converted",
    "ok",
    "",
    "I moved to Lisbon in 2019 and I am allergic to peanuts — please remember that!",
    "日本語 emoji 🙂 café naïve",
    "My sister's dog is called Bruno; he is afraid of thunder and sleeps under the stairs.",
    "What did you recommend for the trip to Norway last spring?",
    " ".join(["memory"] * 400),
]


# --- the graph ---------------------------------------------------------------------------------------------------------


class Graph:
    """Collects nodes and constants; `op` returns the name of what it makes."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def constant(self, name, value):
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(self, kind, inputs, name, outputs=1, **attributes):
        names = [name] if outputs == 1 else [f"{name}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"node_{name}", **attributes))
        return name if outputs == 1 else names

    def linear(self, x, name, weight, bias):
        product = self.op("MatMul", [x, self.constant(f"{name}_weight", weight)], f"{name}_product")
        return self.op("Add", [product, self.constant(f"{name}_bias", bias)], name)

    def layer_norm(self, x, name, weights, key):
        # Not "_scale": the quantiser uses that name for the scale of an activation.
        gain = self.constant(f"{name}_gain", weights[f"{key}.weight"])
        shift = self.constant(f"{name}_shift", weights[f"{key}.bias"])
        return self.op("LayerNormalization", [x, gain, shift], name, axis=-1, epsilon=LAYER_NORM_EPSILON)


def integers(*values):
    return np.array(values, dtype=np.int64)


def layers(weights):
    return sum(key.endswith(".attention.self.query.weight") for key in weights)


def build(weights, title="all-MiniLM-L6-v2", mapping=None):
    """The encoder in float32, as an ONNX model."""
    graph = constants()
    mask = graph.op("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    per_head = graph.op("Unsqueeze", [mask, "head_axes"], "mask_per_head")
    bias = graph.op("Mul", [graph.op("Sub", ["one", per_head], "mask_inverted"), "masked_out"], "mask_bias")

    x = embeddings(graph, weights)
    for layer in range(layers(weights)):
        x = attention(graph, weights, layer, x, bias)
        x = feed_forward(graph, weights, layer, x)
    result(graph, pool(graph, x, mask), mapping)
    # Opset 17 is the first with LayerNormalization.
    model = finished(graph, title, ("input_ids", "attention_mask"), {"": 17})
    onnx.checker.check_model(model, full_check=True)
    return model


def build_fused(weights, title="all-MiniLM-L6-v2", mapping=None):
    """The same for one text without padding, so without a mask, and with attention as one operator."""
    graph = constants()
    x = embeddings(graph, weights)
    for layer in range(layers(weights)):
        x = fused_attention(graph, weights, layer, x)
        x = feed_forward(graph, weights, layer, x)
    result(graph, graph.op("ReduceMean", [x], "mean", axes=[1], keepdims=0), mapping)
    return finished(graph, title, ("input_ids",), {"": 17, FUSED: 1})


def constants():
    graph = Graph()
    graph.constant("zero", integers(0))
    graph.constant("first_axis", integers(1))
    graph.constant("second_axis", integers(2))
    graph.constant("last_axis", integers(-1))
    graph.constant("head_axes", integers(1, 2))
    graph.constant("split_heads", integers(0, 0, HEADS, HEAD))
    graph.constant("merge_heads", integers(0, 0, HIDDEN))
    graph.constant("query_key_value", integers(HIDDEN, HIDDEN, HIDDEN))
    for name, value in {"one": 1, "half": 0.5, "sqrt_two": 2**0.5, "masked_out": -1e4, "tiny": 1e-9, "tiny_norm": 1e-12}.items():
        graph.constant(name, np.array([value], dtype=np.float32))
    return graph


def finished(graph, title, inputs, opsets):
    texts = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "seq"]) for name in inputs]
    vectors = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", HIDDEN])
    made = helper.make_graph(graph.nodes, title, texts, [vectors], graph.constants)
    # An old IR version keeps older runtimes able to read it.
    versions = [helper.make_opsetid(*version) for version in opsets.items()]
    return helper.make_model(made, opset_imports=versions, ir_version=8, producer_name="keepsake")


def embeddings(graph, weights):
    words = graph.constant("words", weights["embeddings.word_embeddings.weight"])
    # One segment only: its vector is the same for every token, so it is added to the positions once, here.
    segment = weights["embeddings.token_type_embeddings.weight"][0]
    table = graph.constant("positions_table", weights["embeddings.position_embeddings.weight"] + segment)
    shape = graph.op("Shape", ["input_ids"], "shape")
    length = graph.op("Slice", [shape, "first_axis", "second_axis", "zero"], "length")
    positions = graph.op("Slice", [table, "zero", length, "zero"], "positions")
    x = graph.op("Add", [graph.op("Gather", [words, "input_ids"], "word_vectors"), positions], "embedded")
    return graph.layer_norm(x, "embedded_norm", weights, "embeddings.LayerNorm")


def attention(graph, weights, layer, x, bias):
    name = f"layer{layer}_attention"
    weight, offset = (np.concatenate(values, axis=-1) for values in zip(*projections(weights, layer)))
    joined = graph.linear(x, f"{name}_in", weight, offset)
    query, keys, values = graph.op("Split", [joined, "query_key_value"], f"{name}_split", outputs=3, axis=-1)

    def heads(part, role, order):
        return graph.op("Transpose", [graph.op("Reshape", [part, "split_heads"], f"{name}_{role}_heads")], f"{name}_{role}", perm=order)

    query, keys, values = heads(query, "query", [0, 2, 1, 3]), heads(keys, "keys", [0, 2, 3, 1]), heads(values, "values", [0, 2, 1, 3])
    scores = graph.op("Add", [graph.op("MatMul", [query, keys], f"{name}_products"), bias], f"{name}_scores")
    shares = graph.op("Softmax", [scores], f"{name}_shares", axis=-1)
    mixed = graph.op("Transpose", [graph.op("MatMul", [shares, values], f"{name}_mixed_heads")], f"{name}_mixed", perm=[0, 2, 1, 3])
    return attended(graph, weights, layer, x, graph.op("Reshape", [mixed, "merge_heads"], f"{name}_merged"))


def fused_attention(graph, weights, layer, x):
    name = f"layer{layer}_attention"
    parts = [graph.linear(x, f"{name}_{part}", *values) for part, values in zip(PROJECTIONS, projections(weights, layer))]
    # The second output, the keys, is not used: asked for it, the operator adds in the order of the operators it replaces.
    # Without it the sums are made block by block, and seven vectors of a hundred differ in a rounding.
    mixed, _ = graph.op("MultiHeadAttention", parts, f"{name}_fused", outputs=2, domain=FUSED, num_heads=HEADS, scale=1.0)
    return attended(graph, weights, layer, x, mixed)


def projections(weights, layer):
    """Weights and offsets of query, key and value."""
    key = f"encoder.layer.{layer}.attention.self"
    parts = [(weights[f"{key}.{part}.weight"].T, weights[f"{key}.{part}.bias"]) for part in PROJECTIONS]
    # The 1/sqrt(d) of the softmax goes into the query weights: one multiplication less per token pair.
    parts[0] = tuple(value * np.float32(HEAD**-0.5) for value in parts[0])
    return parts


def attended(graph, weights, layer, x, mixed):
    name, key = f"layer{layer}_attention", f"encoder.layer.{layer}.attention"
    out = graph.linear(mixed, f"{name}_out", weights[f"{key}.output.dense.weight"].T, weights[f"{key}.output.dense.bias"])
    return graph.layer_norm(graph.op("Add", [out, x], f"{name}_residual"), f"{name}_norm", weights, f"{key}.output.LayerNorm")


def feed_forward(graph, weights, layer, x):
    name, key = f"layer{layer}_feed", f"encoder.layer.{layer}"
    h = graph.linear(x, f"{name}_wide", weights[f"{key}.intermediate.dense.weight"].T, weights[f"{key}.intermediate.dense.bias"])
    # GELU with the exact erf, in the shape the runtime recognises and fuses.
    e = graph.op("Erf", [graph.op("Div", [h, "sqrt_two"], f"{name}_scaled")], f"{name}_erf")
    h = graph.op("Mul", [h, graph.op("Add", [e, "one"], f"{name}_erf_plus_one")], f"{name}_gated")
    h = graph.op("Mul", [h, "half"], f"{name}_gelu")
    h = graph.linear(h, f"{name}_out", weights[f"{key}.output.dense.weight"].T, weights[f"{key}.output.dense.bias"])
    return graph.layer_norm(graph.op("Add", [h, x], f"{name}_residual"), f"{name}_norm", weights, f"{key}.output.LayerNorm")


def pool(graph, x, mask):
    """Mean over the real tokens. The floor keeps a row without tokens from dividing by zero."""
    column = graph.op("Unsqueeze", [mask, "last_axis"], "mask_column")
    total = graph.op("ReduceSum", [graph.op("Mul", [x, column], "token_vectors"), "first_axis"], "total", keepdims=0)
    count = graph.op("Max", [graph.op("ReduceSum", [column, "first_axis"], "count_raw", keepdims=0), "tiny"], "count")
    return graph.op("Div", [total, count], "mean")


def result(graph, mean, mapping):
    """The mean at length one; with a mapping, in the space of another encoder (mapping.py)."""
    if mapping is None:
        unit_length(graph, mean, "sentence_embedding", "norm")
        return
    x = unit_length(graph, mean, "own", "own_norm")
    x = graph.op("Sub", [x, graph.constant("map_centre", mapping.centre)], "off_centre")
    x = unit_length(graph, x, "centred", "centred_norm")
    x = graph.op("MatMul", [x, graph.constant("map_matrix", mapping.matrix)], MAPPED)
    x = unit_length(graph, x, "turned", "turned_norm")
    x = graph.op("Add", [x, graph.constant("map_shared", mapping.shared)], "with_shared")
    unit_length(graph, x, "sentence_embedding", "norm")


def unit_length(graph, x, name, norm):
    """The floor keeps an empty vector from dividing by zero."""
    graph.op("Max", [graph.op("ReduceL2", [x], f"{norm}_raw", axes=[1], keepdims=1), "tiny_norm"], norm)
    return graph.op("Div", [x, norm], name)


def quantise(model, out):
    # 7-bit weights (reduce_range): on CPUs with AVX2 but no VNNI, 8-bit ones overflow the 16-bit sums.
    # MatMulConstBOnly: the attention products have no constant side and would only lose precision.
    logging.disable(logging.WARNING)  # it advises a shape-inference pass that changes nothing here
    # Shape inference does not know what the fused operator returns.
    options = {"MatMulConstBOnly": True, "DefaultTensorType": TensorProto.FLOAT}
    quantize_dynamic(model, out, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8, extra_options=options,
                     nodes_to_exclude=[f"node_{MAPPED}"])


# --- running it --------------------------------------------------------------------------------------------------------


def open_session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def open_tokenizer(source):
    tokenizer = Tokenizer.from_file(os.path.join(source, "tokenizer.json"))
    tokenizer.no_padding()  # the published file pads and cuts every text to 128 tokens
    tokenizer.enable_truncation(max_length=TOKENS_MAX)
    return tokenizer


def tokens(tokenizer, text):
    ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
    return ids, np.ones_like(ids)


def encode(session, tokenizer, texts):
    # One text at a time, as Keepsake does: int8 activations are scaled per batch, so neighbours would change the vector.
    inputs = [each.name for each in session.get_inputs()]
    rows = []
    for text in texts:
        values = dict(zip(("input_ids", "attention_mask"), tokens(tokenizer, text)))
        rows.append(session.run(None, {name: values[name] for name in inputs})[0][0])
    return np.stack(rows)


def cosines(left, right):
    return (left * right).sum(axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)


def prove(exact, small, tokenizer):
    """Stops the set-up if either graph is not the published model."""
    texts = [text for text in TEXTS if text]
    fp32, int8 = encode(exact, tokenizer, texts), encode(small, tokenizer, texts)
    if not np.allclose(fp32[0, :4], EXAMPLE_STARTS, atol=1e-5):
        raise SystemExit(f"export: '{EXAMPLE}' starts with {fp32[0, :4]}, published is {EXAMPLE_STARTS}")
    cosine = cosines(fp32, int8)
    if cosine.mean() < COSINE_MEAN_MIN:
        raise SystemExit(f"export: int8 differs too much from fp32, mean cosine {cosine.mean():.4f}")
    print(f"export: first values as published; cosine int8 to fp32 mean {cosine.mean():.4f}, smallest {cosine.min():.4f}")


def prove_fused(directory, tokenizer, texts):
    """Stops the set-up if the fused graph computes other vectors."""
    small, fused = (encode(open_session(os.path.join(directory, name)), tokenizer, texts) for name in GRAPHS)
    cosine = cosines(small, fused)
    if not cosine.min() >= COSINE_FUSED_MIN:
        raise SystemExit(f"export: the fused graph differs, smallest cosine {cosine.min():.4f}")
    equal = (small == fused).all(axis=1).mean()
    print(f"export: fused attention gives the same vector for {equal:.0%} of {len(texts)} texts, smallest cosine {cosine.min():.6f}")


def write(weights, directory, **options):
    """Writes both graphs and returns the one before quantisation."""
    exact = build(weights, **options)
    for name, graph in zip(GRAPHS, (exact, build_fused(weights, **options))):
        quantise(graph, os.path.join(directory, name))
    share_weights(*(os.path.join(directory, name) for name in GRAPHS))
    return exact


def share_weights(small, fused):
    """Replaces the weights that both graphs have by their places in `small`, so that a package carries them once.

    Only bytes: ONNX Runtime may map the file, and a float at an odd address costs time. Query, key and value stay, since
    `small` has them side by side in one matrix.
    """
    with open(small, "rb") as file:
        content = file.read()
    graph = onnx.load(fused)
    for weight in graph.graph.initializer:
        wide = weight.data_type in (TensorProto.INT8, TensorProto.UINT8) and len(weight.raw_data) >= HIDDEN * HIDDEN
        place = content.find(weight.raw_data) if wide else -1
        if place >= 0:
            name, length = os.path.basename(small), len(weight.raw_data)
            onnx.external_data_helper.set_external_data(weight, name, place, length)
            weight.ClearField("raw_data")
    onnx.save(graph, fused)


def check(weights, exact, small, tokenizer):
    """Runs the slow comparison, after changes to this file."""
    reference = np.concatenate([forward(weights, *tokens(tokenizer, text)) for text in TEXTS])
    fp32, int8 = encode(exact, tokenizer, TEXTS), encode(small, tokenizer, TEXTS)
    padded = exact.run(None, dict(zip(("input_ids", "attention_mask"), padded_batch(tokenizer, TEXTS))))[0]
    print(f"fp32 to float64: largest difference {np.abs(fp32 - reference).max():.1e}")
    print(f"fp32 padded batch to one by one: largest difference {np.abs(fp32 - padded).max():.1e}")
    print(f"first values: {np.round(fp32[0, :4], 7).tolist()}, published {EXAMPLE_STARTS}")
    for text, cosine in zip(TEXTS, cosines(fp32, int8)):
        print(f"cosine int8 to fp32 {cosine:.4f}  {text[:60]!r}")
    prove(exact, small, tokenizer)


def padded_batch(tokenizer, texts):
    rows = [tokenizer.encode(text).ids for text in texts]
    ids = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    return ids, mask


def forward(weights, ids, mask):
    """The same encoder written a second time, in float64, from the model's description and not from the graph."""
    weights = {name: value.astype(np.float64) for name, value in weights.items() if value.dtype == np.float32}
    batch, length = ids.shape

    def linear(x, key):
        return x @ weights[f"{key}.weight"].T + weights[f"{key}.bias"]

    def norm(x, key):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt(x.var(-1, keepdims=True) + LAYER_NORM_EPSILON) * weights[f"{key}.weight"] + weights[f"{key}.bias"]

    def heads(x):
        return x.reshape(batch, length, HEADS, HEAD).transpose(0, 2, 1, 3)

    erf = np.vectorize(math.erf, otypes=[np.float64])
    x = weights["embeddings.word_embeddings.weight"][ids] + weights["embeddings.position_embeddings.weight"][:length]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    hidden_from = np.where(mask[:, None, None, :] > 0, 0.0, -np.inf)
    for layer in range(layers(weights)):
        key = f"encoder.layer.{layer}"
        query, keys, values = (heads(linear(x, f"{key}.attention.self.{part}")) for part in ("query", "key", "value"))
        scores = query @ keys.transpose(0, 1, 3, 2) / math.sqrt(HEAD) + hidden_from
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = (shares @ values).transpose(0, 2, 1, 3).reshape(batch, length, HIDDEN)
        x = norm(linear(mixed, f"{key}.attention.output.dense") + x, f"{key}.attention.output.LayerNorm")
        h = linear(x, f"{key}.intermediate.dense")
        h = 0.5 * h * (1 + erf(h / math.sqrt(2)))
        x = norm(linear(h, f"{key}.output.dense") + x, f"{key}.output.LayerNorm")
    mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--source", required=True, metavar="DIR")
    task = arguments.add_mutually_exclusive_group(required=True)
    task.add_argument("--out", metavar="DIR")
    task.add_argument("--check", metavar="DIR")
    chosen = arguments.parse_args()

    weights = load_file(os.path.join(chosen.source, "model.safetensors"))
    tokenizer = open_tokenizer(chosen.source)
    directory = chosen.check or chosen.out
    model = build(weights) if chosen.check else write(weights, directory)
    exact, small = open_session(model.SerializeToString()), open_session(os.path.join(directory, GRAPHS[0]))
    if chosen.check:
        check(weights, exact, small, tokenizer)
    else:
        prove(exact, small, tokenizer)
    prove_fused(directory, tokenizer, TEXTS)


if __name__ == "__main__":
    main()
