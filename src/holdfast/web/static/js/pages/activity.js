// What happened, what was refused, and who was told.

import { deliveries } from "../deliveries.js";
import { happenings } from "../happenings.js";
import { byId, data } from "../html.js";
import { refusals } from "../refusals.js";

byId("filter")?.addEventListener("change", () => byId("filter").requestSubmit());
if (data.asked.view === "events") happenings();
else if (data.asked.view === "duplicates") refusals();
else deliveries();
