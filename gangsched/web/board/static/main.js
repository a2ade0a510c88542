// The page: logs in, follows the events, and passes what they tell to the panels.

import { fill, gangAddress, make, namesIn, plain, poolAddress } from "/dashboard/text.js";
import { ClusterMap, drawCell, groupOf, look, BLOCKED, COUNTED, FIRST, FOREIGN, FREE, KEPT, TAINTED, UNHEALTHY } from "/dashboard/map.js";
import * as panels from "/dashboard/panels.js";
import * as whatif from "/dashboard/whatif.js";

const by = (id) => document.getElementById(id);
const MOST_SAMPLES = 1440, AGAIN_MS = 5000;
// As no label can be.
const POOLS = "pools of several nodes";
const NAMES = { gang: 2, node: 1, pool: 2 }, TITLES = { gang: "Gang", node: "Node", pool: "Pool" };
let groups = new Map(), samples = [], queue = null, queueAt = 0, source = null, live = false, said = "";
let seen = new Set();

function state(text, kind = "") {
  by("state").textContent = text;
  by("state").className = kind;
}

// -- the map ------------------------------------------------------------------------------------------

function what(code) {
  if (code === null) return "";
  if (code >= FIRST) return `${groups.get(groupOf(code)) ?? "a gang"}, ${(code - FIRST) & 1 ? "reserved" : "bound"}`;
  return { [FREE]: "free", [UNHEALTHY]: "unhealthy", [FOREIGN]: "foreign", [COUNTED]: "in use",
    [TAINTED]: "tainted", [BLOCKED]: "blocked: what it needs of its pool is in use", [KEPT]: "kept: its pod was deleted by force" }[code] ?? "kept for a gang that preempts";
}

function tally(node) {
  const counts = new Map();
  for (const codes of Object.values(node.cells)) for (const code of codes) counts.set(what(code), (counts.get(what(code)) ?? 0) + 1);
  return [...counts].map(([name, n]) => `${n} ${name}`).join("; ");
}

const map = new ClusterMap(by("map"), {
  onSelect: (node, code) => {
    const isPool = node.row < 0;
    const place = isPool ? `pool ${node.name}${node.open ? "" : ", being updated or invalid"}`
      : `${node.name}${node.rack ? ` in ${node.rack}` : ""}${node.open ? "" : ", cordoned"}`;
    by("map-at").textContent = plain(`${place}: ${code === null ? tally(node) || "no devices" : what(code)}`);
  },
  onOpen: (node, code) => {
    const name = code === null ? undefined : groups.get(groupOf(code));
    location.hash = name ? gangAddress(name) : node.row < 0 ? poolAddress(node.name) : "#node/" + encodeURIComponent(node.name);
  },
});
by("zoom-in").addEventListener("click", () => map.zoomBy(1.4));
by("zoom-out").addEventListener("click", () => map.zoomBy(1 / 1.4));
by("zoom-fit").addEventListener("click", () => map.all());

whatif.listen((nodes) => {
  map.proposed = nodes;
  map.later();
});

// -- events ---------------------------------------------------------------------------------------------

function sizes(cells) {
  return Object.values(cells).map((codes) => codes.length).join();
}

function hear(told) {
  let arranged = told.whole;
  if (told.whole) {
    map.nodes.clear();
    groups = new Map();
  }
  for (const [number, name] of Object.entries(told.groups)) groups.set(Number(number), name);
  for (const [row, name, label, open, cells] of told.nodes) {
    const rack = row < 0 ? POOLS : label;
    const before = map.nodes.get(row);
    arranged ||= !before || before.name !== name || before.rack !== rack || sizes(before.cells) !== sizes(cells);
    map.nodes.set(row, { row, name, rack, open, cells });
  }
  for (const row of told.gone) arranged = map.nodes.delete(row) || arranged;
  if (told.samples.length) {
    samples = told.first ? told.samples : [...samples, ...told.samples].slice(-MOST_SAMPLES);
    panels.charts(by("charts"), by("history-span"), samples, look());
  }
  if (told.queue) {
    queue = told.queue;
    queueAt = Date.now();
    panels.queueRows(by("queue-rows"), by("queue-counts"), queue, queueAt);
  }
  mark();
  if (told.whole || told.nodes.length || told.gone.length) map.later(arranged);
  if (told.queue || told.nodes.length || told.whole) {
    const { sums, racks, kinds } = panels.count(map.nodes);
    panels.tiles(by("tiles"), sums, queue, samples);
    if (kinds.size > seen.size) {
      seen = kinds;
      panels.legend(by("legend"), drawCell, look(), seen);
    }
    if (by("racks").open) panels.rackTable(by("rack-table"), racks);
  }
}

