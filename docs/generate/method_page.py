"""The page of all methods, made from what their classes declare and from the stored rows."""

from __future__ import annotations

import inspect
import io
import re
import tokenize
from dataclasses import fields

import choosing_table
import steep
from steep.core.constraints import constraints_of
from steep.core.method import Method
from steep.methods import SOURCE
from steep.report.formats import without_empty

BATCH, IMAGES = 200, 10_000  # of the stream whose cost is given

# What a field of this name means in every method; a comment beside the field goes first.
KNOBS = {
    "lr": "learning rate",
    "optimizer": "what takes a step down the gradient",
    "consistency": "weight of the agreement of both views",
    "diversity": "weight of the spread of the answers over the classes",
    "pull": "how far back to the source weights after each step, 0: not at all",
    "loss": 'what is minimised: `"entropy"`, or with `"come"` the entropy of an opinion, which has room for doubt '
    "([arXiv:2410.10894](https://arxiv.org/abs/2410.10894)); filters and weights stay",
    "params": "which parameters move",
    "statistics": 'BatchNorm normalises by the test `"batch"` or by the running statistics of the `"source"` model',
}


def methods() -> str:
    """One section a method, in the order of METHODS."""
    return "\n\n".join(section(name) for name in steep.METHODS)


def section(name: str) -> str:
    """Idea, equation, one step, needs, cost, knobs, paper."""
    method = steep.METHODS[name]
    paper = re.sub(r"arXiv:([\d.]+\d)", r"[arXiv:\1](https://arxiv.org/abs/\1)", method.paper)
    parts = [
        f"## {name}",
        _escaped(inspect.getdoc(method)),
        f"```text\n{inspect.cleandoc(method.equation)}\n```" if method.equation else "",
        f"**One step.** {_escaped(inspect.getdoc(method.step))}{_answers(method)}",
        f"**Needs.** {needs(method)}" if method.needs else "",
        f"**Cost.** {_cost(name)}",
        _knobs(method),
        "" if paper == "–" else f"**Paper.** {paper}",
    ]
    return "\n\n".join(part for part in parts if part)


def needs(method: type[Method]) -> str:
    """Say what a method declares that it needs."""
    return ", ".join(sorted(need.value for need in method.needs)) or "–"


def passes(method: type[Method]) -> float:
    """Count the forward passes for each image of a long stream, the answer included."""
    answer = method.moves and method.predicts == "after"
    return method().passes(BATCH, IMAGES) + answer


def _answers(method: type[Method]) -> str:
    return f" Answers with the model *{method.predicts}* the update." if method.moves else ""


def _cost(name: str) -> str:
    count = f"{passes(steep.METHODS[name]):.3g}"
    unit = "pass" if count == "1" else "passes"
    text = f"{count} forward {unit} per image"
    numbers = choosing_table.measured()
    if name not in numbers:
        return f"{text}."
    ratio = numbers[SOURCE]["speed"] / numbers[name]["speed"]
    graph = ", each step a CUDA graph" if numbers[name]["graph"] else ""
    return (
        f"{text}. With WRN-28-10 on an H200{graph}: {numbers[name]['speed']:,.0f} images/s "
        f"({ratio:.1f} times the time of `{SOURCE}`), {numbers[name]['memory']:.1f} GiB."
    )


def _knobs(method: type[Method]) -> str:
    default, tuned, comments, constraints = method(), method.tuned(), _comments(method), constraints_of(method)
    if not fields(default):
        return "**Knobs.** None."
    rows = [["knob", "default", "tuned", "allowed", "what"]]
    for field in fields(default):
        a, b = getattr(default, field.name), getattr(tuned, field.name)
        other = "" if a == b else f"`{b!r}`"
        constraint = constraints[field.name]
        allowed = constraint.expected + (" or None" if constraint.optional else "")
        words = comments.get(field.name, KNOBS.get(field.name, ""))
        rows.append([f"`{field.name}`", f"`{a!r}`", other, allowed, words.replace("|", "&#124;")])
    head, *body = without_empty(rows)
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))


def _comments(method: type[Method]) -> dict[str, str]:
    """Read the comment behind each field, of the class and of those it stands on."""
    comments = {}
    for each in reversed(method.__mro__):
        if not issubclass(each, Method) or each is Method:
            continue
        source = inspect.cleandoc(inspect.getsource(each)) + "\n"
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and (field := re.match(r"    (\w+):", token.line)):
                comments[field[1]] = token.string.lstrip("# ")
    return comments


def _escaped(doc: str | None) -> str:
    """A docstring as one paragraph; what Markdown would take for emphasis is escaped."""
    return re.sub(r"(?<!`)([*_])(?!`)", r"\\\1", " ".join((doc or "").split()))
