"""``tensorcomp completion``."""

from __future__ import annotations

import click

from .command import Result, command


@command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell.")
def completion(shell: str) -> Result:
    """Print what makes a shell complete verbs, options and paths.

    \b
    Put one of these lines into the file that your shell reads when it starts:
      eval "$(tensorcomp completion bash)"            # ~/.bashrc
      eval "$(tensorcomp completion zsh)"             # ~/.zshrc
      tensorcomp completion fish | source             # ~/.config/fish/config.fish
    """  # noqa: D301 - \b keeps the example's lines as they are
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    script = kind(root, {}, "tensorcomp", "_TENSORCOMP_COMPLETE").source()
    return Result(dict, summary=script.splitlines())
