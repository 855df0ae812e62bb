"""Sound data of every other format: plans, statistics, tickets, gradients, states."""

import contextlib
import functools
import io
import json
import pickle
import struct
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import xxhash

import tensorcomp
from benchmarks.hardening import ROOT
from benchmarks.hardening.checkpoint_files import (
    BYTES,
    OPEN_BYTES,
    TENSORS,
    VALUES,
    checkpoints,
    damaged_header,
    damaged_member,
    safetensors_file,
)
from benchmarks.hardening.compressed_files import compressed_files
from benchmarks.hardening.mutations import OWN_TREES, damaged_bytes, damaged_json, damaged_value
from benchmarks.hardening.sound import LIMIT, Layer, Sound, Way, digest, scratch, written
from tensorcomp._zstd_frames import compress, decompress
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.container.model import open_model
from tensorcomp.errors import CodecError, GradientError, TensorcompError
from tensorcomp.gradients.base import GradientSpec, Payload, StepInfo
from tensorcomp.gradients.compressors.tree_compressor import TreeCompressor
from tensorcomp.gradients.ddp.checkpoints import from_tensors, to_tensors
from tensorcomp.gradients.ddp.compression import GradientCompression
from tensorcomp.gradients.payload.states import flatten
from tensorcomp.gradients.registry import compressor_ids
from tensorcomp.gradients.server import message
from tensorcomp.gradients.server.worker import WorkerCompression
from tensorcomp.gradients.text import parse_compressor
from tensorcomp.gradients.wrappers.phases import PhaseTracker
from tensorcomp.pipeline.job import compress_source
from tensorcomp.pipeline.options import CompressOptions
from tensorcomp.planning.importance import load_importance
from tensorcomp.planning.plan import plan_from_json, plan_to_json
from tensorcomp.planning.profiles import load_profile
from tensorcomp.planning.statistics import Statistics
from tensorcomp.pruning.lottery_ticket.rewind_point import RewindPoint
from tensorcomp.pruning.lottery_ticket.store import TicketStore
from tensorcomp.pruning.result import PruningResult

JSON = Layer("JSON", damaged_json, 4, guarded=False)


def sounds(every: int = 1) -> Iterator[Sound]:
    """Yield sound data of every kind, from the registries of codecs, formats and compressors.

    Of compressed files, every so-manieth.
    """
    makers: tuple[Callable[[], Iterator[Sound]], ...] = (
        functools.partial(compressed_files, every), checkpoints, _texts, _tables, _tickets,
        _payloads, _messages, _states,
    )  # fmt: skip
    for make in makers:
        yield from make()


# --- plans, profiles, indexes; statistics, importance, masks ----------------------------------


def _texts() -> Iterator[Sound]:
    trees = {f"{number}.weight": text for number, text in enumerate(OWN_TREES[::4])}
    entries = {name: {"tree": text, "bound": {"max_rel_l2": 0.1}} for name, text in trees.items()}
    plan = {"tensorcomp_plan": 1, "effort": "fast", "budget": {"min_snr": 20}, "tensors": entries}
    yield _text_sound("plan", "many trees", plan, Way("read", _plan))
    small = {name: {"tree": "lossless", "bound": {}} for name in TENSORS} | {
        "a.weight": {"tree": "uniform(0.01)", "bound": {"max_rel_l2": 0.1}}
    }
    obeyed = {**plan, "tensors": small}
    yield _text_sound("plan", "obeyed", obeyed, Way("read", _plan), Way("obeyed", _obeyed))
    ways = (Way("read", _profile),)
    for path in sorted((ROOT / "tensorcomp/planning/profiles").glob("*.toml")):
        yield Sound("profile", path.name, path.read_bytes(), (OPEN_BYTES,), ways)
    weight_map = {"a": "m-1.safetensors", "b": "m-2.safetensors"}
    index = {"metadata": {"total_size": 8}, "weight_map": weight_map}
    yield _text_sound("index", "two shards", index, Way("read", _index))