function follow() {
  source?.close();
  source = new EventSource("/dashboard/events");
  source.onmessage = (event) => {
    const told = JSON.parse(event.data);
    hear(told);
    const instead = told.leader ? `${told.leader} leads` : "which one leads is not known here";
    const now = told.leads ? "live" : `live, but this replica does not lead: it decides nothing; ${instead}`;
    if (!live || said !== now) state(now, "live");
    live = true;
    said = now;
  };
  source.onerror = () => {
    live = false;
    source.close();
    state("the scheduler does not answer; trying again", "lost");
    setTimeout(begin, AGAIN_MS);
  };
}

by("racks").addEventListener("toggle", () => panels.rackTable(by("rack-table"), panels.count(map.nodes).racks));

// -- a gang or a node -------------------------------------------------------------------------------------

let shown = "", asked = 0;

function mark() {
  const name = location.hash.startsWith("#gang/") ? namesIn(location.hash.slice(6).split("/")).join("/") : "";
  let number = -1;
  for (const [n, group] of groups) if (group === name) number = n;
  if (number !== map.marked) {
    map.marked = number;
    map.later();
  }
}

async function open(isNew) {
  const address = location.hash.slice(1);
  const [kind, ...parts] = address.split("/");
  const mine = ++asked;
  if (!(kind in NAMES)) {
    if (address && address !== "detail") return;
    by("close").hidden = true;
    by("detail-title").textContent = "Nothing selected";
    fill(by("detail-body"), make("p", { class: "hint" }, "Choose a device on the map or a gang in the queue."));
    mark();
    return;
  }
  const names = namesIn(parts), name = names.join("/");
  // No object has a name that leads to another page.
  const isName = names.length === NAMES[kind] && !names.some((one) => ["", ".", ".."].includes(one));
  const answer = isName ? await fetch(`/dashboard/${kind}/${names.map(encodeURIComponent).join("/")}`).catch(() => null) : { status: 404 };
  if (mine !== asked) return;
  by("close").hidden = false;
  by("detail-title").textContent = plain(`${TITLES[kind]} ${name}`);
  if (answer?.ok) {
    const found = await answer.json();
    if (mine !== asked) return;
    fill(by("detail-body"), ...panels[kind](found));
  } else if (answer?.status === 404) fill(by("detail-body"), make("p", {}, "It does not exist any more."));
  else fill(by("detail-body"), make("p", { class: "wrong" }, "The scheduler does not answer."));
  mark();
  if (isNew && shown !== address) by("detail").focus({ preventScroll: innerWidth > 900 });
  shown = address;
}

addEventListener("hashchange", () => open(true));
by("close").addEventListener("click", () => { location.hash = "#detail"; });
by("detail").addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !by("close").hidden) location.hash = "#detail";
});
setInterval(() => {
  // Neither what somebody reads with the keyboard nor what is selected is replaced.
  if (live && !document.hidden && !by("detail").contains(document.activeElement) && location.hash.startsWith("#gang/")) open(false);
}, AGAIN_MS);

// -- login ------------------------------------------------------------------------------------------------

async function begin() {
  const answer = await fetch("/dashboard/session").then((r) => r.json()).catch(() => null);
  if (answer === null) {
    state("the scheduler does not answer; trying again", "lost");
    setTimeout(begin, AGAIN_MS);
    return;
  }
  by("login").hidden = answer.allowed;
  by("board").hidden = !answer.allowed;
  by("leave").hidden = !answer.allowed || !answer.session;
  if (answer.allowed) {
    panels.legend(by("legend"), drawCell, look(), seen);
    panels.charts(by("charts"), by("history-span"), samples, look());
    follow();
    open(false);
  } else state("not logged in");
}

by("login-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = by("token").value.trim();
  by("login-why").textContent = "";
  let answer = null;
  try {
    answer = await fetch("/dashboard/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  } catch {
    by("login-why").textContent = "The token has characters that no token has, or the scheduler does not answer.";
    return;
  }
  if (answer.ok) {
    by("token").value = "";
    begin();
  } else by("login-why").textContent = plain((await answer.text()).trim() || `refused: ${answer.status}`);
});
by("leave").addEventListener("click", async () => {
  await fetch("/dashboard/session", { method: "DELETE" });
  source?.close();
  location.reload();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  panels.legend(by("legend"), drawCell, look(), seen);
  panels.charts(by("charts"), by("history-span"), samples, look());
});
begin();
