"""What `mkdocs build` adds to the pages in docs/: the reference pages, pages from outside of docs/, and formulas as MathML.

mkdocs calls the functions `on_...`. Nothing that is made here is committed: the reference is that of the source at hand.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import typer
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

import gradveil as gv
from gradveil.cli import app

ROOT = Path(__file__).parent.parent
# Pages outside of docs/, and where they are on the site.
OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
# A page of the reference per package; small modules at the top level share one.
CORE = "core"
PACKAGES = (
    "attacks",
    "auditing",
    "datasets",
    "defenses",
    "experiments",
    "federated",
    "leakage",
    "lightning",
    "models",
    "recommending",
    "report",
    "scores",
    "searching",
    "training",
    "transforms",
)
KINDS = {"INTEGER": "N", "FLOAT": "X"}
# What the theme would fetch for a search without a server, and ours in its place.
FETCHED, OWN = re.compile(r"https://[^\"']*iframe-worker[^\"']*"), "search-from-files.js"
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and those from outside of docs/."""
    pages = {"reference/cli.md": cli_page(), "reference/api.md": api_index(), **dict(api_pages())}
    for source, target in OUTSIDE.items():
        pages[target] = re.sub(r"\]\(docs/", "](", (ROOT / source).read_text())
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead out of docs/ lead to the site's copy."""
    for source, target in OUTSIDE.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas become MathML, which browsers show without a script."""
    return FORMULA.sub(_formula, html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """The theme would fetch this small script; here it is one of the site's own files."""
    return FETCHED.sub(get_relative_url(OWN, page.url), output)


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """The same for pages without a source, such as 404."""
    return FETCHED.sub(OWN, output)


def _formula(match: re.Match[str]) -> str:
    source = match[2].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">").strip()
    return convert(source, display="block" if match[1] == "div" else "inline")


def cli_page() -> str:
    """Every command: its help, its arguments and options."""
    parts = ["# Command line\n", "Made from the commands themselves; `gradveil COMMAND --help` says the same.\n"]
    return "\n".join([*parts, *_commands(typer.main.get_command(app), "gradveil")])


def _commands(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for child, one in command.commands.items():
            yield from _commands(one, f"{name} {child}")
        return
    yield f"## {name}\n\n{inspect.cleandoc(command.help or '')}\n"
    yield "| option | what it does | default |\n|---|---|---|"
    with click.Context(command, info_name=name) as context:
        for parameter in command.get_params(context):
            yield _row(parameter, context)
    yield ""


def _row(parameter: click.Parameter, context: click.Context) -> str:
    names = ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))
    if isinstance(parameter, click.Argument):
        names = f"`{parameter.human_readable_name}`"
    if isinstance(parameter, click.Option) and not parameter.is_flag:
        kind = parameter.make_metavar(context).strip("[]")
        names += " " + KINDS.get(kind.removesuffix(" RANGE"), kind)
    said = " ".join((getattr(parameter, "help", None) or "").split())
    default = parameter.get_default(context, call=False)
    shown = "" if default is None or default is False or parameter.name in ("help", "workers") else f"`{default}`"
    return "| " + " | ".join(one.replace("|", "\\|") for one in (names, said, shown)) + " |"


def api_index() -> str:
    """The names of `import gradveil as gv`, each with its first sentence and a link."""
    lines = [
        "# Python\n",
        "Made from the docstrings. One import has what most scripts need:\n",
        "    import gradveil as gv\n",
        "| name | what it is |\n|---|---|",
    ]
    for name in gv.__all__:
        found = getattr(gv, name)
        if not inspect.ismodule(found) and name != "__version__":
            said = (inspect.getdoc(found) or "").split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
            lines.append(f"| [`gv.{name}`][{_path(name)}] | {said} |")
    lines.append("\nThe packages in full:\n")
    lines += [f"- [`gradveil.{package}`](api/{package}.md): {_first_line(package)}" for package in PACKAGES]
    return "\n".join([*lines, f"- [the rest](api/{CORE}.md): types, what a participant shares, devices, errors"]) + "\n"


def api_pages() -> Iterator[tuple[str, str]]:
    """A page per package: what it exports, and what `gv` takes from its modules."""
    homes = {name: _path(name) for name in gv.__all__ if not inspect.ismodule(getattr(gv, name))}
    rest = dict(homes)
    for package in PACKAGES:
        module = importlib.import_module(f"gradveil.{package}")
        exported = [name for name in getattr(module, "__all__", ()) if inspect.getdoc(getattr(module, name))]
        inside = [name for name, path in homes.items() if path.startswith(f"gradveil.{package}.")]
        paths = [homes[name] for name in inside] + [f"{module.__name__}.{name}" for name in exported]
        rest = {name: path for name, path in rest.items() if name not in inside}
        seen = {path.rpartition(".")[2]: path for path in reversed(paths)}
        yield f"reference/api/{package}.md", _api_page(f"gradveil.{package}", inspect.getdoc(module) or "", seen)
    rest.pop("__version__")
    yield f"reference/api/{CORE}.md", _api_page("The rest", "Nouns that every package speaks of.", rest)


def _api_page(title: str, about: str, paths: dict[str, str]) -> str:
    return f"# {title}\n\n{about}\n\n" + "\n\n".join(f"::: {path}" for _, path in sorted(paths.items())) + "\n"


def _path(name: str) -> str:
    """Where a name of `gv` is defined."""
    module, _, other = gv._HOMES.get(name, "errors").partition(":")
    return f"gradveil.{module}.{other or name}"


def _first_line(package: str) -> str:
    return (inspect.getdoc(importlib.import_module(f"gradveil.{package}")) or "").split("\n")[0]
