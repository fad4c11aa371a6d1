// The parts of the dashboard that need a script. Every page is readable without it.
"use strict";

const two = (value) => String(value).padStart(2, "0");

// Replace the times in the server's zone with those in the browser's zone.
function localTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const at = new Date(element.dateTime);
    element.textContent =
      `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
      `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }
}

// Copy the command beside a button.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
});

localTimes(document);
document.documentElement.dataset.script = "ready";
