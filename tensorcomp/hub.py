"""Load compressed folders by transformers, and by what reads safetensors.

`from_pretrained` patches nothing. `enable` lets every library of the process read compressed files
where it reads safetensors files; importing this module alone changes nothing.
"""

from tensorcomp.integrations.pretrained import from_pretrained, save_pretrained
from tensorcomp.integrations.safetensors_hook import disable, enable, enabled

__all__ = ["disable", "enable", "enabled", "from_pretrained", "save_pretrained"]
