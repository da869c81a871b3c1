"""Metadata of version 16 told as version 15, which is what the SDK reads.

A node of today answers in either version and the SDK asks for 15; what is published of newer runtimes is in version 16
alone. Left out is what 15 has no place for: deprecations, view functions, associated types and versions of APIs. Types
and their numbers stay as they are. SCALE as `frame-metadata` 23 writes it.
"""

from __future__ import annotations

from collections.abc import Callable

_MAGIC = b"meta"


class _Reader:
    """Goes through the bytes once. Every method gives the bytes it went over, so that they can be copied."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        assert len(found) == count, "the metadata ends too early"
        self.at += count
        return found

    def number(self) -> int:
        """A compact number."""
        mode = self.data[self.at] & 3
        if mode < 3:
            width = (1, 2, 4)[mode]
            return int.from_bytes(self.take(width), "little") >> 2
        return int.from_bytes(self.take((self.take(1)[0] >> 2) + 4), "little")

    def over(self, read: Callable[[], object]) -> bytes:
        """The bytes that `read` goes over."""
        start = self.at
        read()
        return self.data[start : self.at]

    def text(self) -> bytes:
        return self.over(lambda: self.take(self.number()))

    def each(self, read: Callable[[], object]) -> None:
        for _ in range(self.number()):
            read()

    def option(self, read: Callable[[], object]) -> bytes:
        start = self.at
        if self.take(1)[0]:
            read()
        return self.data[start : self.at]


def _compact(number: int) -> bytes:
    for mode, width in enumerate((1, 2, 4)):
        if number < 1 << 8 * width - 2:
            return (number << 2 | mode).to_bytes(width, "little")
    raise ValueError(f"no count is as great as {number}")


class _Translation:
    """Reads version 16 from `r` and writes version 15."""

    def __init__(self, data: bytes) -> None:
        self.r = _Reader(data)

    def whole(self) -> bytes:
        r = self.r
        assert r.take(5) == _MAGIC + b"\x10", "no metadata of version 16"
        types = r.over(lambda: r.each(self._type))
        pallets = self._list(self._pallet)
        extrinsic = self._extrinsic()
        apis = self._list(self._api)
        outer = [r.over(r.number) for _ in range(3)]
        custom = r.over(lambda: r.each(lambda: (r.text(), r.number(), r.text())))
        assert r.at == len(r.data), "bytes are left over"
        runtime = outer[0]  # stands for the type of the runtime itself, which nobody reads
        return _MAGIC + b"\x0f" + types + pallets + extrinsic + runtime + apis + b"".join(outer) + custom

    def _list(self, one: Callable[[], bytes]) -> bytes:
        count = self.r.number()
        return _compact(count) + b"".join(one() for _ in range(count))

    def _optional(self, one: Callable[[], bytes]) -> bytes:
        return b"\1" + one() if self.r.take(1)[0] else b"\0"

    # -- read over
    def _type(self) -> None:
        r = self.r
        r.number()
        r.each(r.text)  # its path
        r.each(lambda: (r.text(), r.option(r.number)))  # its parameters
        match r.take(1)[0]:
            case 0:
                self._fields()
            case 1:
                r.each(lambda: (r.text(), self._fields(), r.take(1), self._docs()))
            case 2:
                r.number()
            case 3:
                r.take(4), r.number()
            case 4:
                r.each(r.number)
            case 5:
                r.take(1)
            case 6:
                r.number()
            case 7:
                r.number(), r.number()
            case kind:
                raise ValueError(f"no kind of type is {kind}")
        self._docs()

    def _fields(self) -> bytes:
        r = self.r
        return r.over(lambda: r.each(lambda: (r.option(r.text), r.number(), r.option(r.text), self._docs())))

    def _docs(self) -> bytes:
        return self.r.over(lambda: self.r.each(self.r.text))

    def _deprecation(self) -> bytes:
        """Of an item: not at all, without a note, or with one and perhaps a version."""
        told = self.r.take(1)
        return told + self.r.text() + self.r.option(self.r.text) if told == b"\2" else told

    def _variants_deprecation(self) -> None:
        self.r.each(lambda: (self.r.take(1), self._deprecation()))

    # -- read and written
    def _pallet(self) -> bytes:
        r = self.r
        told = r.text() + self._optional(self._storage)
        told += self._optional(self._enumeration) + self._optional(self._enumeration)
        told += self._list(self._constant) + self._optional(self._enumeration)
        r.each(lambda: (r.text(), r.number(), self._docs()))  # associated types
        r.each(self._view_function)
        told += r.take(1) + self._docs()
        self._deprecation()
        return told

    def _storage(self) -> bytes:
        return self.r.text() + self._list(self._entry)

    def _entry(self) -> bytes:
        r = self.r
        told = r.text() + r.take(1) + r.over(self._entry_type) + r.text() + self._docs()
        self._deprecation()
        return told

    def _entry_type(self) -> None:
        r = self.r
        if r.take(1)[0]:
            r.each(lambda: r.take(1))  # hashers
            r.number()
        r.number()

    def _enumeration(self) -> bytes:
        told = self.r.over(self.r.number)
        self._variants_deprecation()
        return told

    def _constant(self) -> bytes:
        r = self.r
        told = r.text() + r.over(r.number) + r.text() + self._docs()
        self._deprecation()
        return told

    def _inputs(self) -> bytes:
        return self.r.over(lambda: self.r.each(lambda: (self.r.text(), self.r.number())))

    def _view_function(self) -> None:
        self.r.take(32), self.r.text(), self._inputs(), self.r.number(), self._docs(), self._deprecation()

    def _extrinsic(self) -> bytes:
        """The first version alone, with the extensions of its one set; the type of all of them together isn't told."""
        r = self.r
        versions = [r.take(1) for _ in range(r.number())]
        address, call, signature = (r.over(r.number) for _ in range(3))
        by_version = {r.take(1)[0]: [r.number() for _ in range(r.number())] for _ in range(r.number())}
        known = [r.text() + r.over(r.number) + r.over(r.number) for _ in range(r.number())]
        used = [known[index] for index in by_version[0]]
        return versions[0] + address + call + signature + address + _compact(len(used)) + b"".join(used)

    def _api(self) -> bytes:
        r = self.r
        told = r.text() + self._list(self._method) + self._docs()
        r.number(), self._deprecation()
        return told

    def _method(self) -> bytes:
        told = self.r.text() + self._inputs() + self.r.over(self.r.number) + self._docs()
        self._deprecation()
        return told


def as_version_15(data: bytes) -> bytes:
    """The same runtime's metadata in version 15. Raises AssertionError for what is no version 16 from end to end."""
    return _Translation(data).whole()
