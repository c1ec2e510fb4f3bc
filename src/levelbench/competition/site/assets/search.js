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
