"""The page of one data set: for each thing measured a headline, a ranking beside the paper's, and all numbers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from steep.bench.rows import Row
from steep.report import claims
from steep.report.formats import bold, entry, grid, in_markdown, pipes, without_empty
from steep.report.paper import CLEAN
from steep.report.summary import headline
from steep.report.tables import ECE, MCE, MEAN, SPEED, Line, Table
from steep.report.words import data_title, declared, number, plain, signed
from tools.results_page import domains, explanations
from tools.results_page.blocks import Footnotes, folded, text_table
from tools.results_page.chapters import OTHER_PAGE, TUNED, VARIANTS, Part, has_mean, has_own_name
from tools.results_page.expected import command
from tools.results_page.explanations import Explanation
from tools.results_page.plates import Plates
from tools.results_page.trainings import retrain

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MANY = 12  # lines of a table that stays in sight
_ABOUT = {
    VARIANTS: "Before or after the update, another buffer, other settings of one method.",
    TUNED: "What is fair to a baseline where it differs from TEA's comparison, beside what was compared there.",
}


class SetPage:
    """Writes the page of one data set."""

    def __init__(
        self, name: str, reasons: Sequence[Explanation], trainings: Mapping[str, Row], plates: Plates | None
    ) -> None:
        """Take the set's name, why numbers differ from the paper's, training rows by digest, and what draws."""
        self.name, self.reasons, self.trainings, self.plates = name, reasons, trainings, plates
        self._explained: set[str] = set()  # explanations that stand in full on the page already
        self._notes = Footnotes()

    def write(self, parts: Sequence[Part]) -> str:
        """Write the page."""
        title = "Other data" if self.name == OTHER_PAGE else data_title(self.name)
        blocks = [f"# {title}", "Made from stored rows. [Summary](../results.md) · [claims](claims.md)"]
        for chapter, group in itertools.groupby(parts, key=lambda part: part.chapter):
            blocks += [f"## {in_markdown(chapter)}", *([_ABOUT[chapter]] if chapter in _ABOUT else [])]
            members = list(group)
            blocks += domains.summaries([part.table for part in members])
            for part in members:
                blocks += self._beside(part) if chapter in _ABOUT else self._section(part)
        return "\n\n".join([*blocks, self._notes.block()]) + "\n"

    def _section(self, part: Part) -> Iterator[str]:
        table = part.table
        ranking, differences = self._ranking(table)
        remarks = [] if part.folded else explanations.remarks(table, self.reasons)
        new = [in_markdown(remark) for remark in remarks if remark not in self._explained]
        self._explained.update(remarks)
        body = [in_markdown(headline(table)) + self._footnote(table), ranking, *differences, *new]
        behind = [pipes(grid(table, bold))]
        if checked := [[claim.text, claim.here, claim.verdict] for claim in claims.of(table)]:
            behind.append(text_table([["the paper's claims, on these rows", "here", ""], *checked]))
        if part.folded:
            yield folded(table.title, "\n\n".join([*body, *behind]))
            return
        yield f"### {in_markdown(table.title)}"
        yield from body
        known = declared(table.spec["data"])
        if self.plates is not None and known is not None and not known.domains:
            yield from self.plates.of_table(table) if any(map(table.has_paper, table.columns)) else ()
        yield folded("Every number", "\n\n".join(behind))

    def _beside(self, part: Part) -> Iterator[str]:
        """Set variants of a method beside the method."""
        table = part.table
        head = ["line", table.main_column, "against its method", ECE, SPEED, "answers", "seeds"]
        lines = [line for line in table.ranked() if has_mean(table, line)]
        body = [
            [line.name, entry(line, table.main_column), _against(table, line), entry(line, ECE), entry(line, SPEED),
             line.predict, str(len(line.seeds))]
            for line in lines
        ]  # fmt: skip
        text = pipes(without_empty([head, *body]))
        if len(lines) > _MANY:
            yield folded(f"{table.title}: {len(lines)} lines", text + self._footnote(table, "\n\nHow: "))
        else:
            yield f"### {in_markdown(table.title)}"
            yield text + self._footnote(table, "\n\nHow: ")

    def _footnote(self, table: Table, before: str = "") -> str:
        """Say how a table was measured and how to measure it again, in a footnote."""
        files = ", ".join(dict.fromkeys(plain(row.get("run", "")) for row in table.rows))
        texts = [in_markdown(note) for note in (*table.notes, f"files: {files}")]
        trained = self.trainings.get(str(table.spec.get("weights_sha256")))
        if trained is not None and (first := retrain(trained)):
            texts.append(f"its source model: `{first}`")
        if again := command(table):
            texts.append(f"again: `{again}`")
        return before + self._notes.mark("; ".join(texts))

    def _ranking(self, table: Table) -> tuple[str, list[str]]:
        """Rank the methods; what is farther from the paper than allowed points to a note below."""
        columns = [c for c in (MEAN, MCE, ECE, CLEAN) if c in table.columns]
        head = ["method"]
        for column in columns:
            head += [column, *(["paper", "Δ"] if table.has_paper(column) else [])]
        rows = [[*head, SPEED, "seeds"]]
        notes = explanations.notes(table, self.reasons)
        marks = {(method, column): note.number for note in notes for method, column, _ in note.differences}
        for line in table.ranked():
            if not has_mean(table, line) and not has_own_name(line):
                continue  # a variant that ran on some shifts is no rank of its own
            if not any(line.values[column].ours for column in (*columns, SPEED)):
                continue  # what it has is in the table of every number
            row = [line.name]
            for column in columns:
                value, text = line.values[column], entry(line, column)
                row.append(bold(text) if line.name in table.best(column) else text)
                if table.has_paper(column):
                    mark = str(marks.get((line.name, column), "")).translate(_SUPERSCRIPT)
                    row += [number(value.paper), signed(value.difference) + mark]
            ours = line.values[table.main_column].ours
            rows.append([*row, entry(line, SPEED), str(ours.n if ours is not None else len(line.seeds))])
        reasons = [f"- {str(note.number).translate(_SUPERSCRIPT)} {in_markdown(self._reason(note))}" for note in notes]
        self._explained |= {note.text for note in notes}
        limit, batch = table.spec.get("limit"), table.spec.get("batch_size")
        steps = f"; here after {-(-limit // batch)} batches of each set" if limit and batch else ""
        about = f"Farther from the paper than {explanations.ALLOWED:g} point{steps}:\n\n"
        return pipes(without_empty(rows)), [about + "\n".join(reasons)] if reasons else []

    def _reason(self, note: explanations.Note) -> str:
        """Name the numbers of a note and why they differ; a reason that stands on the page already, in short."""
        methods: dict[str, list[str]] = {}
        for method, column, away in note.differences:
            methods.setdefault(method, []).append(f"{column} {signed(away)}")
        first, dot, _ = note.text.partition(". ")
        text = f"{first} (in full above)." if note.text in self._explained and dot else note.text
        return "; ".join(f"{name} ({', '.join(numbers)})" for name, numbers in methods.items()) + f": {text}"


def _against(table: Table, line: Line) -> str:
    """Write how far a line is from the one of its method's name."""
    base = next((other for other in table.lines if other.name == line.method), None)
    ours, theirs = (None if one is None else one.mean(table.main_column) for one in (line, base))
    return "" if line is base or ours is None or theirs is None else signed(ours - theirs)
