"""A results page in Markdown, for the documentation: generated from rows, so that no number in it was typed.

The paper's claims first, then its tables in its order, its analyses, what goes beyond it, and what is missing. Rankings
are in sight; every number is folded away below.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from steep.bench.rows import Row
from steep.report import claims
from steep.report.figures import analysed
from steep.report.formats import bold, entry, grid, in_markdown, number, pipes, signed
from steep.report.runs import Runs, Source
from steep.report.summary import facts, facts_of_analyses, headline, main_column, ranked, titles
from steep.report.tables import CLEAN, ECE, MCE, MEAN, SPEED, Line, Table, plain, short
from tools.results_page import domains, explanations
from tools.results_page.chapters import BEYOND, OTHERS, PAPER, Chapters, has_mean, own_name, part
from tools.results_page.claims import across
from tools.results_page.expected import command, coverage
from tools.results_page.explanations import Explanation
from tools.results_page.plates import Plates
from tools.results_page.trainings import decisive, named, retrain

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_MANY = 12  # lines of a table that stays in sight
_SAID = ("data", "model", "methods", "device")  # of an analysis
_ANALYSES = ("energy-error", "energy-steps", "energy-severity", "samples", "calibration", "sensitivity", "stream")


def docs(
    runs: Runs,
    title: str = "Results",
    *,
    reasons: Sequence[Explanation] = (),
    plates: Plates | None = None,
    home: Path | None = None,
) -> str:
    """Write the page.

    Args:
        runs: the files of rows, as `runs.read` gives them.
        title: the page's.
        reasons: why numbers differ from the paper's, as `explanations.read` gives them.
        plates: draws pictures, where they are wanted.
        home: the folder the page will lie in; files of rows are linked from there.

    >>> print(docs(Runs(()), "Results").splitlines()[0])
    # Results
    """
    buffers = [row for source in runs.sources for row in source.buffers]
    trainings = [row for source in runs.sources for row in source.trainings]
    page = _Page(part(runs.rows), runs.rows, runs.analyses, trainings, reasons, plates)
    parts = [
        f"# {in_markdown(plain(title))}",
        "Made from stored rows by `python -m tools.results_page`; only sentences of explanation were typed.",
        *page.claims(),
        *page.chapters(PAPER),
        *page.analyses(),
        *page.chapters(BEYOND[:1]),
        *page.variants(),
        *_buffers(buffers),
        *page.tuned(),
        *page.chapters(BEYOND[1:]),
        *page.missing(),
        *_trainings(trainings, runs.rows),
        *_provenance(runs.sources, home),
        "\n".join(f"- {in_markdown(note)}" for note in runs.notes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


class _Page:
    """The parts of the page, each a list of blocks of Markdown."""

    def __init__(
        self,
        found: Chapters,
        rows: Sequence[Row],
        analyses: Sequence[Row],
        trainings: Sequence[Row],
        reasons: Sequence[Explanation],
        plates: Plates | None,
    ) -> None:
        self.found, self.rows, self.flat, self.reasons, self.plates = found, rows, analyses, reasons, plates
        self.trainings = {row["weights_sha256"]: row for row in trainings if row.get("weights_sha256")}
        self.trained = named(self.trainings.values())
        self.titles = titles([*found.tables, *found.variants, *found.tuned], self.trained)
        self.said: set[str] = set()  # explanations that stand in full on the page already
        paper = any(found.rankings.get(name) for name in PAPER)
        # a page of digits has nothing to say of the paper's claims
        held = across(found.tables, analyses, found.tuned) if paper or analyses else []
        self.claimed = [replace(one, weights=self.trained.get(one.weights, one.weights)) for one in held]

    def claims(self) -> Iterator[str]:
        """Hold the paper's claims against everything there is, in one table."""
        if not self.claimed:
            return
        counts = [f"{word}: {sum(claim.verdict == word for claim in self.claimed)}" for word in claims.VERDICTS]
        yield "## The paper's claims"
        yield f"{len(self.claimed)} claims, each on one data set and source model. {' · '.join(counts)}."
        decided = [
            [claim.text, claim.on, claim.here, bold(claim.verdict), claim.origin]
            for claim in self.claimed
            if claim.verdict != claims.UNKNOWN
        ]
        if decided:
            yield pipes([["claim", "on", "here", "verdict", "from"], *decided], "---|")
        yield (
            "± is a standard error: the larger of that over seeds and that of so many images, on which methods are "
            "compared one by one where rows say which were right, and else as if each answer were independent. Less "
            "than two of them is within noise. p is how often a shuffled pairing correlates as much. mCE is the mean "
            "corruption error; the maximum calibration error, which the paper calls MCE, is written out. What was not "
            "measured is listed [below](#what-could-not-be-reached-or-run)."
        )

    def chapters(self, names: Sequence[str]) -> Iterator[str]:
        """Write chapters: for each thing measured a headline, the ranking beside the paper's, and what is behind it."""
        for name in names:
            tables = self.found.rankings.get(name, ())
            if not tables:
                continue
            yield f"## {in_markdown(name)}"
            yield from domains.summaries(tables)
            figures = [any(v.paper is not None for line in t.lines for v in line.values.values()) for t in tables]
            whole = [_same(t) for t in tables if t.spec.get("limit") is None]
            seen: set[int] = set()
            for table, printed in zip(tables, figures, strict=True):
                few = len(table.shifts) < max(len(other.shifts) for other in tables)
                some = table.spec.get("limit") is not None and _same(table) in whole
                odd = not any(map(own_name, table.lines))  # variants, with nothing to be compared with
                quiet = name == OTHERS or (name in PAPER and (few or some or odd or (any(figures) and not printed)))
                drawn = name in PAPER and printed and table.spec.get("data") != "pacs"
                known = id(table.spec) in seen
                yield from self._section(table, folded=quiet and len(tables) > 1, known=known, drawn=drawn)
                seen.add(id(table.spec))

    def _section(self, table: Table, *, folded: bool, known: bool, drawn: bool) -> Iterator[str]:
        ranking, told = _ranking(table, self.reasons, self.said)
        remarks = [] if folded else explanations.remarks(table, self.reasons)
        said = [in_markdown(one) for one in remarks if one not in self.said]
        self.said.update(remarks)
        body = [in_markdown(headline(table)), ranking, *told, *said]
        behind = [pipes(grid(table, bold))]
        if not known:
            how = [*table.notes, f"files: {', '.join(dict.fromkeys(plain(r.get('run', '')) for r in table.rows))}"]
            again = command(table)
            how_to = [f"- again: `{again}`"] if again else []
            if (made := self.trainings.get(table.spec.get("weights_sha256"))) and (first := retrain(made)):
                how_to.insert(0, f"- its source model: `{first}`")
            behind.append("\n".join([*(f"- {in_markdown(note)}" for note in how), *how_to]))
        held = [[claim.text, claim.here, claim.verdict] for claim in claims.of(table)]
        if held:
            behind.append(pipes([["the paper's claims, on these rows", "here", ""], *held], "---|"))
        if folded:
            yield _folded(self.titles[id(table)], "\n\n".join([*body, *behind]))
            return
        yield f"### {in_markdown(self.titles[id(table)])}"
        yield from body
        if drawn and self.plates is not None:
            yield from self.plates.of_table(table)
        yield _folded("Every number" if known else "Every number, and how it was measured", "\n\n".join(behind))

    def analyses(self) -> Iterator[str]:
        """Show the charts of `steep analyze`, and its samples."""
        if not self.flat:
            return
        yield "## Analyses"
        for name in _ANALYSES:
            own = [row for row in self.flat if row["analysis"] == name]
            if not own:
                continue
            yield f"### {in_markdown(name)}"
            said = facts_of_analyses(own)
            files = ", ".join(dict.fromkeys(plain(row.get("run", "")) for row in own))
            images = sorted(
                {int(row["n"]) for row in own if isinstance(row.get("n"), int) and row.get("part") != "bin"}
            )
            counts = " to ".join(f"{n:,}" for n in dict.fromkeys((images[0], images[-1]))) if images else "unknown"
            about = [f"{len(own):,} rows", f"n = {counts}", *(said.get(what, "") for what in _SAID)]
            about += [f"commit {said['commit']}" if "commit" in said else "", f"files: {files}"]
            yield in_markdown("; ".join(word for word in about if word)) + f"; `steep analyze {plain(name)}`"
            if self.plates is None:
                continue
            for figure in analysed(own):
                yield self.plates.figure(figure, f"analysis {figure.name}")
            yield from self.plates.samples(own) if name == "samples" else ()

    def variants(self) -> Iterator[str]:
        """Set variants of a method beside the method: before and after the update, another buffer, other steps."""
        if self.found.variants:
            yield "## Variants: before or after the update, the buffer, other settings of one method"
        for table in self.found.variants:
            head = ["line", "mean", "against its method", ECE, SPEED, "answers", "seeds"]
            body = [
                [line.name, entry(line, main_column(table)), _against(table, line), entry(line, ECE),
                 entry(line, SPEED), line.predict, str(line.seeds)]
                for line in ranked(table)
                if has_mean(table, line)
            ]  # fmt: skip
            yield from _maybe_folded(self.titles[id(table)], table, pipes([head, *body]), len(body))

    def tuned(self) -> Iterator[str]:
        """Set the baselines in the setting that is fairer to them beside that of TEA's comparison."""
        if self.found.tuned:
            yield "## Tuned baselines"
            yield "What is fair to a baseline where it differs from TEA's comparison, beside what was compared there."
        for table in self.found.tuned:
            column = main_column(table)
            body = [
                [line.name, entry(line, column), _against(table, line), entry(line, ECE), str(line.seeds)]
                for line in ranked(table)
            ]
            head = ["line", column, "against the paper's setting", ECE, "seeds"]
            yield from _maybe_folded(self.titles[id(table)], table, pipes([head, *body]), len(body))

    def missing(self) -> Iterator[str]:
        """Say what was not measured and which recipes have not run, or not all of them."""
        if not self.claimed:
            return
        yield "## What could not be reached or run"
        open_claims: dict[tuple[str, str], list[str]] = {}
        for claim in self.claimed:
            if claim.verdict == claims.UNKNOWN:
                open_claims.setdefault((claim.text, claim.here), []).append(claim.on)
        if open_claims:
            body = [[text, "; ".join(filter(None, where)), why] for (text, why), where in open_claims.items()]
            yield "Claims not measured:"
            yield pipes([["claim", "on", "why"], *body], "---|")
        left = [one for one in coverage(self.rows, self.flat) if one.here < one.wanted or one.lacks or one.limits]
        if left:
            yield "Recipes that have not run, or not all of them:"
            body = [[one.recipe, one.about, one.state, one.lacks] for one in left]
            yield pipes([["recipe", "what", "here", "missing"], *body], "---|")


