// The activity page: events, refused duplicates, or deliveries of webhooks.

import { startDeliveryList } from "../deliveries.js";
import { startDuplicateList } from "../duplicate-list.js";
import { startEventList } from "../event-list.js";
import { byId, pageData } from "../html.js";

byId("filter")?.addEventListener("change", () => byId("filter").requestSubmit());
if (pageData.asked.view === "events") startEventList();
else if (pageData.asked.view === "duplicates") startDuplicateList();
else startDeliveryList();
