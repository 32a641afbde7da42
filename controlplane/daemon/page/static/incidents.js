// Incidents, and apart from them planned changes: a timeline of all, and the story of one, as `holdfast why` prints it.

import { colour } from "./colours.js";
import { bar, copier, el, keyed, say } from "./dom.js";
import { ask, nothing, state, tables } from "./feed.js";
import { moment, plain, span } from "./words.js";

const PHASES = ["detect", "decide", "fence", "reform", "restore", "first_step"];
const SHOWN = 100;

/** The view at /incidents, /incidents/JOB and /incidents/JOB/NUMBER. */
export function view(words) {
  return words.length > 1 ? one(words[0], words[1]) : all(words[0] ?? "");
}

/** A timeline of the incidents for which `wanted(row)` is true, newest first; `most` of them until more are asked for. */
export function list(wanted, most = SHOWN, empty = "No incidents.") {
  const line = el("ol", { class: "timeline" });
  const none = el("p", { class: "soft" });
  const scale = el("p", { class: "soft" });
  const colours = legend();
  const more = el("button", { type: "button", onclick: () => { most += SHOWN; draw(); } });
  function draw() {
    const rows = [...tables.incidents.values()].filter(wanted).sort((a, b) => b.begun_s - a.begun_s || b.incident - a.incident);
    none.hidden = rows.length > 0;
    say(none, nothing(empty));
    more.hidden = rows.length <= most;
    say(more, `Show more of ${rows.length}`);
    const shown = rows.slice(0, most);
    const longest_s = Math.max(0, ...shown.map(known));
    scale.hidden = colours.hidden = longest_s === 0;
    say(scale, `All bars have one scale: a full one is ${span(longest_s)}.`);
    keyed(line, shown, (row) => `${row.job}/${row.incident}`, make, (element, row) => update(element, row, longest_s));
  }
  return { element: el("div", {}, none, colours, scale, line, more), draw };
}

function make(row) {
  const parts = bar();
  const link = el("a", { href: `/incidents/${encodeURIComponent(row.job)}/${row.incident}` });
  const element = el("li", { class: "fresh" }, el("p", {}, link, " ", el("span", { class: "soft" })), el("p"), parts);
  element.show = (now) => {
    element.classList.remove("open", "recovered", "failed", "stopped", "superseded");
    element.classList.add(now.outcome);
    say(link, `${now.happened}`);
    say(element.querySelector("span"), `${moment(now.begun_s)} · ${now.job}/${now.incident}`);
    say(element.children[1], cost(now));
    parts.show(pieces(now.phases_s), phrase(now.phases_s) || "no phase is over yet");
    parts.hidden = !Object.keys(now.phases_s).length;
  };
  return element;
}

function update(element, row, longest_s) {
  const seen = JSON.stringify(row);
  if (element.seen !== seen) element.show(row);
  element.seen = seen;
  element.lastChild.style.width = `${(100 * known(row)) / (longest_s || 1)}%`;
}

/** What the phases of an incident that are over took, in s. */
function known(row) {
  return Object.values(row.phases_s).reduce((sum, value) => sum + value, 0);
}

function cost(row) {
  if (row.outcome === "open") return `${row.done}: not over yet`;
  const ended = `${row.done}: ${row.outcome}`;
  return Object.keys(row.phases_s).length ? `${ended}, ${span(row.total_s)}, ${row.repeated}` : ended;
}

function pieces(phases) {
  return Object.entries(phases).map(([name, value]) => ({ name: plain(name), value, colour: colour(name) }));
}

function phrase(phases) {
  return Object.entries(phases).map(([name, value]) => `${plain(name)} ${span(value)}`).join(", ");
}

function legend() {
  return el("ul", { class: "legend" }, PHASES.map((name) => el("li", {}, el("i", { class: colour(name) }), plain(name))));
}

function all(job) {
  const here = (row) => !job || row.job === job;
  const rows = list((row) => !row.planned && here(row));
  const changes = list((row) => row.planned && here(row), SHOWN, "No planned changes.");
  return {
    title: "Incidents",
    elements: [
      el("h1", {}, job ? `Incidents of ${job}` : "Incidents"), rows.element,
      el("h2", {}, "Planned changes"), changes.element,
    ],
    draw: () => { rows.draw(); changes.draw(); },
  };
}

