// Renews the page in place while it is visible and not being edited; what has focus keeps it.
"use strict";
const main = document.getElementById("main");
const live = document.getElementById("live");
const focusable = "a, button, input, select, summary, textarea";
let shown = main.innerHTML;
let pressed = false;

function busy() {
  const typing = document.activeElement.closest("form");
  return live.getAttribute("aria-pressed") !== "true" || document.hidden || pressed || typing || !getSelection().isCollapsed;
}

async function renew() {
  try {
    const answer = busy() ? null : await fetch(location.href, { cache: "no-store" });
    const text = answer && (await answer.text());
    const page = text && new DOMParser().parseFromString(text, "text/html").getElementById("main");
    if (page && page.innerHTML !== shown && !busy()) {
      shown = page.innerHTML;
      const at = [...main.querySelectorAll(focusable)].indexOf(document.activeElement);
      main.replaceChildren(...page.childNodes);
      if (at >= 0) main.querySelectorAll(focusable)[at]?.focus({ preventScroll: true });
    }
    if (page) live.textContent = "Live";
  } catch {
    live.textContent = "No answer";
  }
  setTimeout(renew, 1000 * main.dataset.seconds);
}

if (main.dataset.refresh) {
  live.hidden = false;
  live.addEventListener("click", () => {
    live.setAttribute("aria-pressed", live.getAttribute("aria-pressed") !== "true");
  });
  addEventListener("pointerdown", () => { pressed = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { pressed = false; });
  setTimeout(renew, 1000 * main.dataset.seconds);
}
