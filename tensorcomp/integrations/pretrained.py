"""Load and save compressed folders of models by the models' own functions."""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from tensorcomp.errors import CheckpointError, InputTypeError, OptionError
from tensorcomp.integrations.safetensors_hook import is_enabled

if TYPE_CHECKING:
    from tensorcomp.api.compress_result import CompressResult
    from tensorcomp.container.model import BasePaths
    from tensorcomp.pipeline.options import CompressKeywords


_MODEL_KEYWORDS = ("dtype", "torch_dtype", "quantization_config")


def from_pretrained(
    model_class: Any, folder: str | os.PathLike[str], *, bases: BasePaths = (), **keywords: Any
) -> Any:
    """Load a transformers model from a compressed folder, without a patch.

    Each tensor is decoded when the model takes it, on the threads of transformers.

    Parameters
    ----------
    model_class : type
        Of transformers, such as ``AutoModel``.
    folder : str or path-like
        That `tensorcomp.compress` or `save_pretrained` wrote.
    bases : path or iterable of paths, optional
        Files and folders to find the bases in that it was compressed against; else its own folder.
    **keywords
        Those of the class's own ``from_pretrained``.

    Returns
    -------
    transformers.PreTrainedModel
        The model, equal to that of the uncompressed folder; or what else the keywords ask for.

    Raises
    ------
    CheckpointError, FormatError
        If the folder holds no compressed model, a shard is missing, or a file is damaged.
    InputTypeError
        If the class is none of transformers.
    OptionError
        If weights would stay on the disk: those are read later, which takes `enable`.
    """
    from tensorcomp.api.load import safe_open

    _refuse_disk(keywords.get("device_map"))
    variant = keywords.pop("variant", None)
    files = find_weights(Path(folder, keywords.get("subfolder", "")), variant)
    model_class, config, keywords = _configured(model_class, folder, keywords)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(safe_open(f, framework="pt", bases=bases)) for f in files]
        slices = {name: file.get_slice(name) for file in opened for name in file.offset_keys()}
        loaded = model_class.from_pretrained(None, config=config, state_dict=slices, **keywords)
    model = loaded[0] if isinstance(loaded, tuple) else loaded
    _refuse_disk(getattr(model, "hf_device_map", None))
    model.name_or_path = model.config.name_or_path = os.fspath(folder)
    return loaded


def _configured(
    model_class: Any, folder: str | os.PathLike[str], keywords: dict[str, Any]
) -> tuple[Any, Any, dict[str, Any]]:
    """Return the class of a model, its configuration, and the keywords left, as transformers does.

    It finds these by itself only where it is given a path, and it takes a path or tensors.
    """
    import torch
    from transformers import AutoConfig, GenerationConfig, PreTrainedConfig

    is_auto = hasattr(model_class, "from_config")
    config_class = AutoConfig if is_auto else getattr(model_class, "config_class", None)
    if config_class is None:
        raise InputTypeError(
            f"expected a class of transformers' models, got {model_class!r}; load others by their "
            "own functions within tensorcomp.hub.enabled()"
        )
    config = keywords.pop("config", None)
    if not isinstance(config, PreTrainedConfig):
        # These are the model's, though a configuration would take them.
        own = {name: keywords.pop(name) for name in _MODEL_KEYWORDS if name in keywords}
        config, keywords = config_class.from_pretrained(
            folder if config is None else config, return_unused_kwargs=True, **keywords
        )
        keywords |= own
    if is_auto:
        trusted = {name: keywords[name] for name in ("trust_remote_code",) if name in keywords}
        with torch.device("meta"):
            bare = model_class.from_config(copy.deepcopy(config), **trusted)
        model_class = type(bare)
        config = config if isinstance(config, type(bare.config)) else bare.config
    with contextlib.suppress(OSError):  # there is none
        keywords.setdefault("generation_config", GenerationConfig.from_pretrained(folder))
    return model_class, config, keywords


def _refuse_disk(device_map: Any) -> None:
    """Refuse weights that accelerate would read from the files later."""
    devices = device_map.values() if isinstance(device_map, Mapping) else [device_map]
    if "disk" in devices and not is_enabled():
        raise OptionError(
            "expected no part of the model on 'disk', from which accelerate reads compressed files "
            "only after tensorcomp.hub.enable(); call that first, or give another device_map"
        )


def find_weights(folder: Path, variant: str | None = None) -> list[Path]:
    """Return the compressed files of the weights that transformers would take.

    Raises
    ------
    CheckpointError
        If there are none, or a shard is missing.
    """
    from tensorcomp.checkpoints.shards import read_index, require_shards
    from tensorcomp.container.compressed_folder import is_compressed_file

    if not folder.is_dir():
        raise CheckpointError("is no folder of a model; download it first", path=folder)
    present = {file.name for file in folder.iterdir()}
    parts = [] if variant is None else [variant]
    for names in ([*parts, "tc"], parts):
        whole = ".".join(["model", *names, "safetensors"])
        index_name = ".".join(["model.safetensors.index", *names, "json"])
        files = [folder / whole] if whole in present else []
        if not files and index_name in present:
            index = read_index(folder / index_name)
            assert index is not None
            if index.shards.isdisjoint(present) and not names:
                continue  # those that were compressed
            require_shards(index, present)
            files = [folder / name for name in sorted(index.shards)]
        if files and is_compressed_file(files[0]):
            return files
    raise CheckpointError(
        "holds no compressed weights that transformers finds: neither "
        f"{'.'.join(['model', *parts, 'tc', 'safetensors'])} nor an index of such shards; give a "
        "folder that this version of tensorcomp compressed",
        path=folder,
    )


def save_pretrained(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    force: bool = False,
    keep_names: bool = False,
    save_options: Mapping[str, Any] = MappingProxyType({}),
    **keywords: Unpack[CompressKeywords],
) -> CompressResult:
    """Save a model by its own ``save_pretrained``, compressed.

    What it writes is compressed from a temporary folder beside the output, which appears complete
    or not at all.

    Parameters
    ----------
    model : object with ``save_pretrained``
        A model of transformers, diffusers or sentence-transformers, or a pipeline.
    folder : str or path-like
    force, keep_names
        As for `tensorcomp.compress`.
    save_options : mapping of str to object
        Keywords of the model's ``save_pretrained``, such as ``max_shard_size``.
    **keywords
        Fields of `tensorcomp.CompressOptions`, such as ``profile``; lossless by default.

    Returns
    -------
    CompressResult
        Sizes, and the tree of each tensor.

    Raises
    ------
    CheckpointError
        If the folder exists and `force` is not given, or cannot be written.
    PlanError
        If the budget cannot be kept.
    InputTypeError
        If the model has no ``save_pretrained``.
    """
    from tensorcomp.api.compress import compress
    from tensorcomp.io.files import refuse_unless_forced, writing

    if not callable(getattr(model, "save_pretrained", None)):
        raise InputTypeError(f"expected a model with save_pretrained, got {type(model).__name__}")
    target = Path(folder).absolute()
    refuse_unless_forced(target, force=force)
    with writing(target):
        beside = tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.")
    with beside as plain:
        model.save_pretrained(plain, **save_options)
        return compress(plain, folder, force=force, keep_names=keep_names, **keywords)
