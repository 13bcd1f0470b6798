// The page's icons, drawn on a grid of 16 in one weight; each is decoration beside a word.

import { svg } from "./dom.js";

const PATHS = {
  overview: "M2 2h5v6H2zM9 2h5v3H9zM9 7h5v7H9zM2 10h5v4H2z",
  topics: "M2 4h12M2 8h12M2 12h7",
  groups: "M5.5 7a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.400zM1.5 13.500c0-2.5 1.8-4 4-4s4 1.5 4 4M10.5 7a2 2 0 1 0-.5-3.900M11.5 9.600c1.8.3 3 1.7 3 3.9",
  captures: "M2.5 4c0-3.300 11-3.300 11 0s-11 3.300-11 0v8c0 3.300 11 3.300 11 0V4M2.5 8c0 3.300 11 3.300 11 0",
  pipeline: "M1.5 6h4v4h-4zM10.5 1.500h4v4h-4zM10.5 10.500h4v4h-4zM5.5 8h2.500M8 3.500v9M8 3.500h2.500M8 12.500h2.5",
  views: "M2 2.500h12v11H2zM2 6h12M6.5 6v7.5",
  entities: "M3 2.500v11M3 4.500h4.500M3 8h7.500M3 11.500h10M3 4.500h.01M3 8h.01",
  late: "M8 14.500a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM8 4.500V8l2.5 2",
  dead: "M1.5 4h13v9h-13zM1.5 4.500L8 9l6.5-4.5",
  rebuild: "M13.5 8a5.5 5.5 0 1 1-1.6-3.900M13.5 1.500v3.200h-3.2",
  alerts: "M8 1.500a4 4 0 0 0-4 4c0 4-1.5 5.5-1.5 5.500h11S12 9.5 12 5.500a4 4 0 0 0-4-4zM6.5 13.500a1.6 1.6 0 0 0 3 0",
  audit: "M3.5 1.500h6l3 3v10h-9zM9.5 1.500v3h3M5.5 8h5M5.5 11h5",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.500M8 13.500V15M1 8h1.500M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13.5 9.500A6 6 0 0 1 6.5 2.500a6 6 0 1 0 7 7z",
  system: "M2 2.500h12v8.500H2zM6 14h4M8 11v3",
  pause: "M5 3v10M11 3v10",
  play: "M4.5 2.500v11l9-5.500z",
  search: "M7 12a5 5 0 1 0 0-10 5 5 0 0 0 0 10zM10.7 10.700L14 14",
  plus: "M8 3v10M3 8h10",
  close: "M3.5 3.500l9 9M12.5 3.500l-9 9",
  check: "M3 8.500l3.5 3.500L13 4.5",
  warning: "M8 2L1.5 13.500h13zM8 6.500V10M8 11.800v.2",
  send: "M14 2L1.5 7l5 2.500L9 14.500zM14 2L6.5 9.5",
  download: "M8 2v8M4.5 7L8 10.5 11.5 7M2.5 13.500h11",
  table: "M2 2.500h12v11H2zM2 6h12M2 9.800h12M6.5 6v7.5",
  out: "M6 2.500H2.500v11H6M10 4.500L13.5 8 10 11.500M13.5 8H6",
  hook: "M8 5.500a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM8 5.500V11a2.5 2.5 0 0 1-5 0V9.5",
};

/** An icon by its name; hidden from screen readers. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: PATHS[name] ?? PATHS.topics }));
}