def _same(table: Table) -> tuple[object, ...]:
    """Say what a table is of, however many images of it were taken."""
    return (*(table.spec.get(name) for name in ("data", "model", "source", "size", "weights_sha256")), table.severities)


def _ranking(table: Table, reasons: Sequence[Explanation], known: set[str]) -> tuple[str, list[str]]:
    """Rank the methods; what is farther from the paper than allowed points to a note below."""
    columns = [c for c in (MEAN, MCE, ECE, CLEAN) if c in table.columns]
    head = ["method"]
    for column in columns:
        head += [column, *(["paper", "Δ"] if _paper(table, column) else [])]
    rows = [[*head, SPEED, "seeds"]]
    noted = explanations.notes(table, reasons)
    marks = {(method, column): note.number for note in noted for method, column, _ in note.differences}
    for line in ranked(table):
        if not has_mean(table, line) and not own_name(line):
            continue  # a variant that ran on some shifts is no rank of its own
        row = [line.name]
        for column in columns:
            value = line.values[column]
            text = entry(line, column)
            row.append(bold(text) if line.name in table.best(column) else text)
            if _paper(table, column):
                away = value.difference
                mark = str(marks.get((line.name, column), "")).translate(_SUPERSCRIPT)
                row += [number(value.paper), (number(None) if away is None else signed(away)) + mark]
        ours = line.values[main_column(table)].ours
        rows.append([*row, entry(line, SPEED), str(ours.n if ours is not None else line.seeds)])
    said = [f"- {str(note.number).translate(_SUPERSCRIPT)} {in_markdown(_named(note, known))}" for note in noted]
    known |= {note.text for note in noted}
    limit, batch = table.spec.get("limit"), table.spec.get("batch_size")
    steps = f"; here after {-(-limit // batch)} batches of each set" if limit and batch else ""
    about = f"Farther from the paper than {explanations.ALLOWED:g} point{steps}:\n\n"
    return pipes(rows), [about + "\n".join(said)] if said else []


