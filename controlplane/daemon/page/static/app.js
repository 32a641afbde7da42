// The frame of the page: routes addresses to views, fills the header, and draws at most once per screen frame.

import { el, say } from "./dom.js";
import { entry, follow, listen, mayLook, state, tables, unknown } from "./feed.js";
import * as jobs from "./jobs.js";
import * as nodes from "./nodes.js";
import * as incidents from "./incidents.js";
import * as time from "./time.js";
import * as checkpoints from "./checkpoints.js";
import * as login from "./login.js";
import { moment, zone } from "./words.js";

const VIEWS = { "": jobs, jobs, nodes, incidents, time, checkpoints, login };
const LINKS = { live: ["live", "good"], connecting: ["connecting", "soft"], broken: ["connection lost", "bad"], closed: ["log in to see", "soft"] };
const HEALTH = { healthy: "good", degraded: "warn", critical: "bad" };

const main = document.getElementById("main");
let view = null;
let pending = new Map();
let everything = true;
let drawing = false;

/** The words of the address. If they cannot be decoded: a word that no view has. */
function address() {
  try {
    return location.pathname.split("/").slice(1).map(decodeURIComponent).filter((word) => word !== "");
  } catch (error) {
    if (error instanceof URIError) return ["%"];
    throw error;
  }
}

/** Show the view that the address names. */
function route(moved) {
  const words = address();
  const made = (VIEWS[words[0] ?? ""] ?? missing).view(words.slice(1));
  view?.close?.();
  view = made;
  main.replaceChildren(...made.elements);
  document.title = `${made.title} · Holdfast`;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.getAttribute("href") === `/${words[0] ?? "jobs"}`;
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  if (moved) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  draw(null);
}

const missing = { view: () => ({ title: "Nothing here", elements: [el("h1", {}, "There is nothing at this address")], draw() {} }) };

/** Draw the view in the next screen frame, with all changes until then. null: everything has changed. */
function draw(changes) {
  if (changes === null) everything = true;
  else for (const [name, keys] of changes) pending.set(name, new Set([...(pending.get(name) ?? []), ...keys]));
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    const what = everything ? null : pending;
    pending = new Map();
    everything = false;
    head();
    view?.draw(what);
    document.documentElement.dataset.moment = state.moment;
  });
}

function head() {
  const cluster = tables.cluster.get("");
  say(document.getElementById("cluster"), cluster ? cluster.cluster : "");
  const health = document.getElementById("health");
  health.hidden = !cluster?.health;
  if (cluster?.health) {
    const lost = unknown();
    health.className = `badge ${lost ? "soft lost" : HEALTH[cluster.health]}`;
    say(health, lost || cluster.health);
    health.title = lost ? `It was ${cluster.health} at ${moment(state.heard_s)}.` : advised(cluster).join("\n");
  }
  const link = document.getElementById("link");
  const shut = state.session && !mayLook();
  const [words, colour] = LINKS[shut ? "closed" : state.link];
  say(link, words);
  link.className = `badge ${colour}`;
  const who = document.getElementById("who");
  say(who, state.session?.role ? `${state.session.role} ${state.session.name}` : "Log in");
  notice(cluster);
}

function advised(cluster) {
  return cluster.reasons.map((reason, at) => (cluster.actions[at] ? `${reason}; do: ${cluster.actions[at]}` : reason));
}

function notice(cluster) {
  const place = document.getElementById("notice");
  const standby = cluster?.role === "standby";
  const reasons = cluster?.health && cluster.health !== "healthy" ? advised(cluster) : [];
  const old = state.link === "broken" && cluster ? `The connection is lost: this page shows the state at ${moment(state.heard_s)}. ` : "";
  place.hidden = !old && !standby && reasons.length === 0;
  const page = standby && /^https?:/.test(cluster.leader_page) ? cluster.leader_page : "";
  const text = old + (standby
    ? `This coordinator is a standby; ${cluster.leader ? `the leader is ${cluster.leader}.` : cluster.unelected ? `nobody leads: ${cluster.unelected}.` : "no leader is known."} `
    : reasons.join("; "));
  if (place.firstChild?.textContent !== text) place.replaceChildren(text, page ? el("a", { href: page }, "Its page") : "");
}

/** Announce to screen readers which incidents have begun and ended. */
function announce(changes) {
  const fresh = changes?.get("incidents");
  if (!fresh) return;
  const rows = [...fresh].map((key) => tables.incidents.get(key)).filter((row) => row && (row.lines <= 1 || row.outcome !== "open"));
  if (rows.length) say(document.getElementById("news"), rows.map((row) => `${row.happened}: ${row.outcome}`).join(". "));
}

function theme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  keep(root.dataset.theme);
  draw(null);
}

/** Store the chosen theme. The browser may forbid that: then the choice holds until the page is left. */
function keep(chosen) {
  try {
    localStorage.setItem("theme", chosen);
  } catch (error) {
    console.info(`the theme is not kept: ${error.message}`);
  }
}

function kept() {
  try {
    return localStorage.getItem("theme");
  } catch {
    return null;
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const to = new URL(link.href);
  if (to.origin !== location.origin || to.hash || link.target) return;
  event.preventDefault();
  go(to.pathname);
});

/** Go to an address of this page. */
export function go(path) {
  history.pushState(null, "", path);
  route(true);
}

say(document.getElementById("zone"), `Times are those of your clock (${zone()}).`);
document.getElementById("theme").addEventListener("click", theme);
const chosen = kept();
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
addEventListener("popstate", () => route(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(null));
listen(announce);
listen(draw);
addEventListener("go", (event) => go(event.detail));
route(false);
entry.then((found) => {
  if (!found || mayLook()) follow();
  else if (location.pathname !== "/login") go("/login");
  draw(null);
});
