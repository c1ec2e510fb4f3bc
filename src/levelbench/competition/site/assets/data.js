/* Turns the columns of the board's data into entries, and loads the runs' steps on demand.
 *
 * An entry is an index into the columns and reads its fields lazily, since few of ten thousand entries are shown. The
 * steps of a run are one flat array that alternates quality and seconds; a run without steps never arrives. */
"use strict";
(function (board) {
  const NONE = Object.freeze([]);
  const CODED = ["model", "author", "organisation", "framework", "hardware", "date", "division", "mode", "signed", "reached_text", "lint", "machine", "rerun", "origin", "doubts"];

  const PLAIN = {
    slug: "slug", id: "id", code_url: "code_url", n: "n", reached: "reached", single_run: "single_run",
    usd: "usd_per_hour", errors: "errors", warnings: "warnings", curve: "curve",
  };

  /* A text that is stored as a number. */
  const textAt = ([texts, coded], at) => texts[coded[at]];

  /* Where each entry's figure is in the column, -1 for those that have none. */
  function placesOf(column, count) {
    if (!column.at) return Int32Array.from({ length: count }, (_, at) => at);
    const found = new Int32Array(count).fill(-1);
    column.at.forEach((at, place) => {
      found[at] = place;
    });
    return found;
  }

  /* What all entries of a board have in common: where their fields are. */
  function kindOf(columns, divisions) {
    const places = new Map(Object.entries(columns.figures).map(([name, each]) => [name, placesOf(each, columns.slug.length)]));
    class Entry {
      constructor(at) {
        this.at = at;
        this.steps = NONE;
        this.haystack = "";
      }
      get page() {
        return `entries/${this.slug}.html`;
      }
      /* The place of its division on the board. */
      get place() {
        return divisions.indexOf(this.division);
      }
      has(name) {
        return places.has(name) && places.get(name)[this.at] >= 0;
      }
      /* The entry's figure in a column that it has one in. */
      figure(name) {
        const column = columns.figures[name];
        const at = places.get(name)[this.at];
        return { value: column.value[at], low: column.low[at], high: column.high[at], rank: column.rank[at],
          shared: column.shared[at], text: column.text[at], note: textAt(column.note, at),
          ranks: textAt(column.ranks, at), against: textAt(column.against, at) };
      }
    }
    const define = (name, get) => Object.defineProperty(Entry.prototype, name, { get });
    for (const [name, column] of Object.entries(PLAIN)) {
      const values = columns[column];
      define(name, function () { return values[this.at]; });
    }
    for (const name of CODED) {
      const [texts, coded] = columns[name];
      define(name, function () { return texts[coded[this.at]]; });
    }
    return Entry;
  }

  board.unpack = function (payload) {
    const { columns } = payload;
    const Entry = kindOf(columns, payload.divisions);
    const entries = columns.slug.map((_, at) => new Entry(at));
    payload.entries = entries;
    payload.divided = columns.division[0].length > 1;
    if (payload.runs) board.take(payload, payload.runs);
    return payload;
  };

  /* Give the entries their steps. */
  board.take = function (payload, runs) {
    payload.entries.forEach((entry, at) => {
      entry.steps = runs[at] || NONE;
    });
    payload.whole = true;
  };

  let waiting = null;
  board.steps = (runs) => waiting && waiting(runs);

  /* Ask for the steps' own script, once; `done` hears when they are there. */
  board.fetchSteps = function (payload, root, done) {
    if (payload.whole || waiting || !/^data\/(?!.*\.\.)[A-Za-z0-9_.-]+\.js$/.test(payload.steps || "")) return;
    waiting = function (runs) {
      board.take(payload, runs);
      done();
    };
    document.head.append(board.el("script", { src: root + payload.steps, async: true }));
  };
})((window.levelbench = window.levelbench || {}));
