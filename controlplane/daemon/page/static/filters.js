// A row of filters above a table: a part of the name, and choices among the values that occur.

import { el, keyed } from "./dom.js";

/** Filters of items. `choices`: [label, of(item)] of each choice; `changed()` is called when a filter was changed, `enter(text)` at Enter in the field. */
export function filters(name, choices, changed, enter = () => {}) {
  const field = el("input", { id: "find", type: "search", autocomplete: "off", spellcheck: "false", oninput: changed });
  const boxes = choices.map(([label, of]) => ({ label, of, box: el("select", { onchange: changed }) }));
  const all = el("button", { type: "button", onclick: () => {
    field.value = "";
    for (const { box } of boxes) box.value = "";
    changed();
  } }, "Show all");
  const submit = (event) => {
    event.preventDefault();
    if (field.value.trim()) enter(field.value.trim());
  };
  return {
    element: el("form", { class: "row filters", role: "search", onsubmit: submit }, el("label", {}, name, " ", field),
      boxes.map(({ label, box }) => el("label", {}, label, " ", box)), all),
    get active() {
      return field.value.trim() !== "" || boxes.some(({ box }) => box.value !== "");
    },
    /** The items that pass. `named(item)`: its name. */
    passed(items, named) {
      for (const { of, box } of boxes) offer(box, new Set(items.map(of)));
      const part = field.value.trim().toLowerCase();
      all.hidden = !this.active;
      return items.filter((item) => named(item).toLowerCase().includes(part)
        && boxes.every(({ of, box }) => box.value === "" || of(item) === box.value));
    },
  };
}

/** Offer these values. One that is chosen stays chosen, even when nothing has it any more. */
function offer(box, values) {
  if (box.value) values.add(box.value);
  const chosen = box.value;
  keyed(box, ["", ...[...values].sort()], (value) => value, (value) => el("option", { value }, value || "any"), () => {});
  box.value = chosen;
}
