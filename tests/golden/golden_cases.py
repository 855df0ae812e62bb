"""What the golden files hold, made by formulas that will never change.

Numbers come from SplitMix64, written out here, since NumPy may change its own generators.
"""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import xxhash

from tensorcomp.checkpoints.base import SourceTemplate, TensorInfo
from tensorcomp.checkpoints.safetensors.header import build_header
from tensorcomp.codecs import parse_tree
from tensorcomp.codecs.base import spec_of
from tensorcomp.codecs.payload import join
from tensorcomp.container.blob import ChunkCoder
from tensorcomp.container.chunk_grid import chunk_grid
from tensorcomp.container.manifest import Manifest
from tensorcomp.container.records import (
    DIGEST_DIGITS,
    BaseRecord,
    PlannedTree,
    TensorRecord,
    TensorReference,
)
from tensorcomp.container.reference_tensors import base_digest
from tensorcomp.container.writer import CompressedWriter, Payload
from tensorcomp.dtypes import dtype_name
from tensorcomp.metrics.distortion import ErrorSums, measure


def numbers(count: int, seed: int) -> np.ndarray:
    """Return random uint64 of SplitMix64."""
    with np.errstate(over="ignore"):
        state = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))


def bell(count: int, seed: int) -> np.ndarray:
    """Return integers of nearly normal distribution, of deviation 4096: sums of 12 parts."""
    parts = numbers(12 * count, seed).reshape(count, 12) >> np.uint64(52)
    total: np.ndarray = parts.astype(np.int64).sum(axis=1) - 12 * 2048 + 6
    return total


def weights(rows: int, columns: int, seed: int) -> np.ndarray:
    """Return weights of rows and columns of unlike scale, exact multiples of powers of two."""
    values = bell(rows * columns, seed).reshape(rows, columns).astype(np.float64)
    by_row = numbers(rows, seed + 1) % np.uint64(6)
    by_column = numbers(columns, seed + 2) % np.uint64(4)
    exponents = by_row[:, None].astype(np.int64) + by_column[None].astype(np.int64)
    scaled: np.ndarray = np.ldexp(values, exponents - 24).astype(np.float32)
    return scaled


def skewed(count: int, seed: int) -> np.ndarray:
    """Return small integers, each half as frequent as the one before."""
    draws = numbers(count, seed) | np.uint64(1 << 20)
    return np.log2((draws & (~draws + np.uint64(1))).astype(np.float64)).astype(np.uint8)


@dataclass(frozen=True)
class Case:
    """A tree, and the tensors that its golden file holds."""

    tree: str
    tensors: Callable[[], Mapping[str, np.ndarray]]
    fallback: str | None = None
    chunk_elements: int = 1024
    since: int = 1  # the format version that brought its codec
    has_base: bool = False  # whether its tensors are coded against those of `base_bytes`
    same_everywhere: bool = True  # whether every machine writes the same bytes


def floats() -> dict[str, np.ndarray]:
    matrix = weights(24, 48, 1)
    return {
        "fp32": matrix[:12],
        "bf16": matrix.astype(ml_dtypes.bfloat16),
        "fp16": matrix[:12].astype(np.float16),
        "fp64": matrix[:4].astype(np.float64),
        "fp8": matrix[:20].astype(ml_dtypes.float8_e4m3fn),
        "any bits": numbers(100, 5).view(np.float32),
        "scalar": np.array(-0.0, np.float32),
        "empty": np.empty((0, 3), np.float32),
    }


def many_floats() -> dict[str, np.ndarray]:
    matrix = weights(65, 256, 27)
    small = matrix[:17].copy()
    small[5:12] = small[5:12].astype(ml_dtypes.bfloat16)  # rows of fewer bits
    return {"fp8": matrix.astype(ml_dtypes.float8_e5m2), "bf16 rows in fp32": small}


