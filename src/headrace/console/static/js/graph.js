// The graph of an application as the page draws it. Pure.

const INNER = new Set(["step", "window"]);
const OPERATORS = new Set([...INNER, "join", "table", "group"]);

/** Nodes and edges ({ from, to }) of what the server describes. */
export const graphOf = ({ nodes, edges }) => collapsed({ nodes, edges });

/** Steps that follow one another without a fork become one node, named by the first, told by the others. */
function collapsed({ nodes, edges }) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const after = grouped(edges, "from", "to");
  const before = grouped(edges, "to", "from");
  const next = (node) => {
    const [only, ...others] = after.get(node.id) ?? [];
    const follower = known.get(only);
    return !others.length && follower && INNER.has(follower.kind) && before.get(only).length === 1 ? follower : null;
  };
  const swallowed = new Map();
  const kept = [];
  for (const node of nodes) {
    if (swallowed.has(node.id)) continue;
    const chain = [node];
    if (INNER.has(node.kind)) for (let each = next(node); each; each = next(each)) chain.push(each);
    for (const each of chain.slice(1)) swallowed.set(each.id, node.id);
    kept.push(chain.length > 1 ? joined(chain) : node);
  }
  return { nodes: kept, edges: edges.filter((edge) => !swallowed.has(edge.to)).map((edge) => ({ from: swallowed.get(edge.from) ?? edge.from, to: edge.to })) };
}

function joined(chain) {
  const newest = chain[chain.length - 1];
  const kept = chain.find((each) => typeof each.state_rows === "number") ?? {};
  const state = { state_rows: kept.state_rows, state_bytes: kept.state_bytes, state_skew: kept.state_skew, state_oldest: kept.state_oldest };
  return { ...newest, ...state, id: chain[0].id, sample: newest.id, kind: chain.some((each) => each.kind === "window") ? "window" : "step", title: chain[0].label, label: chain.slice(1).map((each) => each.label).join(" → ") };
}

function grouped(edges, by, of) {
  const found = new Map();
  for (const edge of edges) found.set(edge[by], [...(found.get(edge[by]) ?? []), edge[of]]);
  return found;
}

/** What a node is called: steps by what they do, everything else by its name. */
export const titleOf = (node) => node.title ?? (OPERATORS.has(node.kind) ? node.label ?? node.name : node.name ?? node.label);

/** Topics that take what falls out of the way: dead letters and late records. */
export const isAside = (node) => node.kind === "topic" && /\.(dead|late)$/.test(node.name ?? "");
