"""Manifests that a hostile or careless writer could make: changes of a sound one, by name."""

from collections.abc import Callable
from typing import Any

Change = Callable[[dict[str, Any]], Any]


def every_record(**changes: Any) -> Change:
    """Return a change of the record of every stored tensor."""

    def change(manifest: dict[str, Any]) -> None:
        for record in manifest["tensors"].values():
            if "same_as" not in record:
                record.update(changes)

    return change


def record(name: str, **changes: Any) -> Change:
    return lambda manifest: manifest["tensors"][name].update(changes)


BUNDLE = "small tensors.BF16.0"


def bundle(**changes: Any) -> Change:
    return lambda manifest: manifest["bundles"][BUNDLE].update(changes)


def top(**changes: Any) -> Change:
    return lambda manifest: manifest.update(changes)


def source(**changes: Any) -> Change:
    return lambda manifest: manifest["source"].update(changes)


def without(*path: str) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        del manifest[path[-1]]

    return change


def every_tree(text: Any) -> Change:
    def change(manifest: dict[str, Any]) -> None:
        for planned in manifest["trees"]:
            planned["tree"] = text

    return change


MANIFESTS: dict[str, Change] = {
    "is a list": lambda manifest: [manifest],
    "is a number": lambda _: 7,
    "is text": lambda _: "manifest",
    "is empty": lambda _: {"a": 1},
    "nests deeply": lambda _: b"[" * 100_000 + b"]" * 100_000,
    "is no JSON": lambda _: b"{",
    "is no UTF-8": lambda _: b'{"\xff": 1}',
    "chunks of 0": top(chunk_elements=0),
    "chunks of -1": top(chunk_elements=-1),
    "huge chunks": top(chunk_elements=1 << 40),
    "chunks of 1": top(chunk_elements=1),
    "other chunks": top(chunk_elements=1000),
    "chunks of a half": top(chunk_elements=0.5),
    "chunks of true": top(chunk_elements=True),
    "no chunks": without("chunk_elements"),
    "no trees": top(trees=[]),
    "trees is an object": top(trees={}),
    "trees of numbers": top(trees=[1, 2, 3, 4, 5, 6]),
    "no tensors": top(tensors={}),
    "tensors is a list": top(tensors=[]),
    "a tensor less": without("tensors", "bias"),
    "a tensor more": lambda m: m["tensors"].update(more=dict(m["tensors"]["bias"])),
    "a tensor is a list": lambda m: m["tensors"].update(bias=[]),
    "huge shape": every_record(shape=[1 << 40, 1 << 20]),
    "overflowing shape": every_record(shape=[1 << 62, 1 << 62, 1 << 62]),
    "large shape": record("weights", shape=[1 << 31]),
    "somewhat larger shape": record("weights", shape=[73, 64]),
    "smaller shape": record("weights", shape=[71, 64]),
    "negative shape": every_record(shape=[-1]),
    "fractional shape": every_record(shape=[2.5]),
    "shape of text": every_record(shape="abc"),
    "shape is null": every_record(shape=None),
    "unknown dtype": record("weights", dtype="F32X", nbytes=72 * 64 * 4),
    "unknown dtype, huge": record("weights", dtype="F32X", nbytes=1 << 50),
    "unknown dtype, no size": record("weights", dtype="F32X"),
    "narrower dtype": record("weights", dtype="F16"),
    "wider dtype": record("weights", dtype="F64"),
    "complex dtype": record("weights", dtype="C64", shape=[36, 64]),
    "dtype of half a byte": record("weights", dtype="F4", shape=[72, 64, 8]),
    "dtype is a number": every_record(dtype=32),
    "other integer type": record("weights", dtype="U32"),
    "tree out of range": every_record(tree=99),
    "negative tree": every_record(tree=-1),
    "tree is text": every_record(tree="0"),
    "no tree": without("tensors", "weights", "tree"),
    "fallback out of range": every_record(fallback=99),
    "fallback is text": every_record(fallback="0"),
    "no digest": without("tensors", "weights", "digest"),
    "wrong digest": record("weights", digest="0" * 16),
    "short digest": record("weights", digest="0"),
    "digest is no number": record("weights", digest="xyz"),
    "digest is null": record("weights", digest=None),
    "role is a number": every_record(role=3),
    "equals itself": record("weights", same_as="weights"),
    "equals a duplicate": record("bias", same_as="weights"),
    "equals nothing": record("weights", same_as="nothing"),
    "equals a number": record("weights", same_as=5),
    "tied to nothing": top(aliases={"other": "nothing"}),
    "tied to itself": top(aliases={"other": "other"}),
    "tied in a ring": top(aliases={"a": "b", "b": "a"}),
    "tied over a tensor": top(aliases={"weights": "bias"}),
    "tied to a number": top(aliases={"other": 4}),
    "aliases is a list": top(aliases=[]),
    "no source": without("source"),
    "source is null": top(source=None),
    "unknown kind": source(kind="gguf"),
    "kind of a torch file": source(kind="torch"),
    "kind of an archive": source(kind="npz"),
    "kind of a layout": source(kind="layout"),
    "nothing is said to be hidden": source(kind="layout", structure={"gaps": [0, 0]}),
    "hidden numbers": source(kind="layout", structure={"hidden": [1], "gaps": []}),
    "fewer gaps than tensors": source(kind="layout", structure={"hidden": [], "gaps": []}),
    "negative gaps": source(kind="layout", structure={"hidden": [], "gaps": [-1, 0]}),
    "huge gaps": source(kind="layout", structure={"hidden": [], "gaps": [1 << 62, 1 << 62]}),
    "gaps of text": source(kind="layout", structure={"hidden": [], "gaps": "ab"}),
    "source is negative": source(nbytes=-1),
    "metadata is a list": source(structure={"metadata": ["x"]}),
    "metadata of numbers": source(structure={"metadata": {"a": 1}}),
    "metadata of surrogates": source(structure={"metadata": {"a": "\udcff"}}),
    "structure is a list": source(structure=["x"]),
    "structure of pairs": source(structure=[["metadata", 4]]),
    "attachments is a list": source(attachments=[]),
    "attachment is no base64": source(attachments={"header": "§"}),
    "attachment is no frame": source(attachments={"header": "AAAA"}),
    "attachment is a number": source(attachments={"header": 4}),
    "no bundles": without("bundles"),
    "bundles is empty": top(bundles={}),
    "bundles is a list": top(bundles=[]),
    "a bundle is a list": lambda m: m["bundles"].update({BUNDLE: []}),
    "a bundle more": lambda m: m["bundles"].update(more=dict(m["bundles"][BUNDLE])),
    "a bundle of nothing": lambda m: m["bundles"].update(
        {"bias": {**m["tensors"].pop("bias"), "shape": [1, 128]}}
    ),
    "in an unknown bundle": record("bundled.3", bundle="more"),
    "in a tensor": record("bundled.3", bundle="weights"),
    "in a number": record("bundled.3", bundle=0),
    "in a list": record("bundled.3", bundle=[BUNDLE]),
    "in and equal": record("bundled.3", same_as="bundled.4"),
    "another type in a bundle": record("bundled.3", dtype="F16"),
    "a wider type in a bundle": record("bundled.3", dtype="F32"),
    "an unknown type in a bundle": record("bundled.3", dtype="F99", nbytes=30),
    "a larger tensor in a bundle": record("bundled.3", shape=[3, 1 << 20]),
    "a huge tensor in a bundle": record("bundled.3", shape=[1 << 40]),
    "tensors that fill less": record("bundled.16", shape=[3, 0]),
    "tensors that fill more": record("bundled.16", shape=[3, 60]),
    "a tensor more in a bundle": lambda m: m["tensors"].update(
        more=dict(m["tensors"]["bundled.16"])
    ),
    "a tensor less in a bundle": without("tensors", "bundled.16"),
    "a tensor that leaves its bundle": record("bundled.16", bundle=None),
    "a bundle of one axis": bundle(shape=[512]),
    "a bundle of no axes": bundle(shape=[]),
    "a bundle of other rows": bundle(shape=[8, 64]),
    "a bundle of many rows": bundle(shape=[1025, 128]),
    "a bundle of an unknown type": lambda m: (
        [
            record.update(dtype="F99", nbytes=30)
            for record in m["tensors"].values()
            if "bundle" in record
        ]
        and m["bundles"][BUNDLE].update(dtype="F99", shape=[1, 128], nbytes=1 << 26, tree=0)
    ),
    "a bundle without a name": lambda m: m["bundles"].update({"": m["bundles"].pop(BUNDLE)}),
    "a bundle of huge rows": bundle(shape=[1 << 40, 128]),
    "a bundle without rows": bundle(shape=[0, 128]),
    "a bundle of another type": bundle(dtype="F16"),
    "a bundle that equals a tensor": bundle(same_as="weights"),
    "a bundle in itself": bundle(bundle=BUNDLE),
    "a bundle of another tree": bundle(tree=99),
    "a bundle of another digest": bundle(digest="0" * 16),
    "a bundle without a digest": without("bundles", BUNDLE, "digest"),
    "a bundle of no tree": without("bundles", BUNDLE, "tree"),
    "a bundle of a wrong size": bundle(nbytes=1 << 50),
    "tree is a filter": every_tree("zstd"),
    "tree of an unknown codec": every_tree("nonesuch"),
    "tree is broken": every_tree("raw("),
    "tree is deep": every_tree("fields(exponent=" * 900),
    "tree is long": every_tree("raw" + " " * (1 << 20)),
    "tree is a number": every_tree(4),
    "tree of other codecs": every_tree("ans"),
    "tree of contexts": every_tree("huffman(contexts=32)"),
    "tree of parts": every_tree("sparse(mask=gaps, values=palette)"),
    "tree of bits": every_tree("bitpack"),
    "tree of runs": every_tree("runlength"),
    "constant tree": every_tree("constant"),
    "raw tree": every_tree("raw(bytes=zstd)"),
}

# What these say is as sound as what the writer said: nothing contradicts it.
SOUND: dict[str, Change] = {
    "another role": every_record(role="other"),
    "transposed": record("weights", shape=[64, 72]),
    "flattened": record("weights", shape=[64 * 72]),
    "no axes less": record("weights", shape=[1] * 20 + [72, 64]),
    "duplicate of another shape": record("weights_again", shape=[2, 36, 64]),
    "another shape in a bundle": record("bundled.3", shape=[5, 3]),
    "larger source": source(nbytes=1 << 40),
    "a name more": top(aliases={"other": "weights"}),
}