def _text_sound(kind: str, name: str, value: Any, *ways: Way) -> Sound:
    return Sound(kind, name, json.dumps(value).encode(), (JSON, OPEN_BYTES), ways)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _plan(data: bytes) -> None:
    plan = plan_from_json(_text(data), "x.json")
    assert plan_from_json(plan_to_json(plan, {}), "x.json").tensors.keys() == plan.tensors.keys()


def _obeyed(data: bytes) -> None:
    options = CompressOptions(plan=written("plan.json", data), threads=1)
    file = io.BytesIO()
    compress_source(MemoryCheckpoint(TENSORS), file, options)
    tensorcomp.load(file.getvalue(), threads=1)


def _profile(data: bytes) -> None:
    load_profile(str(written("x.toml", data)))


def _index(data: bytes) -> None:
    folder = scratch() / "sharded"
    if not folder.is_dir():
        folder.mkdir()
        for number, name in enumerate("ab", 1):
            file = safetensors_file({name: VALUES[0]}, {})
            (folder / f"m-{number}.safetensors").write_bytes(file)
    (folder / "model.safetensors.index.json").write_bytes(data)
    open_model(folder).keys()


def _tables() -> Iterator[Sound]:
    about = {"tensorcomp.statistics": '{"version": 1, "batches": 3, "samples": 9}'}
    table = safetensors_file({"fisher/a": VALUES**2, "input_norm/a": abs(VALUES[0])}, about)
    layers = (OPEN_BYTES, Layer("header", damaged_header, 3, guarded=False))
    ways = (Way("read", lambda data: Statistics.load(written("x.safetensors", data)) and None),)
    yield Sound("statistics", "fisher", table, layers, ways)
    costs = safetensors_file({"a": VALUES**2 + 1e-9, "b": VALUES[:1, 0] ** 2}, {})
    ways = (Way("read", lambda data: load_importance(written("x.safetensors", data)) and None),)
    yield Sound("importance", "two", costs, layers, ways)
    path = scratch() / "masks.tc.safetensors"
    PruningResult({"a": VALUES > 0.3, "b": VALUES[0] > 0}, "magnitude", "nm(2, 4)").save(path)
    ways = (Way("read", _masks),)
    about_masks = Layer("about, sealed", _damaged_masks, 2, guarded=False)
    yield Sound("masks", "two", path.read_bytes(), (BYTES, about_masks), ways)


def _masks(data: bytes) -> Any:
    found = PruningResult.load(written("masks.tc.safetensors", data))
    return {name: digest(mask) for name, mask in found.masks.items()}


def _damaged_masks(data: bytes, random: Random) -> bytes:
    about = damaged_json('{"score": "magnitude", "granularity": "nm(2, 4)"}', random)
    metadata = {"tensorcomp.masks": _text(about)}
    return tensorcomp.save({"a": VALUES > 0, "b": VALUES[0]}, metadata, threads=1)


# --- tickets ----------------------------------------------------------------------------------

_SETTINGS = {"score": "magnitude", "densities": [0.5, 0.25], "rewind": 3}


def _model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Linear(30, 40)
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def _tickets() -> Iterator[Sound]:
    folder = scratch() / "ticket"
    store = TicketStore(folder, _SETTINGS)
    store.point(lambda: RewindPoint.of(*_model()))
    store.masks("round-01", lambda: PruningResult({"weight": VALUES > 0}, "magnitude", "element"))
    store.weights("round-01", lambda: {"weight": torch.from_numpy(VALUES)})
    files = {path.name: path.read_bytes() for path in folder.iterdir()}

    def damaged(name: str, data: dict[str, bytes], random: Random) -> dict[str, bytes]:
        change = damaged_json if name.endswith("json") else BYTES.damage
        return {**data, name: change(data[name], random)}

    layers = [Layer(name, functools.partial(damaged, name)) for name in files]
    yield Sound("ticket", "one round", files, tuple(layers), (Way("read", _ticket),))
    point = files["rewind.pt"]
    layers = [OPEN_BYTES, Layer("member, sealed", damaged_member, 4, guarded=False)]
    yield Sound("ticket", "rewind point", point, tuple(layers), (Way("rewound", _rewound),))


