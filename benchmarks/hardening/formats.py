"""Sound data of every other format: checkpoints, plans, statistics, tickets, gradients, states."""

import contextlib
import functools
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import safetensors
import torch
import xxhash

import tensorcomp
from benchmarks.hardening import ROOT
from benchmarks.hardening.compressed_files import compressed_files
from benchmarks.hardening.mutations import OWN_TREES, damaged_bytes, damaged_json, damaged_value
from benchmarks.hardening.sound import LIMIT, Layer, Sound, Way, digest, scratch, written
from tensorcomp._zstd_frames import compress, decompress
from tensorcomp.checkpoints.in_memory import MemoryCheckpoint
from tensorcomp.checkpoints.open import _OPENERS, detect_format, open_checkpoint, restore
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

BYTES = Layer("bytes", lambda data, random: damaged_bytes(data, data[::-1], random), 2)
OPEN_BYTES = Layer("bytes", BYTES.damage, 2, guarded=False)
JSON = Layer("JSON", damaged_json, 4, guarded=False)
_VALUES = np.random.default_rng(2).standard_t(3, (40, 30)).astype(np.float32)
_TENSORS = {"a.weight": _VALUES, "b.bias": _VALUES[0], "mask": _VALUES > 0, "n": np.arange(9)}


def sounds(every: int = 1) -> Iterator[Sound]:
    """Yield sound data of every kind, from the registries of codecs, formats and compressors.

    Of compressed files, every so-manieth.
    """
    makers: tuple[Callable[[], Iterator[Sound]], ...] = (
        functools.partial(compressed_files, every), _checkpoints, _texts, _tables, _tickets,
        _payloads, _messages, _states,
    )  # fmt: skip
    for make in makers:
        yield from make()


# --- checkpoints -----------------------------------------------------------------------------


def _checkpoints() -> Iterator[Sound]:
    files = {path.name: path.read_bytes() for path in (ROOT / "tests/golden/sources").iterdir()}
    files |= {"usual.safetensors": safetensors_file(_TENSORS, {"format": "pt"})}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **_TENSORS, text=np.array(["x"]), turned=_VALUES.T)
    files["deflated.npz"] = buffer.getvalue()
    tensors = {name: torch.from_numpy(array.copy()) for name, array in _TENSORS.items()}
    for name, zipped in (("zip.pt", True), ("legacy.pt", False)):
        buffer = io.BytesIO()
        value = {
            "model": tensors,
            "step": 3,
            "args": SimpleNamespace(turned=tensors["a.weight"].t()),
        }
        torch.save(value, buffer, _use_new_zipfile_serialization=zipped)
        files[name] = buffer.getvalue()
    files["parts.distcp"] = files["zip.pt"] * 2
    buffer = io.BytesIO()
    np.save(buffer, _VALUES.T.astype(">f4"))
    files["turned.npy"] = buffer.getvalue()
    files["noise.bin"] = Random(3).randbytes(3000)
    kinds = set()
    for name, data in files.items():
        kind = detect_format(written(name, data))
        kinds.add(kind)
        layers = [OPEN_BYTES]
        if data[:2] == b"PK":
            layers += [
                Layer("member, sealed", _damaged_member, 4, guarded=False),
                Layer("directory", _damaged_directory, 2, guarded=False),
            ]
        elif kind == "safetensors":
            layers.append(Layer("header", _damaged_header, 4, guarded=False))
        ways = (
            Way("restored", functools.partial(_restored, name), 4),
            Way("compressed", functools.partial(_compressed, name), 0.2),
        )
        yield Sound(f"{kind} checkpoint", name, data, tuple(layers), ways)
    missing = _OPENERS.keys() - kinds
    assert not missing, f"no sound file of {sorted(missing)} to damage"


