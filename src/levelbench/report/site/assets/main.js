/* Ties a task's page together: data in, address to state, state to table. */
"use strict";
(function (board) {
  const { el } = board;
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement.dataset.root || "";

  /* Columns that an entry has a figure in. */
  const columnsOf = (payload) =>
    board.COLUMNS.filter((column) => payload.entries.some((entry) => entry.figures[column] !== undefined));

  function corrected(state, payload) {
    const columns = columnsOf(payload);
    if (!columns.includes(state.column)) state.column = columns[0] || "time";
    if (!board.sortable(state.sort.split(":")[0])) state.sort = "rank";
    if (!/^[1-9]\d{0,5}$/.test(state.page)) state.page = "1";
    for (const name of ["from", "to"]) if (board.date(state[name]) !== state[name]) state[name] = "";
    if (state.target !== "" && !Number.isFinite(Number(state.target))) state.target = "";
    return state;
  }

  /* The runs' steps may come in a file of their own, asked for once the ranking is there: they are most of the data. */
  let take = () => undefined;
  board.steps = (steps) => take(steps);

  function fetchSteps(address) {
    if (!/^data\/[A-Za-z0-9_-]+\.js$/.test(address)) return;
    document.head.append(el("script", { src: root + address, async: true }));
  }

  board.board = function (payload) {
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

    const picked = () => new Set(state.curves.split(",").filter((slug) => bySlug.has(slug)));
    const onpick = function (slug, on) {
      const set = picked();
      if (on) set.add(slug);
      else set.delete(slug);
      change({ curves: [...set].slice(-board.SERIES).join(",") });
    };
    const onsort = function (key) {
      const [name, direction] = state.sort.split(":");
      change({ sort: name === key && direction !== "desc" ? `${key}:desc` : key, page: "1" });
      board.syncFilters(form, state);
      const again = [...table.querySelectorAll("th[aria-sort] button")][0];
      if (again) again.focus();
    };

    const show = function () {
      const all = board.rows(payload, state);
      const passes = board.filter(state);
      const some = all.filter((row) => row.entry.figures[state.column] !== undefined && passes(row.entry));
      const rows = board.sort(some, state);
      const pages = Math.max(1, Math.ceil(rows.length / board.PAGE));
      if (Number(state.page) > pages) state.page = String(pages);
      board.draw(table, rows, { payload, state, scale: board.barScale(all), root, picked: picked(), onpick, onsort });
      const of = all.filter((row) => row.entry.figures[state.column] !== undefined).length;
      byId("found").textContent = board.summary(rows.length, of, state, payload);
      board.drawPager(byId("pager"), rows.length, state, change);
      syncSlider(state);
      if (shownColumn !== state.column) showColumn();
      if (byId("curves")) board.drawCurves(byId("curves"), payload, [...picked()].map((slug) => bySlug.get(slug)), root, (slug) => onpick(slug, false));
    };

    const showColumn = function () {
      shownColumn = state.column;
      for (const figure of document.querySelectorAll("[data-progress]")) figure.hidden = figure.dataset.progress !== state.column;
      for (const radio of document.querySelectorAll("input[name=column]")) radio.checked = radio.value === state.column;
      table.caption.textContent = `Ranking by ${board.TITLES[state.column].toLowerCase()}`;
      table.dataset.column = state.column;
    };

    board.makeColumns(byId("columns"), state, change);
    board.makeFilters(form, payload, state, change);
    for (const each of document.querySelectorAll(".script")) each.hidden = false;
    const stepsCame = function () {
      const any = payload.entries.some((entry) => entry.steps.length);
      byId("slider").hidden = !any;
      if (any) syncSlider = board.makeSlider(byId("slider"), payload, state, change);
    };
    stepsCame();
    take = function (steps) {
      payload.entries.forEach((entry, at) => {
        entry.steps = steps[at] || [];
      });
      stepsCame();
      show();
    };
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
    show();
    document.documentElement.dataset.ready = "yes";
    if (payload.steps) setTimeout(() => fetchSteps(payload.steps), 0);
  };

  board.summary = function (count, of, state, payload) {
    const entries = `${count.toLocaleString("en-GB")} of ${of.toLocaleString("en-GB")} entries`;
    const what = `by ${board.TITLES[state.column].toLowerCase()}`;
    const target = state.target === "" ? "" : `, as if the target were ${board.quality(Number(state.target), payload.target, 2)}`;
    return `${entries} ${what}${target}.`;
  };
})((window.levelbench = window.levelbench || {}));
