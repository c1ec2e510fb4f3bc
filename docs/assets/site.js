// What Material for MkDocs leaves without a name for screen readers, or out of reach of the keyboard.
document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search");
// A part of the table of contents may be called like a part of the navigation.
for (const part of document.querySelectorAll("[data-md-component=toc] nav")) {
  part.setAttribute("role", "none");
  part.removeAttribute("aria-label");
  part.removeAttribute("aria-labelledby");
}
let blocks = 0;
function complete() {
  for (const nav of document.querySelectorAll(".md-code__nav:not([aria-label])"))
    nav.setAttribute("aria-label", `Code block ${++blocks}`);
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) wide.tabIndex = 0;
}
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
complete();
