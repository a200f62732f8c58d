"""Small records that notice damage: a JSON file and a line of the log each end with a digest of what stands before it.

A flipped bit often leaves a text that is still JSON, with another figure in it. A record without a digest is older, or
was written by hand, and is read as it is.
"""

import hashlib
import re
import zlib

_FILE = re.compile(rb',\n "digest": "([0-9a-f]{16})"\n\}\n$')
_FILE_LENGTH = 48
_LINE = re.compile(rb', "crc": "([0-9a-f]{8})"\}')
_LINE_LENGTH = 20


def seal_file(content: str) -> bytes:
    """A JSON object, indented by one blank, with its digest as the last key."""
    body = content.removesuffix("\n}").encode()
    return body + f',\n "digest": "{_digest(body)}"\n}}\n'.encode()


def open_file(content: bytes) -> bytes:
    """The JSON object without its digest. Raises `ValueError` where the digest is that of another content."""
    found = _FILE.search(content, max(0, len(content) - _FILE_LENGTH))
    if found is None:
        return content
    body = content[: found.start()]
    if _digest(body) != found[1].decode():
        raise ValueError("it was changed since it was written; delete its line `digest` if you did so")
    return body + b"\n}"


def seal_line(line: bytes) -> bytes:
    """A JSON object on a line of its own, with its checksum as the last key."""
    body = line.removesuffix(b"}\n")
    return body + b', "crc": "%08x"}\n' % zlib.crc32(body)


def open_line(line: bytes) -> bytes:
    """The JSON object of a line without its checksum. Raises `ValueError` where that is of another content."""
    found = _LINE.fullmatch(line, max(0, len(line) - _LINE_LENGTH))
    if found is None:
        return line
    body = line[: found.start()]
    if zlib.crc32(body) != int(found[1], 16):
        raise ValueError("it was changed since it was written")
    return body + b"}"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