def _named(note: explanations.Note, known: set[str]) -> str:
    """Name the numbers of a note, method by method, and say why they differ; what is known already, in short."""
    methods: dict[str, list[str]] = {}
    for method, column, away in note.differences:
        methods.setdefault(method, []).append(f"{column} {signed(away)}")
    first, dot, _ = note.text.partition(". ")
    text = f"{first} (in full above)." if note.text in known and dot else note.text
    return "; ".join(f"{name} ({', '.join(own)})" for name, own in methods.items()) + f": {text}"


def _against(table: Table, line: Line) -> str:
    """Write how far a line is from the one of its method's name."""
    column = main_column(table)
    base = next((one for one in table.lines if one.name == line.method), None)
    ours, theirs = (one.values[column].ours if one is not None else None for one in (line, base))
    return "" if line is base or ours is None or theirs is None else signed(ours.mean - theirs.mean)


def _buffers(rows: Sequence[Row]) -> Iterator[str]:
    """Set TEA with new chains for each corruption beside TEA with those of the corruption before."""
    if not rows:
        return
    yield "## The buffer: reset, or kept as in the published code"
    runs: dict[tuple[str, ...], dict[bool, Row]] = {}
    named = ("data", "model", "severity", "method", "order", "seed")
    for row in rows:  # other images, batches, devices or commits are another pair
        words = (row.get(name) for name in (*named, "n", "batch", "device", "commit", "run"))
        about = tuple("" if word is None else plain(word) for word in words)
        runs.setdefault(about, {})[bool(row["kept"])] = row
    body = []
    for about, own in runs.items():
        reset, kept = (100 * float(own[k]["mean"]) if k in own else None for k in (False, True))
        away = None if reset is None or kept is None else kept - reset
        n, _, device, commit, run = about[len(named) :]
        told = [number(reset), number(kept), number(None) if away is None else signed(away)]
        body.append([*about[: len(named)], *told, f"{int(n):,}", device, short(commit), run])
    head = ["data", "model", "severity", "method", "order of corruptions", "seed", "reset", "kept", "kept less reset"]
    yield pipes([[*head, "answers", "device", "commit", "file"], *body], "---|")


