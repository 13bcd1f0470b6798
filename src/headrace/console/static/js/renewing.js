// Panels that were drawn for one application are drawn again when another is there: it was started, or changed.

import { watch } from "./live.js";
import { refresh } from "./router.js";

const shapeOf = ({ application, nodes }) => JSON.stringify([application?.name, application?.streams, nodes.map((node) => node.id)]);

/** Shows the panel again when the application is no longer the one of `pipelines`. */
export function renewWithApplication(pipelines, signal) {
  const drawn = shapeOf(pipelines);
  watch(({ status }) => {
    if (status.pipelines && shapeOf(status.pipelines) !== drawn) refresh();
  }, signal);
}
