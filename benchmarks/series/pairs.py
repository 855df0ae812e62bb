"""The pairs of checkpoints that are measured, and what each has to reach."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from safetensors.torch import load_file, save_file

from benchmarks.series.saving import FOR_TORCH, NAME

Element = Literal["bfloat16", "float32"]
TINY = ("step_900000", "step_900001")


@dataclass(frozen=True)
class Pair:
    """A checkpoint and its base.

    Parameters
    ----------
    title : str
        What the two are.
    base, new : str
        Paths in the folder of the series, without suffixes.
    element : {"bfloat16", "float32"}
    wanted : float, optional
        Bytes of the new file over those of its compressed file, at least.
    ideal : float, optional
        The same by adaptive code lengths, measured once.
    fm_delta : float, optional
        The same of FM-Delta, measured once: it is on no registry.
    """

    title: str
    base: str
    new: str
    element: Element
    wanted: float | None = None
    ideal: float | None = None
    fm_delta: float | None = None

    @property
    def is_state(self) -> bool:
        """Whether there are moments of an optimizer in it."""
        return self.title.startswith("whole state")

    def paths(self, folder: Path) -> tuple[Path, Path]:
        """Return where the base and the new checkpoint are."""
        suffix = ".bf16.safetensors" if self.element == "bfloat16" else ".safetensors"
        return folder / f"{self.base}{suffix}", folder / f"{self.new}{suffix}"


def _pairs(
    title: str, base: str, new: str, *figures: tuple[Element, float | None, float, float | None]
) -> list[Pair]:
    return [
        Pair(title, base, new, element, wanted, ideal, fm_delta)
        for element, wanted, ideal, fm_delta in figures
    ]


def _saves(series: str, base: int, new: int) -> tuple[str, str]:
    return f"{series}/{NAME.format(base)}", f"{series}/{NAME.format(new)}"


BF16: Element = "bfloat16"
FP32: Element = "float32"
PAIRS = (
    *_pairs(
        "MiniLM, base to 60 steps",
        *_saves("minilm", 0, 60),
        (BF16, 12.6, 12.82, 9.43),
        (FP32, 2.55, 2.58, 2.26),
    ),
    *_pairs("MiniLM, a step at 2e-6", *(f"minilm/{name}" for name in TINY), (BF16, 480, 484, 347)),
    *_pairs("MiniLM, a step at 2e-5", *_saves("minilm", 30, 31), (BF16, 90, 91.1, 67.9)),
    *_pairs("MiniLM, ten steps", *_saves("minilm", 30, 40), (BF16, None, 24.9, 18.4)),
    *_pairs(
        "tiny_lm, fine-tuned",
        "ft/base",
        "ft/full",
        (BF16, 2.77, 2.79, 2.42),
        (FP32, None, 1.47, 1.42),
    ),
    *_pairs("tiny_lm, gently", "ft/base", "ft/gentle", (BF16, 5.4, 5.47, 4.13)),
    *_pairs(
        "tiny_lm, LoRA merged",
        "ft/base",
        "ft/lora",
        (BF16, 7.7, 7.74, 1.92),
        (FP32, 9.2, 9.26, 1.34),
    ),
    Pair("made merge of LoRA, width 2048", "merged/base", "merged/lora", BF16, 15),
    Pair("made merge of LoRA, width 2048", "merged/base", "merged/lora", FP32, 22),
    *_pairs(
        "training, 1200 to 1350",
        *_saves("lm", 1200, 1350),
        (BF16, None, 2.63, 2.36),
    ),
    *_pairs(
        "training, 600 to 750",
        *_saves("lm", 600, 750),
        (BF16, None, 1.72, 1.61),
        (FP32, None, 1.26, 1.23),
    ),
    *_pairs("digits by SGD, 900 to 1000", *_saves("digits", 900, 1000), (BF16, None, 5.02, 4.34)),
)


def whole_states(folder: Path, out: Path, base: int = 600, new: int = 750) -> Pair:
    """Write weights and both moments of two saves as one file each, and return the pair."""
    stems = []
    for step in (base, new):
        source = folder / "lm" / NAME.format(step)
        state = load_file(f"{source}.safetensors") | load_file(f"{source}.optim.safetensors")
        stems.append(out / f"state_{step:06d}")
        save_file(state, f"{stems[-1]}.safetensors", metadata=FOR_TORCH)
    title = f"whole state w, m, v, {base} to {new}"
    wanted, ideal = (1.26, 1.264) if (base, new) == (600, 750) else (None, None)
    return Pair(title, str(stems[0]), str(stems[1]), FP32, wanted, ideal)