def _ticket(data: dict[str, bytes]) -> Any:
    folder = scratch() / "ticket"
    folder.mkdir(exist_ok=True)
    for name, content in data.items():
        (folder / name).write_bytes(content)
    store = TicketStore(folder, _SETTINGS)
    point = store.point(_nothing)
    weights = store.weights("round-01", _nothing)()
    masks = store.masks("round-01", _nothing).masks
    return (
        digest(point.data),
        {name: digest(one.numpy()) for name, one in weights.items()},
        {name: digest(one) for name, one in masks.items()},
    )


def _nothing() -> Any:
    raise AssertionError("a part that is there is made again")


def _rewound(data: bytes) -> None:
    RewindPoint(data).restore(*_model())


# --- gradients --------------------------------------------------------------------------------

_ARGUMENTS = {
    "threshold": "threshold(0.5)", "error_bounded": "error_bounded(max_rel_l2=0.1)",
    "adaptive": "adaptive(topk(0.1), int8)", "owners": "owners(topk(0.1))",
    "per_role": "per_role(topk(0.1), small=100)", "phases": "phases(topk(0.1), beginning=0.1)",
    "warmup": "warmup(topk(0.1), steps=1)", "powersgd": "powersgd(2)", "qsgd": "qsgd(4)",
    "feedback": "feedback(affine(8))", "dense": "dense",
}  # fmt: skip
_SPEC = GradientSpec("w", VALUES.shape)


def _compressors() -> dict[str, Any]:
    texts = [_ARGUMENTS.get(name, f"{name}(0.1)") for name in compressor_ids()]
    found = {text: parse_compressor(text) for text in texts}
    for text in OWN_TREES:
        with contextlib.suppress(GradientError):  # one that is not for the wire
            found[text] = TreeCompressor.of(text)
    return found


def _payloads() -> Iterator[Sound]:
    for text, given in _compressors().items():
        compressor = given.at(StepInfo(), _SPEC)
        payload, _ = compressor.step(VALUES, compressor.init(_SPEC))
        head = 8 if "error_bounded" in text else 0  # whose factor the checksum leaves out

        def read(data: bytes, compressor: Any = compressor) -> Any:
            if not data:
                raise CodecError("nothing says, without a message around it, that nothing was sent")
            return digest(compressor.decode(Payload(data, _SPEC)))

        def sealed(data: bytes, random: Random, head: int = head) -> bytes:
            content = damaged_bytes(data[head:-8], data[::-1], random)
            return data[:head] + content + struct.pack("<Q", xxhash.xxh3_64_intdigest(content))

        layers = (OPEN_BYTES if head else BYTES, Layer("blob, sealed", sealed, 5, guarded=False))
        yield Sound("gradient payload", text, payload.data, layers, (Way("read", read),))


def _messages() -> Iterator[Sound]:
    for text in _compressors():
        with contextlib.suppress(TensorcompError):  # a tree that needs matrices
            worker = WorkerCompression(text)
            data = worker.compress({"w": VALUES, "b": VALUES[0], "none": VALUES[:0]})
            header = Layer("header, sealed", _damaged_message, 4, guarded=False)
            layers = (Layer("bytes", BYTES.damage, 2), header)
            yield Sound("gradient message", text, data, layers, (Way("read", _message),))


def _message(data: bytes) -> Any:
    found = message.decompress(data, limit=LIMIT)
    return {name: (array.shape, digest(array)) for name, array in found.items()}


