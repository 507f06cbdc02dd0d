// Renews the page in place while somebody looks at it: what has focus or is open stays so.
"use strict";
const main = document.getElementById("main");
const live = document.getElementById("live");
const focusable = "a, button, input, select, summary, textarea";

async function renew() {
  const typing = document.activeElement.closest("form");
  if (live.getAttribute("aria-pressed") === "true" && !document.hidden && !typing) {
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const at = [...main.querySelectorAll(focusable)].indexOf(document.activeElement);
      main.replaceChildren(...page.getElementById("main").childNodes);
      if (at >= 0) main.querySelectorAll(focusable)[at]?.focus({ preventScroll: true });
      live.textContent = "Live";
    } catch {
      live.textContent = "No answer";
    }
  }
  setTimeout(renew, 1000 * main.dataset.seconds);
}

if (main.dataset.refresh) {
  live.hidden = false;
  live.addEventListener("click", () => {
    live.setAttribute("aria-pressed", live.getAttribute("aria-pressed") !== "true");
  });
  setTimeout(renew, 1000 * main.dataset.seconds);
}
