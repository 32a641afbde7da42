// Where the time of a job's step goes: the parts of a step, a map of the ranks compared with their peers, and those that differ most.

import { PARTS } from "./colours.js";
import { bar, column, el, keyed, linked, say, table } from "./dom.js";
import { tables } from "./feed.js";
import { lanes } from "./lanes.js";
import { BANDS, RankMap } from "./rankmap.js";
import { duration, fill, furthest, part } from "./steps.js";
import { count, moment, percent, span } from "./words.js";

const WORST = 32;
const UNJUDGED = 8;
const NONE = { ranks: [], nodes: [], node_names: [], own_s: [], ratios: [] };

/** Where the time of a step goes: all parts of the view that come from `anatomy`. */
export function anatomy(job) {
  const unknown = el("p", { class: "notice", hidden: true });
  const slowdown = el("p");
  const bars = el("div", { class: "steps" });
  const parts = table(`Parts of a step of ${job}`, [
    { name: "Part of the step", fill: (cell, row) => {
      if (!cell.firstChild) cell.append(el("span", {}, el("i", { class: `swatch ${PARTS[row.name]}` }), row.name));
    } },
    column("Typical rank", (row) => row.typical, true),
    column("Slowest rank", (row) => row.slowest, true),
  ], (row) => row.name);
  const ranks = lanes();
  const map = rankMap(job);
  const worst = table(`Ranks of ${job} that differ most from their peers`, [
    column("Rank", (row) => String(row.rank), true),
    linked("Node", (row) => `/nodes/${encodeURIComponent(row.node)}`, (row) => row.node),
    column("Step", (row) => duration(row.step_s), true),
    ...Object.keys(PARTS).map((name) => column(name[0].toUpperCase() + name.slice(1), (row) => share(row, name), true)),
    column("Own work", (row) => duration(row.own_s), true),
    column("To peers", (row) => ratioText(row.ratio), true),
  ], (row) => String(row.rank));
  const more = el("p", { class: "soft" });
  const unjudged = el("ul", { class: "soft" });
  const known = el("div", {},
    el("h2", {}, "Where the time of a step goes"), slowdown, bars, parts,
    el("h2", {}, "The step of each rank"), ranks.element,
    el("h2", {}, "Ranks compared with their peers"), ...map.elements,
    el("h2", {}, "Ranks that differ most"), worst, more);
  known.hidden = true;

  function show(found) {
    const seen = found.anatomy;
    known.hidden = !seen.ranks.length;
    unknown.hidden = !seen.reason;
    say(unknown, seen.ranks.length ? `Nobody is judged yet: ${seen.reason}.` : `Where the time of a step goes is not known: ${seen.reason}.`);
    keyed(unjudged, seen.unjudged.slice(0, UNJUDGED), (each) => String(each.rank), () => el("li"),
      (item, each) => say(item, `Rank ${each.rank} is not judged: ${each.reason}`));
    if (!seen.ranks.length) return;
    const rows = new Map(seen.ranks.map((row) => [row.rank, row]));
    const [typical, slowest] = [rows.get(seen.typical_rank), rows.get(seen.slowest_rank)];
    say(slowdown, seen.slowdown === null ? "" : `A step takes ${seen.slowdown.toFixed(2)} times as long as if every rank were as fast as usual: `
      + `${duration(seen.loss_s)} of the ${span(seen.span_s)} until ${moment(seen.ended_s)} were lost.${lossShares(seen.loss)}`);
    steps(bars, [["Typical", typical], ["Slowest", slowest]]);
    parts.show(Object.keys(PARTS).map((name) => ({ name, typical: part(typical, name), slowest: part(slowest, name) })));
    ranks.show(seen);
    map.show(found, rows);
    const far = furthest(seen.ranks, WORST);
    worst.show(far);
    const left = seen.columns.ranks.length - far.length;
    say(more, left > 0 ? `${count(left)} ranks more are nearer to their peers.` : "");
  }

  return { elements: [unknown, known, unjudged], show, again: map.again, close: map.close };
}

/** A bar per rank, on one scale of time. `pairs`: what kind of rank, and its row. */
function steps(place, pairs) {
  const longest = Math.max(...pairs.map(([, row]) => row.step_s)) || 1;
  keyed(place, pairs, ([kind]) => kind, () => el("div", {}, el("p"), bar()), (element, [kind, row]) => {
    const [text, strip] = element.children;
    say(text, `${kind} rank: rank ${row.rank} on ${row.node}, ${duration(row.step_s)} a step`);
    fill(strip, row, longest);
  });
}

