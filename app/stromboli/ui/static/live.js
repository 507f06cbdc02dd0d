// Renews the page in place while it is visible and not being edited; what has focus keeps it. When the service does not
// answer, what it said last stays, marked as old.
"use strict";
const main = document.getElementById("main");
const live = document.getElementById("live");
const age = document.getElementById("age");
const gone = document.getElementById("gone");
const focusable = "a, button, input, select, summary, textarea";
const renews = Boolean(main.dataset.refresh);
let shown = main.innerHTML;
let pressed = false;
let asOf = Date.now();
// Whether the page was opened while the service did not answer: then nothing is shown that it said.
let empty = "empty" in main.dataset;
let answers = !empty;

function busy() {
  const typing = document.activeElement.closest("form");
  return live.getAttribute("aria-pressed") !== "true" || document.hidden || pressed || typing || !getSelection().isCollapsed;
}

function tell() {
  const passed = Math.round((Date.now() - asOf) / 1000);
  const behind = document.getElementById("behind") !== null;
  const old = behind || passed > 3 * main.dataset.seconds;
  age.textContent = empty ? "" : passed < 60 ? `${passed} s old` : `${Math.round(passed / 60)} min old`;
  live.dataset.state = !answers ? "gone" : old ? "old" : "live";
  live.textContent = !answers ? "No answer" : live.getAttribute("aria-pressed") !== "true" ? "Paused" : behind ? "Behind" : old ? "Waiting" : "Live";
  gone.hidden = answers || empty;
  main.classList.toggle("stale", !answers && !empty);
}

function keep(page) {
  // What was tried on a copy of the cluster is not tried again with each renewal, as long as the cause is the same.
  for (const part of page.querySelectorAll("[data-keep]")) {
    const before = document.getElementById(part.id);
    if (before?.dataset.keep === part.dataset.keep) part.replaceWith(before.cloneNode(true));
  }
}

async function renew() {
  try {
    if (!busy()) {
      const to = new URL(location.href);
      to.searchParams.set("renew", "1");
      const answer = await fetch(to, { cache: "no-store" });
      const renewed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const page = renewed.getElementById("main");
      answers = answer.status < 500 && page !== null;
      if (answers) {
        empty = false;
        asOf = Date.now();
        document.title = renewed.title;
        gone.querySelector("time").textContent = new Date(asOf).toISOString().slice(11, 19);
        keep(page);
        if (page.innerHTML !== shown && !busy()) {
          shown = page.innerHTML;
          const at = [...main.querySelectorAll(focusable)].indexOf(document.activeElement);
          main.replaceChildren(...page.childNodes);
          if (at >= 0) main.querySelectorAll(focusable)[at]?.focus({ preventScroll: true });
        }
      }
    }
  } catch {
    answers = false;
  }
  tell();
  setTimeout(renew, 1000 * main.dataset.seconds);
}

if (renews) {
  live.hidden = false;
  live.addEventListener("click", () => {
    live.setAttribute("aria-pressed", live.getAttribute("aria-pressed") !== "true");
    tell();
  });
  addEventListener("pointerdown", () => { pressed = true; });
  for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => { pressed = false; });
  setInterval(tell, 1000);
  tell();
  setTimeout(renew, 1000 * main.dataset.seconds);
}
