// The shape of a flow: layers by depth, groups where there are many jobs, edges, and the critical path. Draws nothing.

import { ENDED } from "./parts.js";

export const SINGLE = 100; // up to this number of jobs, each has a separate box
const COLUMNS = 40; // of groups: more layers share columns
const ROWS = 12; // boxes in a column of groups: further tasks share the last one
const VISITS = 3000000; // parents that are looked at to draw edges

/** The layer of each job, by its number: one more than that of its deepest parent. */
export function layers(nodes) {
  const depth = [];
  const deepest = []; // of all numbers up to each, for the jobs that wait for all before them
  for (const { number, after } of nodes) {
    let found = -1;
    for (const [from, last] of after) {
      const to = Math.min(last, number - 1);
      if (from === 0 && to >= 0) found = Math.max(found, deepest[Math.min(to, deepest.length - 1)] ?? -1);
      else for (let parent = from; parent <= to; parent += 1) found = Math.max(found, depth[parent] ?? -1);
    }
    depth[number] = found + 1;
    for (let at = deepest.length; at <= number; at += 1) deepest[at] = Math.max(deepest[at - 1] ?? -1, depth[at] ?? -1);
  }
  return depth;
}

/** The jobs that decided when the flow ended, or how far it is: from the last end back, the parent that ended last. */
export function criticalPath(nodes) {
  const known = [];
  for (const node of nodes) known[node.number] = node;
  const end = (node) => (node.finished_at ? Date.parse(node.finished_at) : 0);
  const later = (one, other) => {
    if (!one) return other;
    const running = (node) => (node.status === "running" ? 1 : 0);
    const by = running(other) - running(one) || (running(one) ? start(one) - start(other) : end(other) - end(one));
    return by > 0 ? other : one;
  };
  const ran = (node) => node?.started_at && (ENDED.has(node.status) || node.status === "running");
  const path = [];
  let at = nodes.filter(ran).reduce(later, null);
  while (at) {
    path.unshift(at);
    let before = null;
    for (const [from, last] of at.after)
      for (let parent = from; parent <= Math.min(last, at.number - 1); parent += 1)
        if (ran(known[parent]) && end(known[parent])) before = later(before, known[parent]);
    at = before;
  }
  return path;
}

const start = (node) => Date.parse(node.started_at);

/** Boxes and edges: {boxes: [{key, task, nodes, column, row}], edges: [{from, to}], boxOf, columns, rows, grouped}. */
export function arrange(nodes) {
  const depth = layers(nodes);
  const grouped = nodes.length > SINGLE;
  const count = nodes.reduce((most, node) => Math.max(most, depth[node.number] + 1), 0);
  const column = (node) =>
    grouped && count > COLUMNS ? Math.floor((depth[node.number] * COLUMNS) / count) : depth[node.number];
  const boxes = grouped
    ? groups(nodes, column)
    : nodes.map((node) => box(`${node.number}`, node.type, [node], column(node)));
  const boxOf = [];
  for (const one of boxes) for (const node of one.nodes) boxOf[node.number] = one;
  const edges = connect(nodes, boxes, boxOf);
  place(boxes, edges);
  return {
    boxes,
    edges,
    boxOf,
    grouped,
    columns: boxes.reduce((most, one) => Math.max(most, one.column + 1), 0),
    rows: boxes.reduce((most, one) => Math.max(most, one.row + 1), 0),
  };
}

const box = (key, task, nodes, column) => ({ key, task, nodes, column, row: 0, children: 0 });

function groups(nodes, column) {
  const found = new Map();
  for (const node of nodes) {
    const at = column(node);
    if (!found.has(at)) found.set(at, new Map());
    const tasks = found.get(at);
    if (!tasks.has(node.type)) tasks.set(node.type, []);
    tasks.get(node.type).push(node);
  }
  const boxes = [];
  for (const [at, tasks] of found) {
    const sorted = [...tasks].sort((a, b) => b[1].length - a[1].length);
    const own = sorted.length > ROWS ? sorted.slice(0, ROWS - 1) : sorted;
    for (const [task, some] of own) boxes.push(box(`${at} ${task}`, task, some, at));
    const rest = sorted.slice(own.length);
    const others = rest.flatMap(([, some]) => some).sort((a, b) => a.number - b.number);
    if (rest.length) boxes.push(box(`${at}`, `${rest.length} other tasks`, others, at));
  }
  return boxes;
}

/** The edges between boxes, each once. A job that waits for all before it gets edges from those without other children. */
function connect(nodes, boxes, boxOf) {
  const found = new Map();
  const add = (from, to) => {
    if (!from || from === to) return;
    const key = `${from.key}>${to.key}`;
    if (!found.has(key)) {
      found.set(key, { key, from, to });
      from.children += 1;
    }
  };
  let visits = 0;
  const all = [];
  for (const node of nodes) {
    if (node.number > 1 && node.after.length === 1 && node.after[0][0] === 0 && node.after[0][1] >= node.number - 1) {
      all.push(node);
      continue;
    }
    for (const [from, last] of node.after)
      for (let parent = from; parent <= Math.min(last, node.number - 1) && visits < VISITS; parent += 1) {
        visits += 1;
        add(boxOf[parent], boxOf[node.number]);
      }
  }
  for (const node of all) {
    const to = boxOf[node.number];
    for (const from of boxes) if (!from.children && from.nodes[0].number < node.number) add(from, to);
  }
  return [...found.values()];
}

/** Order the boxes of each column by the rows of their parents, so that few edges cross. */
function place(boxes, edges) {
  const parents = new Map();
  for (const { from, to } of edges) {
    if (!parents.has(to)) parents.set(to, []);
    parents.get(to).push(from);
  }
  const columns = [];
  for (const one of boxes) {
    columns[one.column] ||= [];
    columns[one.column].push(one);
  }
  const mean = (one) => {
    const before = (parents.get(one) || []).filter((other) => other.column < one.column);
    return before.length ? before.reduce((sum, other) => sum + other.row, 0) / before.length : 0;
  };
  for (const column of columns.filter(Boolean)) {
    const at = new Map(column.map((one) => [one, mean(one)]));
    column.sort((a, b) => at.get(a) - at.get(b) || a.nodes[0].number - b.nodes[0].number);
    for (const [row, one] of column.entries()) one.row = row;
  }
}
