// Make elements without markup: whatever text they get is shown as text, never parsed as HTML.

const COPIED_MS = 2000;

/** An element with attributes (on* are listeners) and children: elements, text, or nothing. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** The same as `el`, for SVG. */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Set an element's text. The element is touched only when the text differs. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Give `parent` one child per item, in order. A child whose key is still there is kept, and so its focus and selection. */
export function keyed(parent, items, key, make, update) {
  const old = parent.kept ?? (parent.kept = new Map());
  const kept = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const name = key(item);
    const element = old.get(name) ?? make(item);
    update(element, item);
    kept.set(name, element);
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
  }
  for (const [name, element] of old) if (!kept.has(name)) element.remove();
  parent.kept = kept;
}

/** A table with these columns ({name, number, fill(cell, item)}). `show(items)` updates it. */
export function table(caption, columns, key) {
  const body = el("tbody");
  const heads = columns.map((column) => el("th", { scope: "col", class: column.number ? "number" : null }, column.name));
  const made = el("table", { class: "stack" },
    el("caption", { class: "unseen" }, caption), el("thead", {}, el("tr", {}, heads)), body);
  const frame = el("div", { class: "wide", role: "region", tabindex: "0", "aria-label": caption }, made);
  const cells = (item) => columns.map((column) => el("td", { "data-name": column.name, class: column.number ? "number" : column.wraps ? "wraps" : null }));
  frame.show = (items) => keyed(body, items, key, (item) => el("tr", {}, cells(item)), (row, item) => {
    columns.forEach((column, index) => column.fill(row.children[index], item));
  });
  return frame;
}

/** A column that shows a text. */
export function column(name, text, number = false) {
  return { name, number, fill: (cell, item) => say(cell, text(item)) };
}

/** A column for text of others, which may have no blanks: it breaks anywhere rather than being cut off. */
export function long(name, text) {
  return { ...column(name, text), wraps: true };
}

/** A column that shows a name, and a button that copies it. */
export function copyable(name, text) {
  return { name, fill: (cell, item) => {
    if (!cell.firstChild) cell.append(el("span", { class: "buttons" }, el("span"), copier(() => cell.firstChild.firstChild.textContent)));
    say(cell.firstChild.firstChild, text(item));
  } };
}

/** A column that shows a link. */
export function linked(name, href, text) {
  return { name, fill: (cell, item) => {
    if (!cell.firstElementChild) cell.append(el("a"));
    const link = cell.firstElementChild;
    if (link.getAttribute("href") !== href(item)) link.setAttribute("href", href(item));
    say(link, text(item));
  } };
}

/** A button that copies what `text()` returns. */
export function copier(text, name = "Copy") {
  const button = el("button", { type: "button", class: "copy", onclick: async () => {
    const done = await copy(text(), button.parentElement).then(() => true, () => false);
    say(button, done ? "Copied" : "Your browser forbids it");
    setTimeout(() => say(button, name), COPIED_MS);
  } }, name);
  return button;
}

/** A heading with a button that copies the name in it. */
export function copied(heading, name) {
  return el("div", { class: "row" }, heading, copier(() => name, "Copy the name"));
}

/** Copy a text. Browsers have a clipboard for scripts only over TLS and on localhost; elsewhere a selected field is copied. */
async function copy(text, near) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const field = el("textarea", { class: "unseen" });
  field.value = text;
  near.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("the browser forbids it");
}

/** A list of names and values. `show(pairs)` updates it. */
export function facts() {
  const list = el("dl", { class: "facts" });
  list.show = (pairs) => keyed(list, pairs.flatMap(([name, value]) => [["dt", name, name], ["dd", name, value]]),
    ([tag, name]) => tag + name, ([tag]) => el(tag), (element, [, , text]) => say(element, String(text)));
  return list;
}

/** A bar of parts. `show(parts, label)` updates it: parts are {name, value, colour, title}, the label is for screen readers. */
export function bar() {
  const made = el("div", { class: "bar", role: "img" });
  made.show = (parts, label) => {
    const whole = parts.reduce((sum, part) => sum + part.value, 0) || 1;
    keyed(made, parts.filter((part) => part.value > 0), (part) => part.name,
      (part) => el("span", { class: part.colour }),
      (span, part) => {
        span.style.width = `${(100 * part.value) / whole}%`;
        span.title = part.title ?? part.name;
      });
    made.setAttribute("aria-label", label);
  };
  return made;
}