def _damaged_message(data: bytes, random: Random) -> bytes:
    """Return a message whose header, what it says of gradients, or blobs are damaged."""
    start = 8 + int.from_bytes(data[:8], "little")
    plain, blobs = decompress(data[8:start], 1 << 26, like=message._TYPICAL), data[start:-8]
    what = random.random()
    if what < 0.3:
        plain = damaged_header(plain, random)
    elif what < 0.7:
        header = json.loads(plain[8:])
        about = damaged_json(header["__metadata__"][message._KEY], random)
        header["__metadata__"][message._KEY] = _text(about)
        text = json.dumps(header).encode()
        plain = len(text).to_bytes(8, "little") + text
    else:
        blobs = damaged_bytes(blobs, data, random)
    packed = compress(plain, 3, like=message._TYPICAL)
    content = struct.pack("<Q", len(packed)) + packed + blobs
    return content + struct.pack("<Q", xxhash.xxh3_64_intdigest(content))


def _states() -> Iterator[Sound]:
    layers = (Layer("fields", _damaged_fields, guarded=False),)
    for text in _compressors():
        with contextlib.suppress(TensorcompError):  # a tree that needs matrices
            worker = WorkerCompression(text)
            worker.compress({"w": VALUES, "b": VALUES[0]})
            state = pickle.dumps(worker.state_dict())
            ways = (Way("resumed", functools.partial(_resumed, text)),)
            yield Sound("gradient state", text, state, layers, ways)
    compressor = parse_compressor("topk(0.1)")
    _, state = compressor.step(VALUES, compressor.init(_SPEC))
    fields = {name: torch.as_tensor(value) for name, value in flatten(state).items()}
    whole = {
        "version": 1, "mode": "exact", "world": 1, "rank": 0, "step": 4,
        "compressor": compressor.text(), "phase": "beginning", "metrics": [0.5], "choices": {},
        "units": [["w"]], "states": {"w": fields}, "means": {},
    }  # fmt: skip
    ways = (Way("loaded", _loaded_state), Way("stored", _stored_state, 0.3))
    yield Sound("gradient state", "of a model", pickle.dumps(whole), layers, ways)
    file = tensorcomp.save(to_tensors_arrays(whole), threads=1)
    yield Sound("gradient state", "file", file, (BYTES,), (Way("loaded", _state_file),))


def to_tensors_arrays(state: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return what `to_tensors` makes of a state, as arrays."""
    return {name: tensor.numpy() for name, tensor in to_tensors(state).items()}


def _damaged_fields(data: bytes, random: Random) -> bytes:
    value = pickle.loads(data)
    for _ in range(random.choice((1, 1, 2))):
        value = damaged_value(value, random)
    return pickle.dumps(value)


def _resumed(text: str, data: bytes) -> None:
    worker = WorkerCompression(text)
    worker.load_state_dict(pickle.loads(data))
    worker.compress({"w": VALUES, "b": VALUES[0]})


def _loaded_state(data: bytes) -> None:
    _load_state(pickle.loads(data))


def _stored_state(data: bytes) -> None:
    state = pickle.loads(data)
    try:
        arrays = to_tensors_arrays(state)
    except Exception:  # no state that could be stored
        return
    _state_file(tensorcomp.save(arrays, threads=1))


def _state_file(data: bytes) -> Any:
    state = from_tensors(tensorcomp.load(data, framework="pt", threads=1))
    _load_state(state)
    return digest(state["states"]["w"]["residual"].numpy())


def _load_state(state: Any) -> None:
    """Load a state as `GradientCompression` does, without processes."""
    taken: list[Any] = []
    reducer = SimpleNamespace(
        bounds={"w": (0, _SPEC.size)}, restore=lambda *values: taken.append(values)
    )
    holder: Any = SimpleNamespace(
        _check_idle=lambda: None, _comm=SimpleNamespace(world=1, rank=0), _reducer=reducer,
        compressor=parse_compressor("topk(0.1)"), _phases=PhaseTracker(), _specs=[_SPEC],
        _autotuner=None,
    )  # fmt: skip
    GradientCompression.load_state_dict(holder, state)
    assert len(taken) == 1
