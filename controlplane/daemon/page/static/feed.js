// The tables of rows that the coordinator sends, kept up to date by server-sent events.

import { moment } from "./words.js";

const SILENT_MS = 15000;

/** The tables as they are now, each a map from key to row. */
export const tables = { cluster: new Map(), nodes: new Map(), jobs: new Map(), incidents: new Map(), checkpoints: new Map(), failed_saves: new Map() };
/** The connection. `moment`: the id of the newest change; `heard_s`: when anything was received last (Unix time), 0: never; `ahead_s`: how far the coordinator's clock is ahead of ours. */
export const state = { link: "connecting", moment: "", session: null, heard_s: 0, ahead_s: 0 };

const listeners = new Set();
let source = null;
let heard = 0;
let pause = 500;

/** Call `hear(changes)` after each change: a map from table to keys, or null for everything. Returns a function that stops it. */
export function listen(hear) {
  listeners.add(hear);
  return () => listeners.delete(hear);
}

function tell(changes) {
  for (const hear of [...listeners]) hear(changes);
}

function link(word) {
  if (state.link !== word) {
    state.link = word;
    tell(new Map());
  }
}

/** Since when nothing is known, while the connection is lost; "" while it is not. */
export function unknown() {
  return state.link === "broken" && state.heard_s > 0 ? `unknown since ${moment(state.heard_s).slice(11)}` : "";
}

/** How long ago a moment of the coordinator's clock was, in s. */
export function age(at_s) {
  return Math.max(0, Date.now() / 1000 + state.ahead_s - at_s);
}

/** The text where there is nothing to show. `none` appears only once a leader has sent its tables. */
export function nothing(none) {
  const role = tables.cluster.get("")?.role;
  return role === "leader" ? none : role ? "This is a standby: ask the leader." : "No data has arrived yet.";
}

function whole(event) {
  const document = JSON.parse(event.data);
  const another = state.moment !== "" && state.moment.split("-")[0] !== event.lastEventId.split("-")[0];
  if (another || state.session === null) session().then(() => tell(null), () => null);
  for (const [name, table] of Object.entries(tables)) {
    table.clear();
    for (const [key, row] of Object.entries(document.tables[name] ?? {})) table.set(key, row);
  }
  took(event, null);
}

function patch(event) {
  const changes = new Map();
  for (const [name, rows] of Object.entries(JSON.parse(event.data))) {
    for (const [key, row] of Object.entries(rows)) row === null ? tables[name].delete(key) : tables[name].set(key, row);
    changes.set(name, new Set(Object.keys(rows)));
  }
  took(event, changes);
}

function noted() {
  heard = performance.now();
  state.heard_s = Date.now() / 1000;
}

function took(event, changes) {
  noted();
  pause = 500;
  state.moment = event.lastEventId;
  state.link = "live";
  tell(changes);
}

/** Ask the coordinator again who is logged in. */
export async function session() {
  state.session = await answered(await fetch("/api/session", { credentials: "same-origin" }));
  state.ahead_s = state.session.now_s - Date.now() / 1000;
  return state.session;
}

/** Whether the coordinator shows the cluster to this viewer. */
export function mayLook() {
  return Boolean(state.session?.open || state.session?.role);
}

/** Resolves when it is known who is logged in; to null when the coordinator does not answer. */
export const entry = session().catch(() => null);

/** Begin to receive changes, or begin again. */
export function follow() {
  source?.close();
  heard = performance.now();
  source = new EventSource("/api/live");
  source.addEventListener("state", whole);
  source.addEventListener("patch", patch);
  source.addEventListener("beat", () => { noted(); link("live"); });
  source.addEventListener("error", () => {
    link("broken");
    if (source.readyState === EventSource.CLOSED) again();
  });
}

/** Receive no more changes, and clear all tables. */
export function forget() {
  source?.close();
  source = null;
  for (const table of Object.values(tables)) table.clear();
  tell(null);
}

async function again() {
  const mine = source;
  await new Promise((resolve) => { setTimeout(resolve, pause); });
  pause = Math.min(pause * 2, 8000);
  await session().catch(() => null);
  if (mine !== source || mine === null) return;
  if (mayLook()) follow();
  else forget();
}

setInterval(() => {
  if (source !== null && performance.now() - heard > SILENT_MS) {
    link("broken");
    follow();
  }
}, 2000);

/** Fetch a document of the coordinator, if the viewer may look. Throws an Error that says why not. */
export async function ask(path) {
  await entry;
  if (!mayLook()) throw new Error("Log in to see this.");
  return answered(await fetch(path, { credentials: "same-origin" }));
}

/** Post a document to the coordinator. Throws an Error that says why it was refused. */
export async function post(path, document) {
  const headers = { "Content-Type": "application/json" };
  if (state.session?.csrf) headers[state.session.header] = state.session.csrf;
  return answered(await fetch(path, { method: "POST", credentials: "same-origin", headers, body: JSON.stringify(document) }));
}

async function answered(reply) {
  const document = await reply.json().catch(() => ({ error: `the coordinator answered ${reply.status}` }));
  if (!reply.ok) throw new Error(document.error);
  return document;
}
