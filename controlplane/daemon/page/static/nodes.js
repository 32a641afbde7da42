// Nodes: the map of all of them, those in trouble, and one with its ranks.

import { acts } from "./acts.js";
import { column, copied, el, facts, linked, say, table } from "./dom.js";
import { filters } from "./filters.js";
import { ask, nothing, state, tables } from "./feed.js";
import { HeatMap, MEANINGS } from "./heatmap.js";
import { outputColumn, outputNote } from "./output.js";
import { brief, count, moment, plain, span } from "./words.js";

const EVERY_MS = 2000;
const TROUBLED_MAX = 100;
const NAMED_MAX = 100;
const DEAD = new Set(["raised", "exited"]);

/** The view at /nodes and /nodes/NAME. */
export function view(words) {
  return words.length ? one(words[0]) : all();
}

function go(name) {
  dispatchEvent(new CustomEvent("go", { detail: `/nodes/${encodeURIComponent(name)}` }));
}

function all() {
  const canvas = el("canvas", { class: "map", tabindex: "0", role: "application", "aria-label":
    "Map of nodes and ranks. Arrow keys move from node to node, Enter opens one.", "aria-describedby": "pointed" });
  const pointed = el("p", { id: "pointed", "aria-live": "polite" });
  const sum = el("p", { class: "soft" });
  const map = new HeatMap(canvas, go, (name) => say(pointed, words(name)));
  const trouble = el("p", { role: "status" });
  const wanted = filters("Name", [["State", (name) => tables.nodes.get(name).state], ["Health", (name) => (inTrouble(tables.nodes.get(name)) ? "in trouble" : "fine")]],
    lists, open);
  const columns = [
    linked("Node", (name) => `/nodes/${encodeURIComponent(name)}`, (name) => name),
    column("State", (name) => tables.nodes.get(name).state),
    column("Standing", (name) => tables.nodes.get(name).standing),
    column("Last seen", (name) => seen(tables.nodes.get(name))),
    column("Ranks", (name) => rankWords(tables.nodes.get(name))),
    column("Reason", (name) => brief(tables.nodes.get(name).reason) || "–"),
  ];
  const troubled = table("Nodes in trouble", columns, (name) => name);
  const named = table("All nodes", columns, (name) => name);
  const heading = el("h2", {}, "All nodes");
  const fine = el("p", { class: "soft" });
  const rest = el("p", { class: "soft", hidden: true }, `Fewer than ${NAMED_MAX} are listed: narrow the filters.`);
  const colours = el("ul", { class: "legend" }, MEANINGS.map(([text, name]) =>
    el("li", {}, el("i", { class: `s${name.at(-1)}` }), text)), el("li", {}, "a cross: a node that is lost, has left, or was not seen yet"),
    el("li", {}, "a corner: a node that takes no ranks, or is the last choice"), el("li", {}, "small: a spare"));
  const sized = new ResizeObserver(() => whole());
  let laid = "";
  let link = "";

  function whole() {
    const names = [...tables.nodes.keys()].sort(order);
    const shape = names.length ? `${names.length}/${names[0]}/${names.at(-1)}` : "";
    laid = shape;
    canvas.hidden = names.length === 0;
    if (names.length) map.show(names, tables.nodes, tables.cluster.get("")?.phases ?? []);
  }

  function fits(keys) {
    return laid !== "" && [...keys].every((key) => tables.nodes.has(key) === map.places.has(key));
  }

  /** Open the first node whose name has this in it. */
  function open(part) {
    const name = tables.nodes.has(part) ? part : [...tables.nodes.keys()].sort(order).find((each) => each.includes(part));
    name ? go(name) : say(trouble, `no node is called ${part}`);
  }

  /** Show the tables of those that pass the filters. The map has all. */
  function lists() {
    const names = [...tables.nodes.keys()];
    const found = wanted.passed(names, (name) => name).sort(order);
    const many = found.length >= NAMED_MAX;
    say(trouble, !wanted.active || found.length ? "" : `None of ${count(names.length)} nodes passes the filters.`);
    const bad = found.filter((name) => inTrouble(tables.nodes.get(name)));
    fine.hidden = bad.length > 0;
    say(fine, nothing("None."));
    troubled.hidden = bad.length === 0;
    troubled.show(bad.slice(0, TROUBLED_MAX));
    named.hidden = found.length === 0 || many;
    heading.hidden = found.length === 0 || (many && !wanted.active);
    say(heading, wanted.active ? `Nodes that pass the filters (${count(found.length)})` : "All nodes");
    rest.hidden = !many || !wanted.active;
    named.show(named.hidden ? [] : found);
  }

  const made = {
    title: "Nodes",
    elements: [el("h1", {}, "Nodes"), sum, wanted.element, trouble, el("div", {}, canvas), pointed, colours,
      el("h2", {}, "In trouble"), fine, troubled, heading, rest, named],
    draw(changes) {
      const keys = changes === null ? null : changes.get("nodes");
      if (keys === null || (keys && !fits(keys))) whole();
      else if (keys) map.again(keys);
      if (keys === undefined && state.link === link) return;
      link = state.link;
      say(sum, counts());
      lists();
      if (map.at >= 0 && document.activeElement === canvas) say(pointed, words(map.names[map.at]));
    },
    close() {
      sized.disconnect();
    },
  };
  requestAnimationFrame(() => sized.observe(canvas.parentElement));
  return made;
}

