// Make elements without markup: whatever text they get is shown as text, never parsed as HTML.

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
  const cells = (item) => columns.map((column) => el("td", { "data-name": column.name, class: column.number ? "number" : null }));
  frame.show = (items) => keyed(body, items, key, (item) => el("tr", {}, cells(item)), (row, item) => {
    columns.forEach((column, index) => column.fill(row.children[index], item));
  });
  return frame;
}

/** A column that shows a text. */
export function column(name, text, number = false) {
  return { name, number, fill: (cell, item) => say(cell, text(item)) };
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

/** A list of names and values. `show(pairs)` updates it. */
export function facts() {
  const list = el("dl", { class: "facts" });
  list.show = (pairs) => keyed(list, pairs.flatMap(([name, value]) => [["dt", name, name], ["dd", name, value]]),
    ([tag, name]) => tag + name, ([tag]) => el(tag), (element, [, , text]) => say(element, String(text)));
  return list;
}

/** A bar of parts. `show(parts, label)` updates it: parts are {name, value, colour}, the label is for screen readers. */
export function bar() {
  const made = el("div", { class: "bar", role: "img" });
  made.show = (parts, label) => {
    const whole = parts.reduce((sum, part) => sum + part.value, 0) || 1;
    keyed(made, parts.filter((part) => part.value > 0), (part) => part.name,
      (part) => el("span", { class: part.colour, title: part.name }),
      (span, part) => { span.style.width = `${(100 * part.value) / whole}%`; });
    made.setAttribute("aria-label", label);
  };
  return made;
}
