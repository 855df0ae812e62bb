"""Compress torch tensors on their device.

Compressors take tensors as they take arrays, and `on_device` says which of them do: payloads have
the bytes that arrays of the same values give, so that workers with and without such a device read
each other. What leaves the device is what is coded further: of ``topk(0.01)`` one element in a
hundred. States hold tensors in place of arrays; `payload.arrays` moves them to a device and back.

Bytes may differ in the last bit of a number only where a sum has another order: the scales of
``sign``, the factors of ``powersgd``, and a momentum's clipped norm.
"""
