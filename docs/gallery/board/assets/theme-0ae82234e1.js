/* The colour scheme: the reader's choice, stored if storage is allowed, else the system's.
 * Loaded before the page is painted, so that the other scheme does not flash first. */
"use strict";
(function () {
  const KEY = "levelbench-scheme";
  const CHOICES = ["system", "light", "dark"];
  const root = document.documentElement;

  function stored() {
    try {
      return window.localStorage.getItem(KEY);
    } catch {
      return null; // Storage is forbidden: the choice lasts only for this page.
    }
  }

  function keep(choice) {
    try {
      window.localStorage.setItem(KEY, choice);
    } catch {
      return;
    }
  }

  function apply(choice) {
    if (choice === "light" || choice === "dark") root.dataset.theme = choice;
    else delete root.dataset.theme;
  }

  function addToggle() {
    const place = document.getElementById("tools");
    if (!place) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "theme";
    let choice = root.dataset.theme || "system";
    const show = () => {
      button.textContent = `Colours: ${choice}`;
    };
    button.addEventListener("click", () => {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      apply(choice);
      keep(choice);
      show();
    });
    show();
    place.append(button);
  }

  apply(stored());
  document.addEventListener("DOMContentLoaded", addToggle);
})();
