"""Rate and distortion beside GGUF and NNCodec: `python -m benchmarks.rate_distortion`."""

import typer

from benchmarks.lossy.rate_distortion import main

if __name__ == "__main__":
    typer.run(main)
