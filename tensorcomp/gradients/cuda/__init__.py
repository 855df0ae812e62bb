"""Compress torch tensors on their device.

`on_device` gives the counterpart of a compressor: `step` takes a tensor, and its payload has the
bytes that the compressor itself gives for the same values, so that workers with and without such a
device read each other. What leaves the device is what is coded further: of ``topk(0.01)`` one
element in a hundred. States hold tensors in place of arrays; `to_host` and `to_device` turn one
into the other.

Bytes may differ in the last bit of a number only where a sum has another order: the scales of
``sign``, the factors of ``powersgd``, and a momentum's clipped norm.
"""
