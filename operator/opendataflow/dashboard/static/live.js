// Keeps a page current: one stream of news, and the page read again after each. A hidden tab asks for nothing.
"use strict";

const POLL = 5000;
const ENDED = "This dashboard has ended, or it was started again: open the URL that dataflow ui prints.";
const SILENT = "The dashboard does not answer. This page shows what it knew, and tries again.";
const main = document.querySelector("#page");
const live = { stream: null, timer: 0, reading: false, again: false };

function notice(text) {
  const element = document.querySelector("#notice");
  if (element.textContent !== text) element.textContent = text;
  element.hidden = !text;
  document.body.dataset.live = text ? "unreachable" : "current";
}

function after(milliseconds) {
  clearTimeout(live.timer);
  if (!document.hidden) live.timer = setTimeout(refresh, milliseconds);
}

// Read the page again, and change what differs. What the reader has typed, opened and focused stays.
async function refresh() {
  if (!document.body.dataset.path) return;  // a form, which stays as it was shown
  if (live.reading) {
    live.again = true;
    return;
  }
  live.reading = true;
  live.again = false;
  try {
    const answer = await fetch(document.body.dataset.path, { headers: { "If-None-Match": `"${document.body.dataset.version}"` } });
    if (answer.status === 401) notice(ENDED);
    else if (answer.status === 304) notice("");
    else await take(answer.status, new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    notice(SILENT);
  }
  live.reading = false;
  if (live.again) refresh();
  else if (live.stream?.readyState !== EventSource.OPEN || document.body.dataset.live === "unreachable") after(POLL);
  else if (document.body.dataset.again) after(1000 * Number(document.body.dataset.again));
}

async function take(status, found) {
  if (status === 503) return notice(found.querySelector(".failure p")?.textContent || SILENT);
  if (status === 200 && document.querySelector(".failure")) return location.reload();  // with the scripts of the page
  localTimes(found);
  morph(main, found.querySelector("#page"));
  for (const name of ["version", "again"]) document.body.dataset[name] = found.body.dataset[name];
  document.dispatchEvent(new Event("changed"));
  notice("");
}

function morph(old, now) {
  if (old.nodeName !== now.nodeName || old.getAttribute?.("id") !== now.getAttribute?.("id")) return old.replaceWith(document.importNode(now, true));
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if (old.hasAttribute("data-keep")) return;
  const follows = old.tagName === "PRE" && old.scrollTop + old.clientHeight >= old.scrollHeight - 4;
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  const olds = [...old.childNodes], news = [...now.childNodes];
  news.forEach((node, at) => (olds[at] ? morph(olds[at], node) : old.append(document.importNode(node, true))));
  olds.slice(news.length).forEach((node) => node.remove());
  if (follows) old.scrollTop = old.scrollHeight;
}

function connect() {
  if (document.hidden || live.stream || !document.body.dataset.path) return;
  live.stream = new EventSource("/events");
  live.stream.addEventListener("version", () => refresh());
  live.stream.addEventListener("unreachable", (event) => notice(event.data));
  live.stream.addEventListener("error", refresh);
}

function disconnect() {
  clearTimeout(live.timer);
  live.stream?.close();
  live.stream = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", connect);
