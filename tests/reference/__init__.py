"""A decoder of the whole format in plain Python and NumPy: specification, oracle, last resort.

It shares no code with `tensorcomp` and needs nothing compiled but NumPy, `ml_dtypes` for the float
types that NumPy lacks, and `zstandard` and `xxhash` for what the format takes from others. Each
module says in words how bytes are laid out, then reads them by the simplest loop there is. It is
slow, some microseconds an element, and it trusts its input: a damaged file ends in some exception.

======================  ==========================================================
`reference.reader`      the file: header, manifest, blobs, chunks, bundles
`reference.tree`        trees of codecs: their text, and the bytes of their nodes
`reference.codec`       what a codec is here, and the float types
`reference.bits`        bit streams, bit planes, blocks of sections, canonical codes
`reference.rice`        small tables of integers
`reference.contexts`    contexts of row and column scale
`reference.machines`    which of two quantizers an element has
`reference.plain`       raw, constant, bitpack, runlength, gaps, zstd
`reference.huffman`     huffman
`reference.ans`         ans
`reference.floats`      fields, floats, groupfloats
`reference.differences` difference
`reference.tables`      palette, kmeans, pq, nf4
`reference.quantizers`  uniform, trellis, grid, affine, ternary, sign, cast
`reference.factors`     svd, rotate, scales, update, rank1
`reference.masks`       sparse, zeros, live, packed, and all that prunes
======================  ==========================================================

All integers are little-endian. In ``tests``, ``python -m reference FROM TO`` decodes a file to a
plain safetensors file.
"""
