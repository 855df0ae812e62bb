"""Load compressed folders by transformers, and by what reads safetensors.

`from_pretrained` patches nothing. `enable` lets every library of the process read compressed files
where it reads safetensors files; importing this module alone changes nothing. `SeriesCallback`
keeps a Trainer's checkpoints in a series.
"""

from typing import TYPE_CHECKING, Any

from tensorcomp.integrations.pretrained import from_pretrained, save_pretrained
from tensorcomp.integrations.safetensors_hook import disable, enable, enabled

if TYPE_CHECKING:
    from tensorcomp.integrations.series.trainer import SeriesCallback

__all__ = ["SeriesCallback", "disable", "enable", "enabled", "from_pretrained", "save_pretrained"]


def __getattr__(name: str) -> Any:
    if name == "SeriesCallback":  # which imports transformers
        from tensorcomp.integrations.series import trainer

        return trainer.SeriesCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
