"""Tokens as text: bytes, and multiples of Common Crawl.

A token of a byte-pair vocabulary of tens of thousands of words has 4 to 5 bytes of English text. Common Crawl counts as
the text of 84 of its crawls, to 2023: 100 trillion tokens in five languages, before duplicates are left out
(RedPajama-V2, arXiv:2411.12372; 30 trillion without duplicates). One crawl, that of May 2024, has 2.7 billion pages and
377 TiB with all markup (commoncrawl.org), most of which is no text.
"""

from typing import NamedTuple

BYTES_PER_TOKEN = (4.0, 5.0)
"""Bytes of text of a token, least and most."""
COMMON_CRAWL_TOKENS = 1e14
"""Tokens of the text of 84 crawls."""


class Text(NamedTuple):
    """An amount of text."""

    tokens: float

    @property
    def nbytes(self) -> tuple[float, float]:
        """Bytes, least and most."""
        low, high = BYTES_PER_TOKEN
        return low * self.tokens, high * self.tokens

    @property
    def common_crawls(self) -> float:
        """Multiples of the text of Common Crawl."""
        return self.tokens / COMMON_CRAWL_TOKENS
