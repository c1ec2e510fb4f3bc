/* Connects the parts of a task's page: data, address to state, state to table. */
"use strict";
(function (board) {
  const { el } = board;
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement.dataset.root || "";
  const lower = (title) => title[0].toLowerCase() + title.slice(1);
  const asIf = (state, payload) => state.target !== "" && board.movable(payload, state.column);

  /* Columns with a figure of at least one entry. */
  const columnsOf = (payload) =>
    [...new Set([payload.ruleset.ranked_by, ...board.COLUMNS])].filter((column) => Object.hasOwn(payload.columns.figures, column));

  function corrected(state, payload) {
    const columns = columnsOf(payload);
    if (!columns.includes(state.column)) state.column = columns[0] || "time";
    if (!board.sortable(state.sort.split(":")[0])) state.sort = "rank";
    if (!/^[1-9]\d{0,5}$/.test(state.page)) state.page = "1";
    for (const name of ["from", "to"]) if (board.date(state[name]) !== state[name]) state[name] = "";
    if (state.target !== "" && !Number.isFinite(Number(state.target))) state.target = "";
    return state;
  }

  board.board = function (packed) {
    const payload = board.unpack(packed);
    const first = columnsOf(payload)[0] || "time";
    let state = corrected(board.parse(location.hash), payload);
    const table = byId("ranking");
    const form = byId("filters");
    const bySlug = new Map(payload.entries.map((entry) => [entry.slug, entry]));
    let shownColumn = null;
    let syncSlider = () => undefined;

    const change = function (changes) {
      const asked = changes === null ? { ...board.parse(""), column: state.column } : { ...state, ...changes };
      state = corrected(asked, payload);
      const kept = board.format({ ...state, column: state.column === first ? "" : state.column });
      history.replaceState(null, "", kept ? `#${kept}` : location.pathname + location.search);
      show();
      if (changes === null) board.syncFilters(form, state);
    };

    const picked = () => new Set(state.curves.split(",").filter((slug) => bySlug.has(slug)).slice(0, board.SERIES));
    const onpick = function (slug, on) {
      const set = picked();
      const full = on && set.size >= board.SERIES;
      const inTable = table.contains(document.activeElement);
      if (on && !full) set.add(slug);
      if (!on) set.delete(slug);
      change({ curves: [...set].join(",") });
      if (full) byId("found").append(` ${board.FULL}`);
      // The rows are replaced: keep the reader's place.
      const again = inTable && [...table.querySelectorAll("tr[data-slug]")].find((row) => row.dataset.slug === slug);
      if (again) again.querySelector("input").focus();
    };
    const onsort = function (key) {
      const [name, direction] = state.sort.split(":");
      change({ sort: name === key && direction !== "desc" ? `${key}:desc` : key, page: "1" });
      board.syncFilters(form, state);
      const again = [...table.querySelectorAll("th[aria-sort] button")][0];
      if (again) again.focus();
    };

    // The runs' steps are most of the data: they are loaded only for another target or a curve.
    const need = () => board.fetchSteps(payload, root, show);

    let whole = false;
    const show = function () {
      if (state.target !== "" || picked().size) need();
      const all = board.rows(payload, state);
      const having = all.filter((row) => row.entry.has(state.column));
      const many = having.some((row) => row.entry.n >= 3);
      const passes = board.filter(many ? state : { ...state, runs: "" });
      board.showRuns(form, many, state.column);
      const some = having.filter((row) => passes(row.entry));
      const rows = board.sort(some, state);
      const pages = Math.max(1, Math.ceil(rows.length / board.PAGE));
      if (Number(state.page) > pages) state.page = String(pages);
      board.draw(table, rows, { payload, state, scale: board.barScale(all), root, picked: picked(), onpick, onsort, whole });
      byId("found").textContent = board.summary(rows.length, having.length, state, payload);
      board.drawPager(byId("pager"), rows.length, state, change);
      syncSlider(state);
      if (shownColumn !== state.column) showColumn();
      const about = [board.ofTraining(state.column) ? "training" : "inference", asIf(state, payload) ? "asked" : "rules"];
      for (const each of document.querySelectorAll("[data-about]")) each.hidden = !about.includes(each.dataset.about);
      if (byId("overlaid")) byId("overlaid").hidden = !board.ofTraining(state.column);
      if (byId("curves")) board.drawCurves(byId("curves"), payload, [...picked()].map((slug) => bySlug.get(slug)), root, (slug) => onpick(slug, false));
    };

    const showColumn = function () {
      shownColumn = state.column;
      for (const figure of document.querySelectorAll("[data-progress]")) figure.hidden = figure.dataset.progress !== state.column;
      for (const radio of document.querySelectorAll("input[name=column]")) radio.checked = radio.value === state.column;
      table.caption.textContent = `Ranking by ${lower(board.titleOf(payload, state.column))}`;
      table.dataset.column = state.column;
    };

    board.makeColumns(byId("columns"), state, change);
    board.makeFilters(form, payload, state, change);
    for (const each of document.querySelectorAll(".script")) each.hidden = false;
    byId("slider").hidden = typeof payload.reach !== "number";
    if (!byId("slider").hidden) syncSlider = board.makeSlider(byId("slider"), payload, state, change, need);
    for (const each of document.querySelectorAll(".no-script")) each.hidden = true;
    window.addEventListener("hashchange", () => {
      if (!location.hash.includes("=")) return;
      state = corrected(board.parse(location.hash), payload);
      show();
      board.syncFilters(form, state);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
      if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      form.elements.q.focus();
    });
    // All rows are printed, since paper cannot be paged.
    for (const [name, all] of [["beforeprint", true], ["afterprint", false]]) {
      window.addEventListener(name, () => {
        whole = all;
        show();
      });
    }
    show();
    document.documentElement.dataset.ready = "yes";
  };

  /* The data of a large board is asked for at the reader's first sign of life, or by a link into it. */
  const later = document.querySelector("script[data-later]");
  if (later && /^(?:\.\.\/)*data\/(?!.*\.\.)[A-Za-z0-9_.-]+\.js$/.test(later.dataset.later)) {
    const signs = ["pointermove", "pointerdown", "touchstart", "wheel", "scroll", "keydown", "focusin", "hashchange"];
    const load = function () {
      for (const sign of signs) window.removeEventListener(sign, load);
      document.head.append(el("script", { src: later.dataset.later, async: true }));
    };
    if (location.hash.includes("=")) load();
    else for (const sign of signs) window.addEventListener(sign, load, { passive: true });
  }

  board.summary = function (count, of, state, payload) {
    const entries = `${count.toLocaleString("en-GB")} of ${of.toLocaleString("en-GB")} entries`;
    const what = `by ${lower(board.titleOf(payload, state.column))}`;
    const asked = asIf(state, payload) ? board.quality(Number(state.target), payload.target, 2) : "";
    const moved = `, as if the target were ${asked}: by value alone, without intervals`;
    const target = asked === "" ? "" : payload.whole ? moved : `; those at ${asked} are loading`;
    return `${entries} ${what}${target}.`;
  };
})((window.levelbench = window.levelbench || {}));
