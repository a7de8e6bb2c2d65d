"""README as the page of the package index: without pictures and links that lead into the repository."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

# In README, what needs its pictures or its links to make sense stands between these two.
HERE_ONLY = re.compile(r"<!-- repository only -->\n.*?<!-- for all -->\n+", re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
ELSEWHERE = r"(?:https?:|mailto:|#)"
PICTURE = re.compile(rf"!\[[^\]]*\]\((?!{ELSEWHERE})[^)]*\) ?")
LINK = re.compile(rf"\[([^\]]*)\]\((?!{ELSEWHERE})[^)]*\)")


def package_page(readme: str) -> str:
    """The text of README where there is no repository around it: relative links become their words."""
    text = LINK.sub(r"\1", PICTURE.sub("", COMMENT.sub("", HERE_ONLY.sub("", readme))))
    return re.sub(r"\n{3,}", "\n\n", text)


class PackagePage(MetadataHookInterface):
    """Puts that page into the metadata of wheels and source archives."""

    def update(self, metadata: dict[str, object]) -> None:
        text = package_page((Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
