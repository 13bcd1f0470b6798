// Where the boxes of a graph stand: layers from left to right, and in each an order with few crossings. Pure.

const SWEEPS = 6;

/**
 * Places nodes ({ id, last }) joined by edges ({ from, to }); those marked `last` stand below the
 * others of their layer. Gives { nodes: Map id → { layer, x, y }, width, height } in pixels, for boxes
 * of one size. Edges that would close a circle are ignored in finding layers; edges to unknown nodes
 * are ignored altogether.
 */
export function layout(nodes, edges, { boxWidth, boxHeight, gapX, gapY }) {
  const ids = nodes.map((node) => node.id);
  const last = new Set(nodes.filter((node) => node.last).map((node) => node.id));
  const known = edges.filter((edge) => ids.includes(edge.from) && ids.includes(edge.to) && edge.from !== edge.to);
  const layers = ordered(layersOf(ids, known), known, last);
  const rows = heights(layers, neighbours(known.filter((edge) => !last.has(edge.from) && !last.has(edge.to))));
  const places = new Map();
  layers.forEach((layer, index) => layer.forEach((id) => places.set(id, {
    layer: index, x: index * (boxWidth + gapX), y: rows.get(id) * (boxHeight + gapY),
  })));
  const lowest = Math.max(0, ...rows.values());
  return {
    nodes: places,
    width: Math.max(0, layers.length * (boxWidth + gapX) - gapX),
    height: ids.length ? lowest * (boxHeight + gapY) + boxHeight : 0,
  };
}

/**
 * How far down each node stands, in rows: beside its neighbours as far as the order of its layer
 * allows, so that most lines are straight.
 */
function heights(layers, beside) {
  const rows = new Map(layers.flatMap((layer) => layer.map((id, index) => [id, index])));
  for (let sweep = 0; sweep < SWEEPS * 2; sweep += 1) {
    const sequence = sweep % 2 ? [...layers].reverse() : layers;
    for (const layer of sequence) settle(layer, rows, beside);
  }
  const top = Math.min(0, ...rows.values());
  for (const [id, row] of rows) rows.set(id, Math.round((row - top) * 2) / 2); // halves: what is almost straight is
  return rows;
}

/** Moves a layer's nodes to the middle of their neighbours, then apart until none overlap. */
function settle(layer, rows, beside) {
  const wanted = layer.map((id) => {
    const known = (beside.get(id) ?? []).map((other) => rows.get(other));
    return known.length ? known.reduce((sum, row) => sum + row, 0) / known.length : rows.get(id);
  });
  const down = [...wanted];
  for (let index = 1; index < down.length; index += 1) down[index] = Math.max(down[index], down[index - 1] + 1);
  const up = [...wanted];
  for (let index = up.length - 2; index >= 0; index -= 1) up[index] = Math.min(up[index], up[index + 1] - 1);
  layer.forEach((id, index) => rows.set(id, (down[index] + up[index]) / 2));
}

/**
 * Each node one layer behind the last of those that lead to it. Where only circles are left, the first
 * node in the list goes on, and what leads back to it does not count.
 */
function layersOf(ids, edges) {
  const depth = new Map();
  const left = new Set(ids);
  const before = new Map(ids.map((id) => [id, edges.filter((edge) => edge.to === id).map((edge) => edge.from)]));
  while (left.size) {
    const free = [...left].filter((id) => before.get(id).every((other) => !left.has(other)));
    for (const id of free.length ? free : [[...left][0]]) {
      depth.set(id, 1 + Math.max(-1, ...before.get(id).map((other) => depth.get(other) ?? -1)));
      left.delete(id);
    }
  }
  // What nothing leads to stands right before the first that it leads to: no line runs behind a box.
  for (const id of ids.filter((each) => !before.get(each).length)) {
    const after = edges.filter((edge) => edge.from === id).map((edge) => depth.get(edge.to));
    if (after.length) depth.set(id, Math.max(0, Math.min(...after) - 1));
  }
  const layers = [];
  for (const id of ids) (layers[depth.get(id)] ??= []).push(id);
  return layers;
}

function neighbours(edges) {
  const beside = new Map();
  for (const { from, to } of edges) {
    beside.set(from, [...(beside.get(from) ?? []), to]);
    beside.set(to, [...(beside.get(to) ?? []), from]);
  }
  return beside;
}

/** Each layer by the middle of its neighbours, forth and back a few times. */
function ordered(layers, edges, last) {
  const beside = neighbours(edges);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forth = sweep % 2 === 0;
    const sequence = forth ? layers.keys() : [...layers.keys()].reverse();
    for (const index of sequence) {
      const fixed = layers.filter((_, at) => (forth ? at < index : at > index));
      layers[index] = byMiddle(layers[index], fixed, beside);
    }
  }
  return layers.map((layer) => [...layer.filter((id) => !last.has(id)), ...layer.filter((id) => last.has(id))]);
}

function byMiddle(layer, fixed, beside) {
  const place = new Map(fixed.flatMap((each) => each.map((id, index) => [id, (index + 0.5) / each.length])));
  const middle = (id, index) => {
    const known = (beside.get(id) ?? []).map((other) => place.get(other)).filter((at) => at !== undefined);
    return known.length ? known.reduce((sum, at) => sum + at, 0) / known.length : (index + 0.5) / layer.length;
  };
  return layer.map((id, index) => ({ id, at: middle(id, index), index }))
    .sort((one, other) => one.at - other.at || one.index - other.index).map((each) => each.id);
}

/** A line from the right of one box to the left of another. */
export function wire(from, to, { boxWidth, boxHeight }) {
  const [x1, y1, x2, y2] = [from.x + boxWidth, from.y + boxHeight / 2, to.x, to.y + boxHeight / 2];
  const bend = Math.max(18, (x2 - x1) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
