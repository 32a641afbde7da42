// Log in with a token, and log out.

import { el, say } from "./dom.js";
import { follow, forget, post, session, state } from "./feed.js";

/** The view at /login. */
export function view() {
  const place = el("div");
  const trouble = el("p", { class: "bad", role: "alert" });
  return { title: "Log in", elements: [el("h1", {}, "Log in"), place, trouble], draw: () => show(place, trouble) };
}

function show(place, trouble) {
  const found = state.session;
  const kind = !found ? "unknown" : found.role ? "in" : found.logs_in ? "out" : "shut";
  if (place.dataset.kind === kind) return;
  place.dataset.kind = kind;
  const made = { unknown: () => [el("p", {}, "loading")], in: () => inside(found, trouble), out: () => form(found, trouble), shut: () => shut(found) };
  place.replaceChildren(...made[kind]());
}

function shut(found) {
  const may = found.open ? "Everybody may look; " : "Nobody may look; ";
  return [el("p", {}, `${may}nobody can log in, since the coordinator was started without --tokens.`)];
}

function inside(found, trouble) {
  const jobs = found.jobs.length ? `, for ${found.jobs.join(", ")}` : "";
  const out = async () => {
    try {
      await post("/api/logout", {});
      forget();
      await session();
      if (state.session.open) follow();
    } catch (error) {
      say(trouble, error.message);
    }
  };
  return [el("p", {}, `You are ${found.role} ${found.name}${jobs}.`), el("button", { type: "button", onclick: out }, "Log out")];
}

function form(found, trouble) {
  const token = el("input", { id: "token", type: "password", autocomplete: "current-password", required: true });
  const send = async (event) => {
    event.preventDefault();
    say(trouble, "");
    try {
      await post("/api/login", { token: token.value });
      token.value = "";
      await session();
      follow();
      dispatchEvent(new CustomEvent("go", { detail: "/jobs" }));
    } catch (error) {
      say(trouble, error.message);
    }
  };
  const why = found.open ? "You may look without a login. Operators log in to act." : "This page requires a login.";
  return [el("p", {}, why), el("form", { class: "login", onsubmit: send },
    el("label", { for: "token" }, "Token"), token, el("p", {}, el("button", {}, "Log in")))];
}
