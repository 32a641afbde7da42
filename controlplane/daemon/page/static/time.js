// Goodput, and what the lost time was lost to.

import { colour } from "./colours.js";
import { bar, el, facts, keyed, say, svg } from "./dom.js";
import { ask, tables } from "./feed.js";
import { moment, percent, plain, span } from "./words.js";

const EVERY_MS = 5000;

/** The view at /time and /time/JOB. */
export function view(words) {
  return words.length ? one(words[0]) : all();
}

/** The goodput and the lost time in a job's row. */
export function account(row) {
  const told = row.account;
  const lost = Object.entries(told?.lost_s ?? {}).sort((a, b) => b[1] - a[1]);
  if (told?.unknown_s > 0) lost.push(["unknown", told.unknown_s]);
  const share = told?.goodput ?? null;
  return { goodput: share === null ? "–" : percent(share), productive: told?.productive_s ?? 0, lost,
    whole: told?.total_s ?? 0, since: told?.since_s, lives: told?.lives ?? [], badput: Object.entries(told?.badput_s ?? {}) };
}

function parts(found) {
  return [{ name: "training", value: found.productive, colour: "s0" },
    ...found.lost.map(([cause, value]) => ({ name: plain(cause), value, colour: colour(cause) }))];
}

function label(found) {
  return `training ${span(found.productive)}` + found.lost.map(([cause, value]) => `, ${plain(cause)} ${span(value)}`).join("");
}

function card(row) {
  const big = el("p", { class: "big" });
  const strip = bar();
  const causes = el("ul", { class: "legend" });
  const since = el("p", { class: "soft" });
  const element = el("li", { class: "card" },
    el("h2", {}, el("a", { href: `/time/${encodeURIComponent(row.job)}` }, row.job)), big, strip, causes, since);
  element.show = (now) => {
    const found = account(now);
    say(big, found.goodput);
    strip.show(parts(found), label(found));
    keyed(causes, parts(found).filter((part) => part.value > 0), (part) => part.name,
      (part) => el("li", {}, el("i", { class: part.colour }), el("span")),
      (item, part) => say(item.lastChild, `${part.name} ${span(part.value)}`));
    say(since, found.since ? `of ${span(found.whole)} since ${moment(found.since)}` : "");
  };
  return element;
}

function all() {
  const cards = el("ul", { class: "cards" });
  return {
    title: "Time",
    elements: [
      el("h1", {}, "Where the time went"),
      el("p", { class: "soft" }, "Goodput is the part of a job's time in which it trained and nothing of it was lost later, "
        + "over all of its lives. Unknown is time of which nobody saw whether steps were made: "
        + "a script without the SDK, or no leader."),
      cards,
    ],
    draw() {
      keyed(cards, [...tables.jobs.values()], (row) => row.job, card, (element, row) => element.show(row));
    },
  };
}

function one(name) {
  const cards = el("ul", { class: "cards" });
  const chart = svg("svg", { class: "minutes", preserveAspectRatio: "none", role: "img" });
  const ends = el("p", { class: "soft" });
  const under = el("div", { class: "under" }, el("span"), el("span"), el("span"));
  const axes = el("div", { class: "timed soft" }, el("div", { class: "scale" }, el("span", {}, "100 %"), el("span", {}, "50 %"), el("span", {}, "0 %")), chart, under);
  const told = facts();
  const lives = facts();
  const livesTitle = el("h2", { hidden: true }, "By life");
  const named = facts();
  let closed = false;
  async function load() {
    try {
      const found = await ask(`/api/jobs/${encodeURIComponent(name)}`);
      if (!closed) minutes(chart, under, ends, found.minutes);
    } catch (error) {
      say(ends, error.message);
    }
  }
  load();
  const timer = setInterval(load, EVERY_MS);
  return {
    title: `Time of ${name}`,
    elements: [el("h1", {}, `Where the time of ${name} went`), cards, el("h2", {}, "By the minute"), axes, ends,
      el("h2", {}, "By cause"), told, livesTitle, lives,
      el("h2", {}, "By the names of Google's goodput library"), named],
    draw() {
      const row = tables.jobs.get(name);
      if (!row) return;
      keyed(cards, [row], () => name, card, (element, now) => element.show(now));
      const found = account(row);
      told.show([["training", `${span(found.productive)}, ${found.goodput}`],
        ...found.lost.map(([cause, value]) => [plain(cause), `${span(value)}, ${percent(value / (found.whole || 1))}`])]);
      livesTitle.hidden = !found.lives.length;
      lives.show(found.lives.map((life) => [`since ${moment(life.since_s)}`,
        `${life.goodput === null ? "–" : percent(life.goodput)} of ${span(life.total_s)}`]));
      named.show(found.badput.map(([name, value]) => [name, span(value)]));
    },
    close() {
      closed = true;
      clearInterval(timer);
    },
  };
}

/** Draw one column per minute: training at the bottom, what the rest was lost to above. */
function minutes(chart, under, ends, rows) {
  const first = rows.length ? rows[0].at_s : 0;
  const number = rows.length ? Math.round((rows.at(-1).at_s - first) / 60) + 1 : 1;
  const wide = Math.max(number, 30);
  chart.setAttribute("viewBox", `0 0 ${wide} 60`);
  [0, wide / 2, wide].forEach((at, index) => say(under.children[index], rows.length ? moment(first + at * 60).slice(11, 16) : ""));
  chart.setAttribute("aria-label", `Training and lost time in ${number} minutes`);
  chart.replaceChildren(...rows.flatMap((row) => {
    let top = 60;
    const stack = [["training", row.productive_s, "s0"], ["unknown", row.unknown_s ?? 0, colour("unknown")], ...Object.entries(row.lost_s).map(([cause, value]) => [cause, value, colour(cause)])];
    return stack.filter(([, value]) => value > 0).map(([cause, value, kind]) => {
      top -= value;
      const column = svg("rect", { x: (row.at_s - first) / 60, y: Math.max(0, top), width: 0.9, height: Math.min(60, value), class: kind });
      column.append(svg("title", {}, `${moment(row.at_s)} ${plain(cause)} ${span(value)}`));
      return column;
    });
  }));
  say(ends, rows.length ? `${moment(first)} to ${moment(rows.at(-1).at_s + 60)}` : "nothing is known yet");
}