def group_floats() -> dict[str, np.ndarray]:
    small = weights(9, 260, 31)
    wide = np.ldexp(small[:4], (np.arange(260) - 130) // 2).astype(np.float32)
    small[5:] = small[5:].astype(ml_dtypes.bfloat16)
    some = {name: array for name, array in floats().items() if name != "fp64"}
    return {
        **some,
        "fp8 in groups": weights(130, 254, 32).astype(ml_dtypes.float8_e5m2),
        "bf16 rows in fp32": small,
        "wide": wide,
    }


def column_groups() -> dict[str, np.ndarray]:
    turned = np.ascontiguousarray(weights(140, 60, 33).T)
    return {"fp16": turned.astype(np.float16), "a row": turned[:1]}


def long_floats() -> dict[str, np.ndarray]:
    return {"long": weights(8, 4100, 28).astype(ml_dtypes.float8_e5m2)}


def integers() -> dict[str, np.ndarray]:
    return {
        "skewed": skewed(1100, 2),
        "signed": (bell(800, 3) // 700).astype(np.int8).reshape(20, 40),
        "wide": (bell(700, 4) // 16).astype(np.int16),
        "scaled": (weights(24, 48, 6) * 20_000).astype(np.int8),
        "positions": np.arange(-20, 200, dtype=np.int64),
        "equal": np.full(50, 7, np.uint16),
        "one": np.array([[3]], np.int32),
        "empty": np.empty(0, np.uint8),
    }


def long_rows() -> dict[str, np.ndarray]:
    return {"long": (weights(3, 4100, 7) * 250).astype(np.int8)}


def zeros() -> dict[str, np.ndarray]:
    matrix = weights(24, 40, 8)
    chance = numbers(matrix.size, 9).reshape(matrix.shape) % np.uint64(100)
    return {
        "half": np.where(chance < 50, 0, matrix).astype(np.float32),
        "most": np.where(chance < 97, 0, matrix).astype(np.float16),
        "all": np.zeros(300, np.float32),
        "signs": np.where(chance[0] < 50, 0.0, -0.0),
    }


def pruned() -> dict[str, np.ndarray]:
    matrix = weights(48, 40, 29)
    dead = matrix.copy()
    dead[::3] = 0
    dead[20:30] = 0
    dead[:, 4::5] = 0
    filters = weights(20, 54, 30).reshape(20, 6, 3, 3)
    filters[:, 1:3] = 0
    two_of_four = matrix.copy()
    two_of_four[:, ::4] = two_of_four[:, 3::4] = 0
    return {
        "dead": dead,
        "filters": filters.astype(ml_dtypes.bfloat16),
        "2 of 4": two_of_four,
        "2 of 4, int8": (two_of_four * 2000).astype(np.int8),
        "signs": np.where(two_of_four == 0, matrix * 0, two_of_four),
        "none": np.zeros((3, 0), np.float32),
        "nothing": np.zeros((9, 8), np.float16),
    }


def index_sets() -> dict[str, np.ndarray]:
    steps = 1 + skewed(900, 10).astype(np.int64)
    return {
        "dense": np.cumsum(steps),
        "sparse": np.cumsum(steps**4) - 10**6,
        "short": (np.cumsum(steps[:100]) * 3).astype(np.uint16),
        "one": np.array([5], np.int32),
    }


def runs() -> dict[str, np.ndarray]:
    lengths = (numbers(60, 11) % np.uint64(70)).astype(np.int64)
    return {
        "int32": np.repeat(np.arange(60, dtype=np.int32) % 7, lengths),
        "bytes": np.repeat(skewed(60, 12), lengths),
        "fp32": np.repeat(weights(6, 10, 13).reshape(-1), lengths),
        "equal": np.full(2000, 5, np.uint8),
    }


def grids() -> dict[str, np.ndarray]:
    codes = (bell(1152, 14) // 2000).reshape(18, 64).astype(np.float64)
    steps = (1 + (numbers(18, 15) % np.uint64(1000)).astype(np.float64)[:, None]) / 8192
    signed = codes * 0.25
    signed[signed == 0] = -0.0
    return {
        "a step a row": (codes * steps).astype(np.float32),
        "one step": (codes / 10).astype(np.float32),
        "fp16": (codes / 64).astype(np.float16),
        "bf16": codes.astype(ml_dtypes.bfloat16),
        "fp64": codes * 1e-3,
        "negative zeros": signed.astype(np.float32),
    }


def few_values() -> dict[str, np.ndarray]:
    table = weights(1, 30, 16)[0]
    return {
        "fp32": table[(numbers(1500, 17) % np.uint64(30)).astype(np.int64)].reshape(30, 50),
        "int64": skewed(700, 18).astype(np.int64) << 33,
        "bytes": skewed(700, 19),
    }


def constants() -> dict[str, np.ndarray]:
    return {
        "fp32": np.full((40, 50), 0.1, np.float32),
        "NaN": np.full(9, 0x7FC12345, np.uint32).view(np.float32),
        "byte": np.full(5000, 255, np.uint8),
        "empty": np.empty(0, np.float32),
    }


def mixed() -> dict[str, np.ndarray]:
    matrix = grids()["a step a row"].copy()
    matrix[16:] = weights(2, 64, 20)
    return {"chunks of both": matrix}


def lossy() -> dict[str, np.ndarray]:
    """Return weights for lossy trees; the second has several chunks."""
    matrix = weights(40, 32, 29)
    return {
        "conv": matrix[:12].reshape(12, 2, 4, 4),
        "chunks": matrix,
        "bf16": matrix[:16].astype(ml_dtypes.bfloat16),
        "fp64": matrix[:4].astype(np.float64),
        "vector": matrix[3],
        "one": np.array(0.5, np.float32),
        "empty": np.empty((0, 3), np.float32),
    }


def squares() -> dict[str, np.ndarray]:
    """Return weights without signs, some rows and columns of which are zero."""
    found = {name: array * array for name, array in lossy().items()}
    found["chunks"][3:5] = 0
    found["chunks"][:, 7] = 0
    return found


def base_of(array: np.ndarray) -> np.ndarray:
    """Return a relative of an array: some elements are others there."""
    changed = array.copy().reshape(-1)
    half = changed.astype(np.float64) / 2 if array.dtype.kind in "fV" else changed ^ 1
    changed[::3] = half.astype(array.dtype)[::3]
    return changed.reshape(array.shape)


def base_bytes(case: Case) -> bytes:
    """Return the file of a case's base."""
    return safetensors_bytes({name: base_of(array) for name, array in case.tensors().items()})


def base_name(case: Case) -> str:
    """Return the name of the file of a case's base."""
    return f"base_{case.tensors.__name__}.safetensors"


def outliers() -> dict[str, np.ndarray]:
    """Return floats of which some are large, and some not finite; bits decide, not arithmetic."""
    matrix = weights(40, 32, 36) / 64
    for place in (0, 7, 700, 1279):
        matrix.reshape(-1)[place] = 1000 - place
    return {**floats(), "chunks": matrix, "fp16 clamped": (matrix * 32).astype(np.float16)}


def relatives() -> dict[str, np.ndarray]:
    """Return arrays of which a base has others: those of few elements, and one of many."""
    many = weights(66, 160, 38).astype(ml_dtypes.bfloat16)
    return {**floats(), "many": many, "integers": skewed(3000, 39)}


def blocks() -> dict[str, np.ndarray]:
    """Return bytes that are blocks of ggml's types as well as any, some of them not finite."""
    some = (bell(5000, 37) // 3000).astype(np.int8).view(np.uint8)
    ends = np.concatenate([some[:700], np.full(300, 255, np.uint8)])
    return {"chunks": some, "not finite": ends, "few": some[:5]}


TREES: dict[str, Case] = {
    "ans": Case("ans", integers),
    "ans_contexts": Case("ans(contexts=16, states=12)", integers),
    "bitpack": Case("bitpack", integers),
    "difference": Case("difference", relatives, None, 1 << 14, 10, has_base=True),
    "difference_chunks": Case("difference(levels=false)", relatives, since=10, has_base=True),
    "difference_decay": Case("difference(decay=true)", relatives, None, 1 << 14, 10, True, True),
    "difference_rank": Case("difference(2)", relatives, None, 1 << 13, 10, False, True),
    "constant": Case("constant", constants),
    "fields": Case("fields", floats),
    "fields_max": Case("fields(2, exponent=ans(contexts=16, states=12), mantissa=bitpack)", floats),
    "floats": Case("floats", floats, since=2),
    "floats_contexts": Case("floats(1, contexts=2)", many_floats, chunk_elements=1 << 16, since=2),
    "groupfloats": Case("groupfloats", group_floats, chunk_elements=1 << 16, since=5),
    "groupfloats_columns": Case(
        'groupfloats(1, 2, "columns")', column_groups, chunk_elements=1 << 16, since=5
    ),
    "floats_long_rows": Case("floats(contexts=2)", long_floats, chunk_elements=16_500, since=2),
    "gaps": Case("gaps", index_sets),
    **{
        f"ggml_{name}": Case(f'ggml("{name.upper()}")', blocks, chunk_elements=1 << 12, since=8)
        for name in ("q5_1", "q8_0", "q3_k", "q4_k", "mxfp4")
    },
    "grid": Case("grid", grids),
    "grid_fallback": Case("grid", mixed, fallback="fields"),
    "huffman": Case("huffman", integers),
    "huffman_contexts": Case("huffman(contexts=8)", integers),
    "huffman_long_rows": Case("huffman(contexts=4)", long_rows, chunk_elements=1 << 13),
    "live": Case("live(values=live(1))", pruned, fallback="fields", since=4),
    "packed": Case("packed", pruned, fallback="fields", since=4),
    "outliers": Case("outliers(0.01)", outliers, since=7),
    "palette": Case("palette", few_values),
    "raw": Case("raw", lambda: {"a": weights(5, 7, 21), "b": np.array(5, np.int64)}),
    "runlength": Case("runlength", runs),
    "sparse": Case("sparse", zeros),
    "sparse_gaps": Case("sparse(mask=gaps, values=raw)", zeros),
    "sparse_runs": Case("sparse(mask=runlength, values=palette)", zeros),
    "zeros": Case("zeros(signs=gaps, values=sparse(mask=gaps, values=raw))", pruned, since=4),
    "zstd": Case("raw(bytes=zstd(level=19))", runs),
}

_LOSSY = {
    "affine": "affine(4, 16)",
    "affine_asymmetric": "affine(3, -1, symmetric=false)",
    "block": "block(4, 4, 0.5)",
    "cast": 'cast("F16")',
    "channel": "channel(0.25)",
    "deep_compression": "magnitude(0.8, values=kmeans(16, codes=huffman), mask=gaps)",
    "filter": "filter(0.25)",
    "kmeans": "kmeans(16)",
    "magnitude": "magnitude(0.75)",
    "nf4": "nf4(16)",
    "nm": "nm(2, 4)",
    "outliers_trellis": "outliers(0.01, values=trellis(0.002))",
    "outliers_uniform": "outliers(0.01, exact=raw, values=uniform(0.002))",
    "pq": "pq(16, 4)",
    "randomk": "randomk(0.5, seed=3)",
    "rotate": "rotate(4, rotated=uniform(0.004))",
    "scales": "scales(values=trellis(0.05))",
    "scales_rows": "scales(axis=0, values=uniform(0.05))",
    "sign": "sign",
    "svd": "svd(2, left=uniform(0.01), right=uniform(0.01))",
    "ternary": "ternary",
    "threshold": "threshold(0.01)",
    "rank1": "rank1",
    "topk": "topk(0.25)",
    "trellis": "trellis(0.004)",
    "trellis_states": "trellis(0.004, states=16)",
    "uniform": "uniform(0.004)",
    "uniform_bounded": "uniform(0.004, bounded=true, codes=huffman)",
    "update": "update(values=uniform(0.004))",
    "update_trellis": "update(values=trellis(0.01))",
}
# Factors come from LAPACK and codebooks of vectors from scikit-learn, which round differently.
_ELSEWHERE_OTHERWISE = {"rotate", "svd", "pq"}
_SINCE = {"outliers": 7, "scales": 9, "rank1": 10, "update": 10}
TREES |= {
    name: Case(
        tree,
        squares if name == "rank1" else lossy,
        "fields",
        since=_SINCE.get(name.partition("_")[0], 3),
        same_everywhere=name not in _ELSEWHERE_OTHERWISE,
        has_base=name.startswith("update"),
    )
    for name, tree in _LOSSY.items()
}


def file_of(case: Case) -> bytes:
    """Return a compressed file in which a given tree, and no other, codes every tensor."""
    tensors = case.tensors()
    texts = [case.tree] if case.fallback is None else [case.tree, case.fallback]
    trees = tuple(parse_tree(text) for text in texts)
    records = {
        name: TensorRecord(
            name,
            dtype_name(array.dtype),
            array.shape,
            "a test",
            array.nbytes,
            tree=0,
            fallback=None if case.fallback is None else 1,
        )
        for name, array in tensors.items()
    }
    bases: dict[str, np.ndarray] = {}
    if case.has_base:
        bases = {name: base_of(array) for name, array in tensors.items()}
    digests = {
        name: xxhash.xxh3_128_hexdigest(array.tobytes())[:DIGEST_DIGITS]
        for name, array in bases.items()
    }
    base = BaseRecord(base_name(case), len(base_bytes(case)), base_digest(digests))
    manifest = Manifest(
        bases=(base,) if bases else (),
        chunk_elements=case.chunk_elements,
        trees=tuple(PlannedTree(text, "a test") for text in texts),
        tensors=records,
        template=SourceTemplate("safetensors", {}),
        source_bytes=0,
    )
    file = io.BytesIO()
    writer = CompressedWriter(file, manifest)
    for name, array in tensors.items():
        grid = chunk_grid(records[name].dtype, array.shape, array.nbytes, case.chunk_elements)
        seen = np.frombuffer(array.tobytes(), grid.dtype).reshape(grid.shape)
        alone = grid.count == 1
        known = bases[name].view(grid.dtype).reshape(grid.shape) if bases else None
        coder = ChunkCoder.alone(trees) if alone else ChunkCoder.learn(trees, seen, known)
        writer.begin(name, b"" if alone else coder.pack(), grid.count)
        digest, errors = xxhash.xxh3_128(), ErrorSums()
        for index in range(grid.count):
            chunk = seen[slice(*grid.bounds(index))]
            rows = None if known is None else known[slice(*grid.bounds(index))]
            payload = join(coder.encode(chunk, reference=rows))
            writer.write_chunk(Payload.of([payload]))
            decoded = coder.decode(np.frombuffer(payload, np.uint8), spec_of(chunk), None, rows)
            digest.update(decoded.tobytes())
            if not trees[0].lossless:
                errors += measure(chunk, decoded)
        records[name] = replace(
            records[name],
            digest=digest.hexdigest()[:DIGEST_DIGITS],
            rel_l2=errors.rel_l2,
            max_abs_error=errors.max_abs,
            reference=TensorReference(0, digests[name], name) if bases else None,
        )
    writer.finish(manifest)
    return file.getvalue()


def safetensors_bytes(
    tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return a safetensors file."""
    infos = [
        TensorInfo(name, dtype_name(array.dtype), array.shape, array.nbytes)
        for name, array in tensors.items()
    ]
    blocks = b"".join(array.tobytes() for array in tensors.values())
    return build_header(infos, metadata) + blocks


def model() -> dict[str, np.ndarray]:
    """Return the tensors of the whole files."""
    matrix = weights(80, 64, 22).astype(ml_dtypes.bfloat16)
    return {
        "embed.weight": matrix,
        "lm_head.weight": matrix.copy(),
        "attn.weight": weights(30, 64, 23).astype(np.float16),
        "mlp.weight": weights(12, 64, 24),
        "codes": (bell(4160, 25).reshape(65, 64) // 2000 / 64).astype(np.float16),
        "norm.weight": np.ones(64, np.float32),
        "bias": np.zeros(64, np.float32),
        "position_ids": np.arange(64, dtype=np.int64)[None],
        "mask": numbers(500, 26).reshape(5, 100) % np.uint64(10) < 1,
        "step": np.array(7, np.int64),
        "empty": np.empty((0, 4), np.float32),
    }


def many() -> dict[str, np.ndarray]:
    """Return tensors of which most are small, and some equal."""
    tensors: dict[str, np.ndarray] = {"head.weight": weights(40, 64, 34)}
    for layer in range(18):
        matrix = weights(4, 30 + 7 * layer, 35 + layer)
        tensors |= {
            f"layers.{layer}.bias": matrix[0],
            f"layers.{layer}.norm.weight": 1 + matrix[1] / 4096,
            f"layers.{layer}.lora_A": matrix[2:].astype(ml_dtypes.bfloat16),
            f"layers.{layer}.lora_B": np.zeros((30, 2), np.float16),
            f"layers.{layer}.steps": np.array(1000 + layer % 2, np.int64),
        }
    return tensors