def safetensors_file(tensors: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
    """Return a safetensors file of arrays."""
    from safetensors.numpy import save

    return bytes(save(tensors, metadata))


def _contents(path: Path) -> Any:
    with open_checkpoint(path) as checkpoint:
        tensors = {info: digest(checkpoint.read(info.name)) for info in checkpoint.tensors}
        return tensors, checkpoint.aliases, checkpoint.template()


def _restored(name: str, data: bytes) -> None:
    """Read all of it, write it back, and require the same in every byte."""
    path, out = written(name, data), scratch() / f"out-{name}"
    found = _contents(path)
    with open_checkpoint(path) as checkpoint:
        restore(checkpoint.template(), checkpoint, out)
    assert out.read_bytes() == data, "restores to other bytes"
    if found[2].kind == "safetensors":
        with contextlib.suppress(safetensors.SafetensorError):
            for key, item in safetensors.deserialize(data):
                own = next(d for info, d in found[0].items() if info.name == key)
                assert own == digest(bytes(item["data"])), f"the library reads another {key!r}"
    assert _contents(out) == found, "restores to another checkpoint"


def _compressed(name: str, data: bytes) -> None:
    path, packed = written(name, data), scratch() / "packed.tc.safetensors"
    tensorcomp.compress(path, packed, threads=1, force=True)
    failed = [one.error for one in tensorcomp.verify(packed, path, threads=1) if one.error]
    assert not failed, failed[0]


def _damaged_member(data: bytes, random: Random) -> bytes:
    """Return the archive with a member damaged, its name or method changed, checksums mended."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as damaged:
        names = archive.namelist()
        chosen = random.choice([*names, *[n for n in names if n.endswith("data.pkl")] * 3])
        for entry in archive.infolist():
            content, name = archive.read(entry), entry.filename
            if name == chosen and random.random() < 0.9:
                head = random.choice((len(content), 128))
                content = damaged_bytes(content[:head], content[::-1], random) + content[head:]
            elif name == chosen:
                name = random.choice((*names, f"{name}x", "../x", "x" * 70, "\u202ex.npy"))
            with contextlib.suppress(UserWarning):  # of two members of a name
                damaged.writestr(name, content, random.choice((entry.compress_type, 8, 0)))
    return out.getvalue()


def _damaged_directory(data: bytes, random: Random) -> bytes:
    start = data.rfind(b"PK\1\2", 0, len(data) - 100 if random.random() < 0.5 else None)
    return data[:start] + damaged_bytes(data[start:], data, random)


def _damaged_header(data: bytes, random: Random) -> bytes:
    end = 8 + int.from_bytes(data[:8], "little")
    text = damaged_json(data[8:end], random)
    return len(text).to_bytes(8, "little") + text + data[end:]


# --- plans, profiles, indexes; statistics, importance, masks ----------------------------------


def _texts() -> Iterator[Sound]:
    trees = {f"{number}.weight": text for number, text in enumerate(OWN_TREES[::4])}
    entries = {name: {"tree": text, "bound": {"max_rel_l2": 0.1}} for name, text in trees.items()}
    plan = {"tensorcomp_plan": 1, "effort": "fast", "budget": {"min_snr": 20}, "tensors": entries}
    yield _text_sound("plan", "many trees", plan, Way("read", _plan))
    small = {name: {"tree": "lossless", "bound": {}} for name in _TENSORS} | {
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
    compress_source(MemoryCheckpoint(_TENSORS), file, options)
    tensorcomp.load(file.getvalue(), threads=1)


def _profile(data: bytes) -> None:
    load_profile(str(written("x.toml", data)))


def _index(data: bytes) -> None:
    folder = scratch() / "sharded"
    if not folder.is_dir():
        folder.mkdir()
        for number, name in enumerate("ab", 1):
            file = safetensors_file({name: _VALUES[0]}, {})
            (folder / f"m-{number}.safetensors").write_bytes(file)
    (folder / "model.safetensors.index.json").write_bytes(data)
    open_model(folder).keys()


def _tables() -> Iterator[Sound]:
    about = {"tensorcomp.statistics": '{"version": 1, "batches": 3, "samples": 9}'}
    table = safetensors_file({"fisher/a": _VALUES**2, "input_norm/a": abs(_VALUES[0])}, about)
    layers = (OPEN_BYTES, Layer("header", _damaged_header, 3, guarded=False))
    ways = (Way("read", lambda data: Statistics.load(written("x.safetensors", data)) and None),)
    yield Sound("statistics", "fisher", table, layers, ways)
    costs = safetensors_file({"a": _VALUES**2 + 1e-9, "b": _VALUES[:1, 0] ** 2}, {})
    ways = (Way("read", lambda data: load_importance(written("x.safetensors", data)) and None),)
    yield Sound("importance", "two", costs, layers, ways)
    path = scratch() / "masks.tc.safetensors"
    PruningResult({"a": _VALUES > 0.3, "b": _VALUES[0] > 0}, "magnitude", "nm(2, 4)").save(path)
    ways = (Way("read", _masks),)
    about_masks = Layer("about, sealed", _damaged_masks, 2, guarded=False)
    yield Sound("masks", "two", path.read_bytes(), (BYTES, about_masks), ways)


def _masks(data: bytes) -> Any:
    found = PruningResult.load(written("masks.tc.safetensors", data))
    return {name: digest(mask) for name, mask in found.masks.items()}


def _damaged_masks(data: bytes, random: Random) -> bytes:
    about = damaged_json('{"score": "magnitude", "granularity": "nm(2, 4)"}', random)
    metadata = {"tensorcomp.masks": _text(about)}
    return tensorcomp.save({"a": _VALUES > 0, "b": _VALUES[0]}, metadata, threads=1)


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
    store.masks("round-01", lambda: PruningResult({"weight": _VALUES > 0}, "magnitude", "element"))
    store.weights("round-01", lambda: {"weight": torch.from_numpy(_VALUES)})
    files = {path.name: path.read_bytes() for path in folder.iterdir()}

    def damaged(name: str, data: dict[str, bytes], random: Random) -> dict[str, bytes]:
        change = damaged_json if name.endswith("json") else BYTES.damage
        return {**data, name: change(data[name], random)}

    layers = [Layer(name, functools.partial(damaged, name)) for name in files]
    yield Sound("ticket", "one round", files, tuple(layers), (Way("read", _ticket),))
    point = files["rewind.pt"]
    layers = [OPEN_BYTES, Layer("member, sealed", _damaged_member, 4, guarded=False)]
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
_SPEC = GradientSpec("w", _VALUES.shape)


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
        payload, _ = compressor.step(_VALUES, compressor.init(_SPEC))
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
            data = worker.compress({"w": _VALUES, "b": _VALUES[0], "none": _VALUES[:0]})
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
        plain = _damaged_header(plain, random)
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
            worker.compress({"w": _VALUES, "b": _VALUES[0]})
            state = pickle.dumps(worker.state_dict())
            ways = (Way("resumed", functools.partial(_resumed, text)),)
            yield Sound("gradient state", text, state, layers, ways)
    compressor = parse_compressor("topk(0.1)")
    _, state = compressor.step(_VALUES, compressor.init(_SPEC))
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
    worker.compress({"w": _VALUES, "b": _VALUES[0]})


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
