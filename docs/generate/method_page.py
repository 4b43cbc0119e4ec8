"""The page of all methods, from their classes, their rows and `methods.toml`, which has what code cannot say."""

from __future__ import annotations

import inspect
import io
import re
import tokenize
import tomllib
from dataclasses import fields
from pathlib import Path

import choosing_table
import probe
import steep
from steep.core.method import Method

TOLD = tomllib.loads(Path(__file__).with_name("methods.toml").read_text(encoding="utf-8"))


def methods() -> str:
    """One section a method, in the order of METHODS."""
    return "\n\n".join(section(name) for name in steep.METHODS)


def section(name: str) -> str:
    """Idea, equation, one step, knobs, cost, citation."""
    method = steep.METHODS[name]
    told = said_of(method)
    paper = f"[{told['citation']}]({told['link']})" if "link" in told else told["citation"]
    parts = [
        f"## {name}",
        _plain(inspect.getdoc(method)),
        f"```text\n{told['equation'].strip()}\n```",
        f"**One step.** {_plain(inspect.getdoc(method.step))} Answers with the model *{method.predicts}* the update.",
        f"**Needs.** {probe.needs(name)}" if probe.needs(name) != "–" else "",
        f"**Cost.** {_cost(name)}",
        _knobs(method),
        f"**Paper.** {paper}",
    ]
    return "\n\n".join(part for part in parts if part)


def said_of(method: type[Method]) -> dict[str, str]:
    """Find the entry of a method, or of the method it is a variant of."""
    return next(TOLD[each.name] for each in method.__mro__ if getattr(each, "name", None) in TOLD)


def _cost(name: str) -> str:
    first, later, skipped = probe.passes(name)
    text = f"{later[0]:.3g} forward and {later[1]:.3g} backward passes per image"
    if first != later:
        text += f" ({first[0]:.3g} and {first[1]:.3g} in the first batch{f', later: {skipped}' if skipped else ''})"
    numbers = choosing_table.measured()
    if name not in numbers:
        return f"{text}."
    ratio = numbers["source"]["speed"] / numbers[name]["speed"]
    graph = ", each step a CUDA graph" if numbers[name]["graph"] else ""
    return (
        f"{text}; {numbers[name]['speed']:,.0f} images/s ({ratio:.1f} times the time of `source`) and "
        f"{numbers[name]['memory']:.1f} GiB, from the rows of WRN-28-10 on an H200{graph}."
    )


def _knobs(method: type[Method]) -> str:
    own, tuned, said = method(), method.tuned(), _comments(method)
    if not fields(own):
        return "**Knobs.** None."
    out = ["| knob | default | tuned | what |", "|---|---|---|---|"]
    for field in fields(own):
        a, b = getattr(own, field.name), getattr(tuned, field.name)
        other = "" if a == b else f"`{b!r}`"
        out.append(f"| `{field.name}` | `{a!r}` | {other} | {said.get(field.name, '').replace('|', '&#124;')} |")
    return "\n".join(out)


def _comments(method: type[Method]) -> dict[str, str]:
    """Read the comment behind each field, of the class and of those it stands on; a shared field says it in `all`."""
    said = dict(TOLD["all"])
    for each in reversed(method.__mro__):
        if not issubclass(each, Method) or each is Method:
            continue
        source = inspect.getsource(each)
        for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source) + "\n").readline):
            if token.type == tokenize.COMMENT and (found := re.match(r"    (\w+):", token.line)):
                said[found[1]] = token.string.lstrip("# ")
    return said


def _plain(doc: str | None) -> str:
    """A docstring as one paragraph; what Markdown would take for emphasis is escaped."""
    return re.sub(r"(?<!`)([*_])(?!`)", r"\\\1", " ".join((doc or "").split()))