def _trainings(trainings: Sequence[Row], rows: Sequence[Row]) -> Iterator[str]:
    """Say how the source models were made: what they are decides most of every number above."""
    if not trainings:
        return
    yield "## The source models"
    head = ["data", "model", "pixels", "epochs", "batch", "border", "seed", "accuracy", "on", "weights", "device"]
    body = [
        [
            *(plain(row[name]) for name in ("data", "architecture")),
            plain(row["image_shape"][0]),
            plain(row["epochs"]),
            *(plain(told.get(name, "")) for name in ("batch_size", "border")),
            plain(row["seed"]),
            number(100 * float(row["accuracy"])),
            f"{int(row['test_images']):,}",
            plain(row.get("weights_sha256") or "")[:12],
            plain(row["device"]),
            short(row.get("commit") or ""),
            plain(row["run"]),
        ]
        for row in trainings
        for told in (decisive(row),)
    ]
    kept = {row.get("weights_sha256") for row in trainings}
    lost = {spec["weights_sha256"]: spec for row in rows if (spec := row["spec"]).get("weights_sha256") not in kept}
    for digest, spec in lost.items():
        data = plain(spec["data"]).removesuffix("-c") + (f"/{plain(spec['source'])}" if spec.get("source") else "")
        row = [data, plain(spec["model"]), *[""] * 7, plain(digest or "")[:12]]
        body.append([*row, "", "", "no row was kept of its training"])
    yield pipes([[*head, "commit", "file"], *body], "---|")


def _maybe_folded(title: str, table: Table, text: str, lines: int) -> Iterator[str]:
    how = "\n".join(f"- {in_markdown(note)}" for note in table.notes)
    if lines > _MANY:
        yield _folded(f"{title}: {lines} lines", f"{text}\n\n{how}")
        return
    yield f"### {in_markdown(title)}"
    yield text
    yield _folded("How it was measured", how)


def _folded(title: str, body: str) -> str:
    return f"<details markdown><summary>{in_markdown(title)}</summary>\n\n{body}\n\n</details>"


def _provenance(sources: Sequence[Source], home: Path | None) -> list[str]:
    rows = []
    for source in sources:
        said = facts(source.rows) if source.rows else facts_of_analyses(source.analyses) if source.analyses else {}
        about = (said.get(name, "") for name in ("when", "device", "commit"))
        rows.append([source.name, str(source.count), source.sha256[:16], *about])
    if not rows:
        return []
    lines = pipes([["file", "rows", "sha256", "when", "device", "commit"], *rows], "---|").split("\n")
    for index, source in enumerate(sources, 2):
        if home is not None and source.file is not None:  # a link beside a page that lies there too
            name, link = in_markdown(source.name), _link(source.file, home)
            lines[index] = lines[index].replace(f"| {name} |", f"| [{name}]({link}) |", 1)
    folders = dict.fromkeys(source.file.parent for source in sources if source.file is not None and home is not None)
    how = [
        f"How each file was made: [README]({_link(folder / 'README.md', home)})."
        for folder in folders
        if home is not None and (folder / "README.md").is_file()
    ]
    return ["## Where the numbers come from", *how, "\n".join(lines)]


def _link(file: Path, home: Path) -> str:
    return Path(os.path.relpath(file.resolve(), home.resolve())).as_posix()


def _paper(table: Table, column: str) -> bool:
    return any(line.values[column].paper is not None for line in table.lines)