/** The map, with the numbers of the cell that is pointed at or selected. */
function rankMap(job) {
  const canvas = el("canvas", { class: "map", tabindex: "0", role: "application", "aria-describedby": "pointed", "aria-label":
    "Map of ranks, by own work compared with peers. Arrow keys move from rank to rank, Enter opens the rank's node." });
  const pointed = el("p", { id: "pointed", "aria-live": "polite" });
  const legend = el("ul", { class: "legend" },
    BANDS.map((band) => el("li", {}, el("i", { class: `s${band.colour.at(-1)}` }), band.text)),
    el("li", {}, "the fuller, the longer its own work takes"), el("li", {}, "a frame: a finding names it"), el("li", {}, "empty: not known"));
  let found = null;
  let rows = new Map();
  let places = new Map();
  let reasons = new Map();
  const open = (name) => {
    const node = nodeOf(name);
    if (node) dispatchEvent(new CustomEvent("go", { detail: `/nodes/${encodeURIComponent(node)}` }));
  };
  const map = new RankMap(canvas, open, (name) => say(pointed, words(name)));
  const sized = new ResizeObserver(() => again());

  function nodeOf(name) {
    const columns = found?.anatomy.columns ?? NONE;
    const place = places.get(name);
    return place === undefined ? "" : columns.node_names[columns.nodes[place]];
  }

  function words(name) {
    const columns = found.anatomy.columns ?? NONE;
    const place = places.get(name);
    if (place === undefined) return `rank ${name}: not known; ${reasons.get(name) ?? "it has not reported"}`;
    const row = rows.get(Number(name));
    const shares = row ? `; of a step of ${duration(row.step_s)}: ${Object.keys(PARTS).filter((each) => row.shares[each] > 0).map((each) => `${each} ${percent(row.shares[each])}`).join(", ")}` : "";
    return `rank ${name} on ${nodeOf(name)}: own work ${duration(columns.own_s[place])}, ${ratioText(columns.ratios[place])} times that of its peers${shares}`;
  }

  function again() {
    if (!found) return;
    const columns = found.anatomy.columns ?? NONE;
    const size = Math.max(tables.jobs.get(job)?.world_size ?? 0, (columns.ranks.at(-1) ?? -1) + 1);
    const named = new Set(found.findings.filter((each) => each.subject.rank !== null && each.subject.rank !== undefined).map((each) => each.subject.rank));
    const nodes = new Set(found.findings.filter((each) => each.subject.rank === null && each.subject.node).map((each) => each.subject.node));
    const marked = new Set(columns.ranks.filter((rank, at) => named.has(rank) || nodes.has(columns.node_names[columns.nodes[at]])).map(String));
    const side = columns.ranks.length / (columns.node_names.length || 1);
    map.show(Array.from({ length: size }, (_, rank) => String(rank)), new Map(columns.ranks.map((rank, at) => [String(rank), columns.ratios[at]])),
      marked, Number.isInteger(side) ? side : 1);
    if (map.at >= 0 && document.activeElement === canvas) say(pointed, words(map.names[map.at]));
  }

  requestAnimationFrame(() => { if (canvas.parentElement) sized.observe(canvas.parentElement); });
  return {
    elements: [el("div", {}, canvas), pointed, legend],
    show(report, inFull) {
      found = report;
      rows = inFull;
      const columns = report.anatomy.columns ?? NONE;
      places = new Map(columns.ranks.map((rank, at) => [String(rank), at]));
      reasons = new Map(report.anatomy.unjudged.map((each) => [String(each.rank), each.reason]));
      again();
    },
    again,
    close: () => sized.disconnect(),
  };
}

function share(row, name) {
  return row.shares[name] === 0 ? "–" : percent(row.shares[name]);
}

function ratioText(ratio) {
  return ratio === null ? "–" : ratio.toFixed(2);
}

/** Whose the lost time is: the worst rank's, the worst node's, the last stage's; "" while nothing is lost, or it is not known. */
function lossShares(loss) {
  if (!loss || loss.worst_rank_share === null) return "";
  const last = loss.last_stage_share === null ? "" : `, without the last stage ${percent(loss.last_stage_share)}`;
  return ` Without rank ${loss.worst_rank} ${percent(loss.worst_rank_share)} of that would not be lost, `
    + `without node ${loss.worst_node} ${percent(loss.worst_node_share)}${last}.`;
}
