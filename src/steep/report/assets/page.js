"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(byId(id)?.textContent ?? "{}");

  // Theme: what the system prefers, until somebody chooses; the choice is kept where the browser lets us.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = byId("theme");
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const showTheme = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    button.textContent = isDark() ? "☾ dark" : "☀ light";
  };
  try {
    const kept = localStorage.getItem("steep-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* a page from a file may have no storage */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("steep-theme", root.dataset.theme); } catch { /* as above */ }
    showTheme();
  });
  dark.addEventListener("change", showTheme);
  showTheme();

  // Leaderboards: a click or Enter on a heading sorts; what is missing stays last either way.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, index) => head.querySelector("button").addEventListener("click", () => {
      const flip = { ascending: "descending", descending: "ascending" };
      const now = flip[head.getAttribute("aria-sort")] ?? head.dataset.first;
      heads.forEach((other) => other.setAttribute("aria-sort", other === head ? now : "none"));
      const sign = now === "ascending" ? 1 : -1;
      const number = head.dataset.kind === "number";
      const key = (row) => row.cells[index].dataset.value;
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        return sign * (number ? Number(x) - Number(y) : x.localeCompare(y));
      });
      body.append(...rows);
      byId("said").textContent = `sorted by ${head.textContent}, ${now}`;
    }));
  }

  // Heat maps: the slider and the choice swap what cells show; pointing at a cell or walking to it says all about it.
  const tip = byId("tip");
  const tell = (cell) => {
    const table = cell.closest("table");
    const column = table.tHead.rows[0].cells[cell.cellIndex].title;
    const level = byId(`${table.id}-level`);
    const where = level && column !== "clean" ? `, severity ${level.getAttribute("aria-valuetext")}` : "";
    const name = document.createElement("b");
    name.textContent = `${cell.parentNode.cells[0].textContent} · ${column}${where}`;
    tip.replaceChildren(name, cell.dataset.more);
    tip.hidden = false;
    const box = cell.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 6;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above > 0 ? above : box.bottom + 6) + scrollY}px`;
    cell.setAttribute("aria-describedby", "tip");
  };
  const hush = (cell) => { tip.hidden = true; cell.removeAttribute("aria-describedby"); };
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  for (const table of document.querySelectorAll("table.heat")) {
    const shown = read(`${table.id}-data`);
    const level = byId(`${table.id}-level`);
    const mode = byId(`${table.id}-mode`);
    const body = table.tBodies[0];
    const show = () => {
      const kind = mode?.value ?? Object.keys(shown.modes)[0];
      const view = level ? Number(level.value) : 0;
      tip.hidden = true; // it told of what is shown no longer
      if (level) {
        level.setAttribute("aria-valuetext", shown.views[view]);
        level.parentNode.querySelector("output").textContent = shown.views[view];
      }
      table.parentNode.previousElementSibling.classList.toggle("diverging", kind !== "accuracy");
      shown.modes[kind][view].forEach((line, r) => line.forEach(([text, mark, more], c) => {
        const cell = body.rows[r].cells[c + 1];
        cell.textContent = text;
        cell.className = mark;
        cell.dataset.more = more;
      }));
    };
    level?.addEventListener("input", show);
    mode?.addEventListener("change", show);
    const cellOf = (event) => event.target.closest("td");
    table.addEventListener("pointerover", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
    table.addEventListener("pointerout", (event) => { const cell = cellOf(event); if (cell) hush(cell); });
    table.addEventListener("focusin", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
    table.addEventListener("focusout", (event) => { const cell = cellOf(event); if (cell) hush(cell); });
    table.addEventListener("keydown", (event) => {
      const cell = cellOf(event);
      const move = moves[event.key];
      if (event.key === "Escape" && cell) hush(cell);
      if (!cell || !move) return;
      event.preventDefault();
      const to = body.rows[cell.parentNode.sectionRowIndex + move[0]]?.cells[cell.cellIndex + move[1]];
      if (to?.tagName !== "TD") return;
      cell.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    });
  }

  // Charts: one after the other, so that the page answers meanwhile. Colours are the page's own, which follow the theme.
  const specs = read("charts");
  const ink = { labelColor: "var(--dim)", titleColor: "var(--ink)" };
  const theme = {
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    axis: { ...ink, gridColor: "var(--line)", domainColor: "var(--line)", tickColor: "var(--line)", titleFontWeight: "normal" },
    legend: ink,
    header: { labelColor: "var(--ink)", titleColor: "var(--ink)" },
    title: { color: "var(--ink)", subtitleColor: "var(--dim)" },
    text: { fill: "var(--ink)" },
    view: { stroke: "transparent" },
  };
  const merged = (one, other) => {
    const plain = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
    const result = { ...one };
    for (const [key, value] of Object.entries(other)) {
      result[key] = plain(value) && plain(result[key]) ? merged(result[key], value) : value;
    }
    return result;
  };
  const fitted = (spec, width) => {
    const made = { ...spec, config: merged(spec.config ?? {}, theme) };
    const inner = spec.spec?.width;
    if (spec.facet?.field && typeof inner === "number") {
      // As many in a row as fit, two at the least, and rows of about the same length.
      const most = Math.max(2, Math.floor((width - 40) / (inner + 24)));
      const values = spec.data?.values ?? spec.datasets?.[spec.data?.name] ?? [];
      const many = new Set(values.map((one) => one[spec.facet.field])).size || most;
      made.columns = Math.ceil(many / Math.ceil(many / most));
      const side = Math.min(inner, Math.floor((width - 70) / made.columns) - 24);
      made.spec = { ...spec.spec, width: side, height: side * (spec.spec.height ?? inner) / inner };
    } else if (spec.layer || spec.mark) {
      made.width = "container";
      made.autosize = { type: "fit-x", contains: "padding" };
    }
    return made;
  };
  const draw = async () => {
    for (const [id, spec] of Object.entries(specs)) {
      const place = byId(id);
      const options = { ast: true, actions: false, renderer: "svg" }; // ast: expressions are read, never compiled
      try {
        await vegaEmbed(place, fitted(spec, place.clientWidth), options);
      } catch (error) { // one that fails does not take the others with it
        place.textContent = "This chart could not be drawn; its data stands below.";
        console.error(error);
      }
      await new Promise((next) => setTimeout(next));
    }
    root.dataset.charts = "drawn";
  };
  draw();
  addEventListener("beforeprint", () => document.querySelectorAll("section > details").forEach((one) => { one.open = true; }));
})();