function one(job, number) {
  const body = el("div", {}, el("p", { class: "soft" }, "loading"));
  const key = `${job}/${number}`;
  let seen = null;
  let asked = 0;
  let unanswered = false;

  async function load() {
    const mine = asked += 1;
    unanswered = false;
    try {
      const story = await ask(`/api/incidents/${encodeURIComponent(job)}/${encodeURIComponent(number)}`);
      if (mine === asked) tell(body, story);
    } catch (error) {
      if (mine !== asked) return;
      unanswered = error instanceof TypeError;
      body.replaceChildren(el("p", { class: "notice" }, error.message));
    }
  }

  return {
    title: `Incident ${key}`,
    elements: [el("h1", {}, `Incident ${number} of `, el("a", { href: `/jobs/${encodeURIComponent(job)}` }, job)),
      el("div", { class: "row" }, copier(() => key, "Copy the name"), copier(() => `holdfast why ${key}`, "Copy the command")), body],
    draw(changes) {
      const now = JSON.stringify(tables.incidents.get(key) ?? null);
      if (changes === null || now !== seen || (unanswered && state.link === "live")) load();
      seen = now;
    },
  };
}

function outlook(found) {
  if (found.restart) return "It may help to start it again";
  return found.advice_confidence >= 0.95 ? "Do not restart, this will fail again" : "It will probably fail again";
}

function cause(found) {
  if (!found) return [];
  const place = found.file ? ` at ${found.file}:${found.line}` : "";
  const who = found.rank >= 0 ? `rank ${found.rank}` : `one of the ranks ${found.candidates.join(", ")}`;
  return [
    el("h2", {}, "First cause"),
    el("p", {}, `${who}: ${found.means}${found.exception ? ` (${found.exception})` : ""}${place}`),
    found.text ? el("pre", {}, found.text) : "",
    el("p", {}, `Why: ${found.reason} (confidence ${found.confidence.toFixed(2)}); ${found.clocks}.`),
    ...found.cascade.map((text) => el("p", {}, `Cascade: ${text}.`)),
    el("p", { class: found.restart ? "" : "notice" },
      `${outlook(found)}: ${found.advice}.`),
    el("p", {}, found.recommendation),
  ];
}

function tell(body, story) {
  const parts = bar();
  parts.show(pieces(story.phases_s), phrase(story.phases_s));
  const open = story.outcome === "open";
  const ended = open ? "not over yet" : story.outcome;
  const names = Object.keys(story.phases_s);
  body.replaceChildren(
    el("p", {}, `${moment(story.begun_s)}: ${ended}`),
    el("h2", {}, "What happened"), el("p", {}, `${story.happened}.`),
    ...cause(story.cause),
    el("h2", {}, "Evidence"),
    ...(story.evidence.length ? story.evidence.map((text) => el("pre", {}, text)) : [el("p", {}, "No evidence was kept.")]),
    el("h2", {}, "What was done"), el("p", {}, `${story.done}.`),
    story.plan.reason ? el("p", {}, `Why: ${story.plan.reason}`) : "",
    el("p", {}, `Left: ${story.plan.drop.join(", ") || "nobody"}; came: ${story.plan.add.join(", ") || (open ? "nobody yet" : "nobody")}.`),
    story.restored ? el("p", {}, `State from: ${story.restored}.`) : "",
    el("h2", {}, "What it cost"),
    el("p", {}, names.length ? `${span(story.total_s)}${open ? " so far" : ""}, ${story.repeated}.` : "Not known yet."), parts,
    el("ul", { class: "legend" }, story.spans.map(([words, seconds], index) =>
      el("li", {}, el("i", { class: colour(names[index]) }), `${span(seconds)} ${words}`))),
    story.timeline.length ? el("h2", {}, "In between") : "",
    el("ol", { class: "between" }, story.timeline.map((line) =>
      el("li", {}, el("span", { class: "soft" }, `${moment(line.wall_s, true)} `), line.text))),
  );
}
