// A small virtual DOM: only differences are applied, and text is never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set(["value", "checked", "indeterminate"]);

/** A node: h("a", {class: "name", href: "#/jobs", on: {click}}, "text", child, …). Falsy children are skipped. */
export function h(tag, props, ...children) {
  return { tag, props: props || {}, children: flat(children, []), key: props ? props.key : undefined };
}

function flat(children, into) {
  for (const child of children) {
    if (Array.isArray(child)) flat(child, into);
    else if (child !== null && child !== undefined && child !== false && child !== "")
      into.push(typeof child === "object" ? child : String(child));
  }
  return into;
}

/** Update an element's content to these nodes. */
export function render(element, ...nodes) {
  const next = flat(nodes, []);
  reconcile(element, element.tree || [], next, element.namespaceURI === SVG);
  element.tree = next;
}

function create(node, svg) {
  if (typeof node === "string") return document.createTextNode(node);
  const inside = svg || node.tag === "svg";
  const element = inside ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  for (const name in node.props) set(element, name, undefined, node.props[name]);
  for (const child of node.children) element.appendChild(create(child, inside));
  if (node.tag === "select" && "value" in node.props) element.value = node.props.value;
  if (node.props.mount) element.unmount = node.props.mount(element);
  if (node.props.update) node.props.update(element);
  return element;
}

function set(element, name, before, value) {
  if (name === "key" || name === "mount" || name === "update") return;
  if (name === "on") {
    element.handlers = value || {};
    for (const kind in value) if (!before?.[kind]) listen(element, kind);
  } else if (name === "style") {
    for (const part in value) if (!before || before[part] !== value[part]) element.style.setProperty(part, value[part]);
  } else if (AS_PROPERTY.has(name)) {
    if (element[name] !== value) element[name] = value;
  } else if (before === value) {
    return;
  } else if (value === null || value === undefined || value === false) {
    element.removeAttribute(name);
  } else if (name === "href" && !/^(#|https:\/\/)/.test(value)) {
    throw new Error("href must be inside the page or https");
  } else {
    element.setAttribute(name, value === true ? "" : value);
  }
}

function listen(element, kind) {
  element.listened = element.listened || new Set();
  if (element.listened.has(kind)) return;
  element.listened.add(kind);
  element.addEventListener(kind, (event) => element.handlers[kind]?.(event));
}

function same(one, other) {
  if (typeof one === "string" || typeof other === "string") return typeof one === typeof other;
  return one.tag === other.tag && one.key === other.key;
}

function patch(element, before, node, svg) {
  if (typeof node === "string") {
    if (before !== node) element.data = node;
    return;
  }
  const names = { ...before.props, ...node.props };
  for (const name in names) set(element, name, before.props[name], node.props[name]);
  if (!node.props.mount) reconcile(element, before.children, node.children, svg || node.tag === "svg");
  if (node.tag === "select" && "value" in node.props) element.value = node.props.value;
  if (node.props.update) node.props.update(element);
}

function reconcile(parent, before, after, svg) {
  const elements = [...parent.childNodes];
  const keyed = new Map();
  before.forEach((node, at) => {
    if (node.key !== undefined) keyed.set(node.key, at);
  });
  const used = new Set();
  let free = 0;
  const placed = after.map((node) => {
    let at = -1;
    if (node.key !== undefined) {
      if (keyed.has(node.key) && same(before[keyed.get(node.key)], node)) at = keyed.get(node.key);
    } else {
      while (free < before.length && (used.has(free) || before[free].key !== undefined)) free += 1;
      if (free < before.length && same(before[free], node)) at = free;
    }
    if (at < 0 || used.has(at)) return create(node, svg);
    used.add(at);
    patch(elements[at], before[at], node, svg);
    return elements[at];
  });
  elements.forEach((element, at) => {
    if (!used.has(at)) remove(element);
  });
  placed.forEach((element, at) => {
    if (parent.childNodes[at] !== element) parent.insertBefore(element, parent.childNodes[at] || null);
  });
}

function remove(element) {
  unmount(element);
  element.remove();
}

function unmount(element) {
  if (element.unmount) element.unmount();
  for (const child of element.childNodes) unmount(child);
}
