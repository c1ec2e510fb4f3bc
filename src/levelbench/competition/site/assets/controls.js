/* The controls: columns, filters, target and pager. The script makes them, since they need it to work; all are plain
 * form controls, so that keyboards and screen readers support them. */
"use strict";
(function (board) {
  const { el } = board;

  function distinct(entries, name) {
    const counts = new Map();
    for (const entry of entries) if (entry[name]) counts.set(entry[name], (counts.get(entry[name]) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  /* The static tiles, each with a radio button in it. */
  board.makeColumns = function (list, state, change) {
    for (const tile of list.querySelectorAll("[data-column]")) {
      const name = tile.dataset.column;
      const input = el("input", { type: "radio", name: "column", value: name, class: "hidden", checked: name === state.column });
      const label = el("label", { class: "tile" }, input, ...tile.childNodes);
      input.addEventListener("change", () => change({ column: name, page: "1" }));
      tile.replaceChildren(label);
    }
  };

  function field(name, label, control) {
    control.id = `f-${name}`;
    control.name = name;
    return el("div", { class: `field ${name}` }, el("label", { for: control.id }, label), control);
  }

  function select(options, value) {
    return el("select", {}, ...options.map(([key, text]) => el("option", { value: key, selected: key === value }, text)));
  }

  function controls(payload, state) {
    const { entries } = payload;
    const frameworks = distinct(entries, "framework").slice(0, 200).map(([name, count]) => [name, `${name} (${count})`]);
    const hardware = el("datalist", { id: "hardwares" },
      ...distinct(entries, "hardware").slice(0, 100).map(([name]) => el("option", { value: name })));
    return [
      field("q", "Search", el("input", { type: "search", value: state.q, autocomplete: "off", placeholder: "model, author, hardware" })),
      field("framework", "Framework", select([["", "any"], ...frameworks], state.framework)),
      field("hardware", "Hardware", el("input", { type: "search", list: "hardwares", value: state.hardware, autocomplete: "off", placeholder: "any" })),
      hardware,
      field("division", "Division", select([["", "any"], ...payload.divisions.map((name) => [name, name])], state.division)),
      field("signed", "Signature", select([["", "any"], ["signed", "signed"], ["unsigned", "unsigned"], ["wrong", "wrong"]], state.signed)),
      field("from", "From", el("input", { type: "date", value: state.from })),
      field("to", "To", el("input", { type: "date", value: state.to })),
      field("runs", "3 runs or more", el("input", { type: "checkbox", checked: state.runs !== "" })),
    ];
  }

  board.makeFilters = function (form, payload, state, change) {
    const more = el("button", { type: "button", class: "more", "aria-expanded": "false", onclick: () => {
      more.setAttribute("aria-expanded", String(form.classList.toggle("open")));
    } }, "Filters");
    const sort = field("sort", "Sort by", select(
      board.sortChoices(state, payload).flatMap(([key, , text]) => [[key, text], [`${key}:desc`, `${text}, downwards`]]), state.sort));
    const reset = el("button", { type: "button", class: "quiet", onclick: () => change(null) }, "Reset");
    const [search, ...others] = controls(payload, state);
    form.replaceChildren(search, sort, more, ...others, reset);
    const read = (event) => {
      const { name, type, value, checked } = event.target;
      if (name) change({ [name]: type === "checkbox" ? (checked ? "3" : "") : value, ...(name === "sort" ? {} : { page: "1" }) });
    };
    form.addEventListener("input", read);
    form.addEventListener("submit", (event) => event.preventDefault());
  };

  /* The filter by runs is there where it lets anything through; of inference it counts processes. */
  board.showRuns = function (form, shown, column) {
    const place = form.querySelector(".field.runs");
    place.hidden = !shown;
    place.querySelector("label").textContent = `3 ${board.ofTraining(column) ? "runs" : "processes"} or more`;
  };

  /* Put the state into the controls that do not have it (a link was followed, or "Reset"). */
  board.syncFilters = function (form, state) {
    for (const control of form.elements) {
      if (!Object.hasOwn(state, control.name)) continue;
      if (control.type === "checkbox") control.checked = state[control.name] !== "";
      else if (control.value !== state[control.name]) control.value = state[control.name];
    }
  };

  /* The slider: moved, it asks what the ranking would be at another target. */
  board.makeSlider = function (place, payload, state, change, need) {
    const { target } = payload;
    const [low, high] = board.targetRange(payload);
    const STEPS = 200;
    const places = Math.max(1, Math.ceil(-Math.log10((high - low) / STEPS)) - (target.high === 1 ? 2 : 0));
    const valueAt = (at) => low + ((high - low) * at) / STEPS;
    const own = Math.round(((target.threshold - low) / (high - low)) * STEPS);
    const slider = el("input", { type: "range", min: 0, max: STEPS, step: 1, id: "target", list: "own-target" });
    const output = el("output", { for: "target" });
    const back = el("button", { type: "button", class: "quiet", onclick: () => change({ target: "", page: "1" }) }, "Back to the rules' target");
    const text = (value) => board.quality(value, target, places);
    // A touched slider will move: request the data for that now.
    for (const each of ["focus", "pointerenter"]) slider.addEventListener(each, need);
    slider.addEventListener("input", () => {
      const at = Number(slider.value);
      change({ target: at === own ? "" : String(Number(valueAt(at).toPrecision(6))), page: "1" });
    });
    place.replaceChildren(
      el("label", { for: "target" }, "What if the target were"), output, back, slider,
      el("datalist", { id: "own-target" }, el("option", { value: own })),
      el("div", { class: "ends", "aria-hidden": "true" }, el("span", {}, text(low)), el("span", {}, text(high))));
    return function sync(current) {
      const shown = current.target === "" ? target.threshold : Number(current.target);
      slider.value = current.target === "" ? own : Math.round(((shown - low) / (high - low)) * STEPS);
      output.textContent = text(shown);
      slider.setAttribute("aria-valuetext", text(shown));
      back.hidden = current.target === "";
      place.hidden = !board.movable(payload, current.column);
    };
  };

  board.drawPager = function (place, count, state, change) {
    const pages = Math.max(1, Math.ceil(count / board.PAGE));
    const page = Number(state.page);
    place.hidden = pages === 1;
    const go = (to, text, words) =>
      el("button", { type: "button", "aria-label": words, disabled: to < 1 || to > pages || to === page, onclick: () => change({ page: String(to) }) }, text);
    const from = (page - 1) * board.PAGE;
    place.replaceChildren(
      go(1, "«", "First page"), go(page - 1, "‹", "Previous page"),
      el("span", {}, `${from + 1}–${Math.min(count, from + board.PAGE)} of ${count.toLocaleString("en-GB")}`),
      go(page + 1, "›", "Next page"), go(pages, "»", "Last page"));
  };
})((window.levelbench = window.levelbench || {}));
