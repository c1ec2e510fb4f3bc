/* Elements, text and numbers: everything from an entry enters the page here, and only as text. */
"use strict";
(function (board) {
  const SVG = "http://www.w3.org/2000/svg";
  const UNITS = [["ns", 1e-9, 0], ["µs", 1e-6, 0.5e-6], ["ms", 1e-3, 0.5e-3], ["s", 1, 0.5], ["min", 60, 180], ["h", 3600, 10800]];

  /* Shows control and format characters, such as bidirectional overrides, as escapes. */
  board.clean = (text) =>
    String(text).replace(/[\t\n\r]/g, " ").replace(/\p{C}/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

  function fill(element, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children) {
      if (child === null || child === undefined) continue;
      element.append(child instanceof Node ? child : document.createTextNode(board.clean(child)));
    }
    return element;
  }

  board.el = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);
  board.svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);

  /* A link only where the address is http or https; anything else is shown as text. */
  board.outside = function (address, text) {
    let parsed = null;
    try {
      parsed = new URL(address);
    } catch {
      return board.el("span", {}, address);
    }
    if (parsed.protocol !== "http:" && parsed.protocol !== "https:") return board.el("span", {}, address);
    return board.el("a", { href: parsed.href, rel: "noopener nofollow noreferrer" }, text);
  };

  /* A page of this site: never an address with a scheme or a way out of the folder. */
  board.inside = (page) => (/^(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./-]*\.html$/.test(page) ? page : "#");

  function digits(value, count) {
    if (!Number.isFinite(value)) return "∞";
    const size = Math.abs(value);
    if (size && (size < 1e-6 || size >= 1e15)) return value.toExponential(count - 1).replace(/\.?0*e\+?/, "e");
    const decimals = value === 0 ? 0 : Math.max(0, Math.min(12, count - 1 - Math.floor(Math.log10(Math.abs(value)))));
    return value.toLocaleString("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  }
  board.digits = digits;

  function clockTime(seconds) {
    const whole = Math.ceil(Number(seconds.toFixed(6))); // Less than a microsecond is noise, not another second.
    const two = (value) => String(value).padStart(2, "0");
    return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  }

  board.seconds = function (value, ceil) {
    if (!Number.isFinite(value)) return "never";
    if (ceil) return clockTime(value);
    let chosen = UNITS[0];
    for (const unit of UNITS) if (value >= unit[2]) chosen = unit;
    return `${digits(value / chosen[1], 3)} ${chosen[0]}`;
  };

  board.dollars = function (value, cents) {
    if (!Number.isFinite(value)) return "never";
    if (cents && value > 0 && value < 0.005) return "< $0.01";
    return `$${cents ? value.toFixed(2) : digits(value, value >= 100 ? 5 : 3)}`;
  };

  /* A round value of an axis: no digits that say nothing. */
  board.tick = function (value) {
    let chosen = UNITS[0];
    for (const unit of UNITS) if (value >= unit[1] * 0.999999) chosen = unit;
    return `${Number((value / chosen[1]).toPrecision(3))} ${chosen[0]}`;
  };

  /* A quality on its own scale; a share of one as per cent where it is an accuracy. */
  board.quality = function (value, target, decimals) {
    const share = target.low === 0 && target.high === 1 && /acc|top/i.test(target.metric);
    const places = decimals === undefined ? 1 : decimals;
    if (places < 0) return share ? `${Number((100 * value).toPrecision(4))} %` : String(Number(value.toPrecision(4)));
    return share ? `${(100 * value).toFixed(places)} %` : value.toFixed(target.high === 1 ? places + 2 : places);
  };

  board.date = (text) => (/^\d{4}-\d{2}-\d{2}/.test(text || "") ? text.slice(0, 10) : "");
})((window.levelbench = window.levelbench || {}));
/* The search on the front page. The entries of all boards are loaded when they are first asked for. */
"use strict";
(function (board) {
  const { el } = board;
  const MOST = 100;
  let entries = null;
  let titles = [];

  function shown(row) {
    const [at, page, model, author, hardware, , date, rank, ranks, figure, cost, energy, division] = row;
    const [task, boardPage, rules] = titles[at];
    const cell = (kind, label, ...content) => el("td", { class: kind, "data-label": label }, ...content);
    return el("tr", {},
      cell("rank", "Rank", rank === null ? "–" : String(rank), ranks ? el("small", { class: "tested" }, ranks.replace(" to ", "–")) : null),
      el("th", { scope: "row", class: "entry" }, el("a", { href: board.inside(page) }, model), el("small", {}, author)),
      cell("figure n", "Time or latency", el("b", {}, figure.split(" [")[0])),
      cell("also n", "Cost", cost.split(" [")[0]),
      cell("also n", "Energy", energy),
      cell("framework", "Task", el("a", { href: board.inside(boardPage) }, task), el("small", {}, ` ${rules}${division ? `, ${division}` : ""}`)),
      cell("hardware", "Hardware", hardware),
      cell("date", "Date", board.date(date)));
  }

  function start() {
    const place = document.getElementById("search");
    if (!place) return;
    const input = place.querySelector("input");
    const note = document.getElementById("found");
    const box = place.querySelector(".scroll");

    const show = function () {
      if (entries === null) return;
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = entries.filter((each) => words.every((word) => each.text.includes(word)));
      box.hidden = found.length === 0;
      box.querySelector("tbody").replaceChildren(...found.slice(0, MOST).map((each) => shown(each.row)));
      const count = `${found.length.toLocaleString("en-GB")} of ${entries.length.toLocaleString("en-GB")} entries`;
      note.textContent = found.length > MOST ? `The first ${MOST} of ${count}.` : `${count}.`;
    };

    board.found = function ([boards, rows]) {
      titles = boards;
      entries = rows.map((row) => ({ row, text: [...titles[row[0]], ...row.slice(2, 7)].join(" ").toLowerCase() }));
      show();
    };
    const load = function () {
      const source = place.dataset.source;
      if (entries !== null || place.dataset.asked || !/^data\/(?!.*\.\.)[A-Za-z0-9_.-]+\.js$/.test(source)) return;
      place.dataset.asked = "yes";
      note.textContent = "Loading the entries …";
      document.head.append(el("script", { src: source, async: true }));
    };
    place.hidden = false;
    input.addEventListener("focus", load);
    input.addEventListener("input", () => {
      load();
      show();
    });
    place.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target === input) return;
      event.preventDefault();
      input.focus();
    });
  }
  document.addEventListener("DOMContentLoaded", start);
})((window.levelbench = window.levelbench || {}));
