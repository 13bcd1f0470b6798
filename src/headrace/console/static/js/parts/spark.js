// A line of few pixels: where a number has been lately.

import { svg } from "../dom.js";

const WIDTH = 110;
const HEIGHT = 22;

/** An empty sparkline; `drawSpark` fills it. */
export function spark(label) {
  return svg("svg", { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg("path", { class: "spark-area" }), svg("path", { class: "spark-line", "vector-effect": "non-scaling-stroke" }));
}

/** Draws points [[x, value], …]; the scale begins at zero. */
export function drawSpark(element, points) {
  const line = sparkPath(points, WIDTH, HEIGHT);
  element.lastChild.setAttribute("d", line);
  element.firstChild.setAttribute("d", line ? `${line}V${HEIGHT}H0Z` : "");
}

/** The path of a line through points, the newest at the right edge. Pure. */
export function sparkPath(points, width, height) {
  if (points.length < 2) return "";
  const [began, ended] = [points[0][0], points[points.length - 1][0]];
  const most = Math.max(1e-9, ...points.map(([, value]) => value));
  const scaled = points.map(([at, value]) => {
    const x = ended > began ? ((at - began) / (ended - began)) * width : width;
    return `${x.toFixed(1)} ${(height - 1.5 - (Math.max(0, value) / most) * (height - 3)).toFixed(1)}`;
  });
  return `M${scaled.join("L")}`;
}
