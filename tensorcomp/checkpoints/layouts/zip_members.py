"""Find the stored members of zip archives, and their checksums."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tensorcomp._formatting import bytes_text, counted, shown
from tensorcomp.checkpoints.base import file_bytes
from tensorcomp.errors import CheckpointError
from tensorcomp.io.file_part import FilePart
from tensorcomp.io.files import file_size, reading

_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
_LOCAL = struct.Struct("<4s22xHH")  # magic, lengths of name and extra field
_CENTRAL = struct.Struct("<4s24xHHH12x")  # magic, lengths of name, extra field and comment
_LOCAL_CRC, _CENTRAL_CRC = 14, 16
_END = struct.Struct("<4s8xLLH")  # magic, size and offset of the directory, length of comment
_END_64 = struct.Struct("<4s36xQQ20x")  # the same in archives of torch and of large files
_DESCRIPTOR = b"PK\x07\x08"
_ENCRYPTED, _HAS_DESCRIPTOR = 1 << 0, 1 << 3


class Member(NamedTuple):
    """A member that is stored as it is.

    Parameters
    ----------
    name : str
    start, size : int
        Of its bytes in the file.
    checksums : tuple of int
        Where the file holds its CRC-32: beside it and in the directory.
    """

    name: str
    start: int
    size: int
    checksums: tuple[int, ...]


def open_zip(path: Path, start: int = 0, stop: int | None = None) -> zipfile.ZipFile:
    """Open a zip archive, or one that is a part of a file.

    The file is open only while it is read. A damaged archive is a `CheckpointError`.
    """
    try:
        with reading(path):
            return zipfile.ZipFile(FilePart(path, start, stop))
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise CheckpointError(
            f"a zip archive whose directory is missing or damaged, as when a download or a "
            f"full disk cut it short ({error}); get it again",
            path=path,
        ) from error


def stored_members(path: Path, start: int = 0, stop: int | None = None) -> dict[str, Member]:
    """Return the stored members of an archive by name, and none of others.

    Parameters
    ----------
    path : Path
    start, stop : int
        The archive's place in the file; by default all of it.

    Raises
    ------
    CheckpointError
        If its directory is damaged, or claims more than the file holds.
    """
    stop = file_size(path) if stop is None else stop
    members: dict[str, Member] = {}
    with open_zip(path, start, stop) as archive, reading(path), path.open("rb") as file:
        file.seek(start + archive.start_dir)
        directory = file.read(stop - start - archive.start_dir)
        at = 0
        for entry in archive.infolist():
            central = start + archive.start_dir + at
            try:
                magic, *lengths = _CENTRAL.unpack_from(directory, at)
            except struct.error:
                magic = b""
            if magic != b"PK\x01\x02":
                raise CheckpointError("a zip archive whose directory is damaged", path=path)
            at += _CENTRAL.size + sum(lengths)
            is_plain = (
                entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & _ENCRYPTED
            )
            if not is_plain or entry.filename in members:
                continue
            head = b""
            if 0 <= entry.header_offset < stop - start:
                file.seek(start + entry.header_offset)
                head = file.read(_LOCAL.size)
            if len(head) < _LOCAL.size or not head.startswith(_MAGICS[0]):
                raise CheckpointError(
                    f"has no member {shown(entry.filename)} where it says so", path=path
                )
            _, name, extra = _LOCAL.unpack(head)
            begin = start + entry.header_offset + _LOCAL.size + name + extra
            end = begin + entry.file_size
            if entry.file_size != entry.compress_size or end > stop:
                raise CheckpointError(
                    f"claims a member {shown(entry.filename)} that does not fit it", path=path
                )
            place = start + entry.header_offset + _LOCAL_CRC
            if entry.flag_bits & _HAS_DESCRIPTOR:
                file.seek(end)
                place = end + 4 if file.read(4) == _DESCRIPTOR else end
            places = place, central + _CENTRAL_CRC
            members[entry.filename] = Member(entry.filename, begin, entry.file_size, places)
    return members


def packed_notes(path: Path) -> list[str]:
    """Return a note on the packed members of an archive, if there are any."""
    with open_zip(path) as archive:
        sizes = [
            entry.compress_size
            for entry in archive.infolist()
            if entry.compress_type != zipfile.ZIP_STORED and entry.compress_size
        ]
    members = f"{counted(len(sizes), 'member')} of {bytes_text(sum(sizes))}"
    note = f"{members} packed by zip: kept as it is; packed without compression it would take less"
    return [note] if sizes else []


def archives(data: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the places of archives that stand in a row in a file's bytes.

    Bytes that belong to none are passed over.
    """
    start = 0
    for found in re.finditer(re.escape(_MAGICS[1]), data.data):
        end = found.start()
        if end + _END.size > data.size:
            return
        _, size, offset, comment = _END.unpack_from(data, end)
        directory = end - size
        if end >= _END_64.size and data[end - 20 : end - 16].tobytes() == b"PK\x06\x07":
            _, size, offset = _END_64.unpack_from(data, end - _END_64.size)
            directory = end - _END_64.size - size
        begin = directory - offset
        if begin > start and data[start : start + 4].tobytes() == _MAGICS[0]:
            continue  # an archive inside a member of the one that begins here
        if start <= begin <= directory < end and all(
            data[at : at + 4].tobytes() == magic
            for at, magic in ((begin, _MAGICS[0]), (directory, b"PK\x01\x02"))
        ):
            start = end + _END.size + comment
            yield begin, start


def write_checksums(path: Path, changed: Sequence[int], *, in_a_row: bool) -> None:
    """Write the CRC-32 of members anew where bytes at some places changed.

    The file is one archive, or several in a row; of any other nothing changes.
    """
    data = file_bytes(path)
    if data[:4].tobytes() != _MAGICS[0]:
        return
    with path.open("r+b") as file:
        for start, stop in archives(data) if in_a_row else [(0, data.size)]:
            for member in stored_members(path, start, stop).values():
                begin, end = member.start, member.start + member.size
                if bisect_left(changed, begin) < bisect_left(changed, end):
                    crc = zlib.crc32(data[begin:end].data)
                    for place in member.checksums:
                        file.seek(place)
                        file.write(crc.to_bytes(4, "little"))
