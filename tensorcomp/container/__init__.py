"""Read and write compressed checkpoints: manifest, blobs, bundles, chunks."""