function order(a, b) {
  return a.localeCompare(b, "en", { numeric: true });
}

function inTrouble(row) {
  if (row.state !== "up" || row.standing !== "ok") return true;
  const phases = tables.cluster.get("")?.phases ?? [];
  return Object.values(row.ranks).some((flat) => flat.some((value, i) => (i % 3 === 1 && DEAD.has(phases[value])) || (i % 3 === 2 && value)));
}

function counts() {
  const states = new Map();
  let ranks = 0;
  for (const row of tables.nodes.values()) {
    states.set(row.state, (states.get(row.state) ?? 0) + 1);
    for (const flat of Object.values(row.ranks)) ranks += flat.length / 3;
  }
  const told = [...states].sort().map(([state, number]) => `${count(number)} ${state}`).join(", ");
  return tables.nodes.size ? `${told}; ${count(ranks)} ranks and spares` : nothing("No node is known.");
}

/** When a node was heard last: what was "now" is as old as all else here once the connection is lost. */
function seen(row) {
  if (row.seen_s === null) return state.link === "broken" ? moment(state.heard_s) : "now";
  return row.seen_s ? moment(row.seen_s) : "not known";
}

function rankWords(row) {
  const phases = tables.cluster.get("")?.phases ?? [];
  return Object.entries(row.ranks).map(([job, flat]) => {
    const found = new Map();
    for (let i = 0; i < flat.length; i += 3) {
      const word = flat[i + 2] ? "past its deadline" : flat[i] < 0 ? "spare" : phases[flat[i + 1]];
      found.set(word, (found.get(word) ?? 0) + 1);
    }
    return `${job}: ${[...found].map(([word, number]) => `${number} ${word}`).join(", ")}`;
  }).join("; ") || "none";
}

function words(name) {
  const row = tables.nodes.get(name);
  if (!row) return "";
  const standing = row.standing === "ok" ? "" : `, ${row.standing}`;
  return `${name}: ${row.state}${standing}; ${rankWords(row)}${row.reason ? `; ${row.reason}` : ""}`;
}

function one(name) {
  const told = facts();
  const trouble = el("p", { class: "notice", hidden: true });
  const ranks = table(`Ranks on ${name}`, [
    linked("Job", (row) => `/jobs/${encodeURIComponent(row.job)}`, (row) => row.job),
    column("Rank", (row) => (row.rank < 0 ? "spare" : String(row.rank)), true),
    column("Phase", (row) => (row.stalled_s > 0 ? `${row.phase}, no progress for ${span(row.stalled_s)}` : row.phase)),
    column("Step", (row) => count(row.step), true),
    column("Process", (row) => String(row.pid || "–"), true),
    column("Doing", (row) => row.failure || plain(row.activity) || "–"),
    outputColumn((row) => row.job),
  ], (row) => row.member);
  const unread = el("p", { class: "soft" });
  const buttons = acts("node", name);
  let closed = false;
  let found = null;
  async function load() {
    try {
      const answer = await ask(`/api/nodes/${encodeURIComponent(name)}`);
      if (closed) return;
      found = answer;
      trouble.hidden = true;
      ranks.show(found.ranks.toSorted((a, b) => a.job.localeCompare(b.job) || a.rank - b.rank));
      tell();
    } catch (error) {
      trouble.hidden = false;
      say(trouble, error.message);
    }
  }
  function tell() {
    const row = tables.nodes.get(name);
    if (!found) return;
    told.show([["State", found.state], ["Standing", found.standing], ["Address", found.address || "–"],
        ["Last seen", row ? seen(row) : "not known"], ["Capacity", `${found.slots} ranks`], ["Failure domain", found.domain || "–"],
        ["Score of its failures", found.score.toFixed(1)], ["Reason", found.reason || "–"]]);
  }
  load();
  const timer = setInterval(load, EVERY_MS);
  return {
    title: name,
    elements: [copied(el("h1", {}, name), name), trouble, told, buttons.element, el("h2", {}, "Ranks"), unread, ranks],
    draw(changes) {
      buttons.draw(tables.nodes.get(name));
      say(unread, outputNote());
      tell();
      if (changes?.get("nodes")?.has(name)) load();
    },
    close() {
      closed = true;
      clearInterval(timer);
    },
  };
}
