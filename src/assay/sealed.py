"""Digests that detect damage: a JSON file and a line of the log each end with a digest of the preceding content.

A flipped bit often leaves valid JSON with another figure. A record without a digest is older or was changed by hand. It
is read, and whatever shows it says so (`seal_doubt`).
"""

import hashlib
import re
import zlib

_FILE = re.compile(rb',\n "digest": "([0-9a-f]{16})"\n\}\n$')
_FILE_LENGTH = 48
_LINE = re.compile(rb', "crc": "([0-9a-f]{8})"\}')
_LINE_LENGTH = 20


def seal_file(content: str) -> bytes:
    """Add a digest as the last key of a JSON object, which is indented by one space."""
    body = content.removesuffix("\n}").encode()
    return body + f',\n "digest": "{_digest(body)}"\n}}\n'.encode()


def seal_doubt(name: str, content: bytes) -> str:
    """Return the sentence on a JSON file without a digest; empty if it has one."""
    if _FILE.search(content, max(0, len(content) - _FILE_LENGTH)):
        return ""
    return (
        f"not sealed: {name} has no digest, as before version 0.2 or after a change by hand, so damage to its figures "
        "cannot be seen"
    )


def open_file(content: bytes) -> bytes:
    """Remove the digest of a JSON object. Raises `ValueError` if it does not match the content."""
    found = _FILE.search(content, max(0, len(content) - _FILE_LENGTH))
    if found is None:
        return content
    body = content[: found.start()]
    if _digest(body) != found[1].decode():
        raise ValueError("it was changed since it was written; remove its key `digest` if you changed it")
    return body + b"\n}"


def is_sealed_line(line: bytes) -> bool:
    """Return whether a line of a log has a checksum, which may be wrong."""
    return _LINE.fullmatch(line, max(0, len(line) - _LINE_LENGTH)) is not None


def seal_line(line: bytes) -> bytes:
    """Add a checksum as the last key of a JSON object on one line."""
    body = line.removesuffix(b"}\n")
    return body + b', "crc": "%08x"}\n' % zlib.crc32(body)


def open_line(line: bytes) -> bytes:
    """Remove the checksum of a line. Raises `ValueError` if it does not match the content."""
    found = _LINE.fullmatch(line, max(0, len(line) - _LINE_LENGTH))
    if found is None:
        return line
    body = line[: found.start()]
    if zlib.crc32(body) != int(found[1], 16):
        raise ValueError("it was changed since it was written")
    return body + b"}"


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]
