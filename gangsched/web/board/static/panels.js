// The panels beside the map: queue, a gang, a node, racks, history.

import { clock, duration, fill, gangAddress, make, plain, poolAddress, share } from "/dashboard/text.js";
import { BLOCKED, CLAIMED, COUNTED, FIRST, FOREIGN, FREE, KEPT, TAINTED, UNHEALTHY } from "/dashboard/map.js";

export function tiles(place, sums, queue, samples) {
  const last = samples.at(-1);
  const all = sums.all || 0;
  const rows = [
    ["Nodes", sums.nodes, ""],
    ["Devices in use", all ? share((all - sums.free) / all) : "–", `${all - sums.free} of ${all}`],
    ["Free", sums.free, ""],
    ["Reserved", sums.reserved, ""],
    ["Unhealthy", sums.unhealthy, sums.tainted ? `${sums.tainted} tainted` : ""],
    ["Waiting", queue?.nWaiting ?? "–", queue?.nWaiting === 1 ? "group" : "groups"],
    ["Decisions", last ? last[4].toFixed(1) : "–", "a second"],
  ];
  fill(place, ...rows.map(([name, value, more]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, String(value), make("small", {}, more)))));
}

export function count(nodes) {
  const none = { nodes: 0, all: 0, free: 0, reserved: 0, bound: 0, unhealthy: 0, tainted: 0, other: 0 };
  const sums = { ...none }, racks = new Map(), kinds = new Set();
  for (const node of nodes.values()) {
    let rack = racks.get(node.rack);
    if (!rack) racks.set(node.rack, (rack = { ...none }));
    if (node.row >= 0) for (const sum of [sums, rack]) sum.nodes += 1;
    for (const codes of Object.values(node.cells)) {
      for (const code of codes) {
        if (code < FIRST) kinds.add(code);
        const kind = code === FREE ? "free" : code === UNHEALTHY || code === TAINTED ? "unhealthy" : code < FIRST ? "other" : (code - FIRST) & 1 ? "reserved" : "bound";
        for (const sum of [sums, rack]) { sum.all += 1; sum[kind] += 1; sum.tainted += code === TAINTED; }
      }
    }
  }
  return { sums, racks, kinds };
}

export function rackTable(table, racks) {
  const head = ["Rack", "Nodes", "Devices", "Free", "Reserved", "Bound", "Unhealthy or tainted", "Other"];
  const names = [...racks.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  fill(table,
    make("thead", {}, make("tr", {}, ...head.map((name, i) => make("th", { scope: "col", class: i ? "n" : "" }, name)))),
    make("tbody", {}, ...names.map((name) => {
      const r = racks.get(name);
      return make("tr", {}, make("th", { scope: "row" }, name || "no rack"),
        ...[r.nodes, r.all, r.free, r.reserved, r.bound, r.unhealthy, r.other].map((n) => make("td", { class: "n" }, n)));
    })));
}

// What to submit where nothing waits: a Job that is a gang.
const SAMPLE = `apiVersion: batch/v1
kind: Job
metadata: {name: first}
spec:
  completions: 4
  parallelism: 4
  template:
    metadata:
      labels: {gangsched.io/pod-group: first}
      annotations: {gangsched.io/min-members: "4"}
    spec:
      schedulerName: gangsched
      restartPolicy: Never
      containers:
      - {name: main, image: busybox, command: [sleep, "60"], resources: {limits: {nvidia.com/gpu: 1}}}
`;

function sample() {
  const text = make("pre", { class: "sample", tabindex: "0", "aria-label": "A Job that is a gang" });
  text.textContent = SAMPLE;
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(SAMPLE);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text); // the browser does not let the page copy: Ctrl+C does
      button.textContent = "Selected: press Ctrl+C";
    }
  });
  return [make("p", { class: "hint" }, "Nothing waits. A Job whose four pods start together or not at all, for kubectl apply -f - or for What if below:"), text, button];
}

export function queueRows(body, counts, queue, heardAt) {
  const gone = (Date.now() - heardAt) / 1000;
  const states = Object.entries(queue.byState).map(([state, n]) => `${n} ${state}`).join(", ");
  const first = queue.rows.length < queue.nWaiting ? `the first ${queue.rows.length} of ` : "";
  counts.textContent = queue.nWaiting ? plain(`${first}${queue.nWaiting}: ${states}`) : "";
  if (!queue.rows.length) {
    if (body.querySelector(".sample")) return; // what is selected in it to be copied stays
    return fill(body, make("tr", {}, make("td", { colspan: "7" }, ...sample())));
  }
  const focused = document.activeElement?.closest("#queue-rows") ? document.activeElement.getAttribute("href") : null;
  fill(body, ...queue.rows.map((row) => make("tr", {},
    make("td", { class: "n" }, row.position),
    make("td", { class: "name" }, make("a", { href: gangAddress(row.group) }, row.group)),
    make("td", { class: "keep" }, row.state),
    make("td", { class: "n" }, row.ageS === null ? "–" : duration(row.ageS + gone)),
    make("td", { class: "n" }, row.needed === null ? String(row.existing) : `${row.existing}/${row.needed}`),
    make("td", { class: "n" }, row.priority),
    make("td", { class: "why" }, row.why))));
  if (focused) [...body.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

export function table(heads, rows) {
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": heads[0] },
    make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((h) => make("th", { scope: "col" }, h)))),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell ?? "")))))));
}

export function list(title, lines) {
  return lines?.length ? [make("h3", {}, title), make("ul", {}, ...lines.map((line) => make("li", {}, line)))] : [];
}

// Bars of the time that a gang was in each state, from its first move until now.
function waterfall(story) {
  const moves = story.moves;
  if (!moves.length) return [];
  const now = Date.now();
  const lanes = moves.map((move, i) => {
    const from = Date.parse(move.at);
    return [move.state, from, i + 1 < moves.length ? Date.parse(moves[i + 1].at) : Math.max(from, now)];
  });
  // What it does now takes any time: the bars show the way there, where that is over.
  const settled = story.state === "bound" && lanes.length > 1;
  const start = lanes[0][1];
  const end = settled ? lanes.at(-1)[1] : lanes.at(-1)[2];
  const whole = Math.max(end - start, 1);
  const shown = (settled ? lanes.slice(0, -1) : lanes).slice(-24);
  const grid = make("div", { class: "fall" });
  for (const [state, from, to] of shown) {
    const bar = make("span");
    bar.style.left = `${Math.max(0, ((from - start) / whole) * 100)}%`;
    bar.style.width = `${Math.max(0, ((Math.min(to, end) - from) / whole) * 100)}%`;
    grid.append(make("span", {}, state), make("span", { class: "lane" }, bar), make("span", { class: "n" }, duration((to - from) / 1000)));
  }
  return [make("h3", {}, "Waterfall"), grid];
}

export function gang(found) {
  const parts = [];
  for (const { leads, explanation: e, trace } of found.explanations) {
    parts.push(make("p", { class: "answer" }, e.answer || e.state));
    if (!leads) parts.push(make("p", { class: "wrong" }, "This replica does not lead; it decides nothing."));
    const facts = [`state ${e.state} for ${duration(e.stateS)}`];
    if (e.position) facts.push(`${e.position} of ${e.nWaiting} in the queue`);
    const started = e.state === "bound";
    if (e.waitedS !== null) facts.push(started ? `waited ${duration(e.waitedS - e.stateS)}` : `waiting ${duration(e.waitedS)}`);
    facts.push(`${e.bound} bound, ${e.reserved} reserved of ${e.needed ?? "?"} needed`, `${e.attempts} ${e.attempts === 1 ? "attempt" : "attempts"}`, `priority ${e.priority}`);
    parts.push(make("p", { class: "hint" }, facts.join(" · ")));
    parts.push(...list("What would help", e.cures));
    if (e.then) parts.push(make("p", { class: "hint" }, e.then));
    parts.push(...list("Reasons", (e.reasons ?? []).map((r) => `${r.nodes} ${r.nodes === 1 ? "node" : "nodes"}: ${r.reason} (${r.plugin})`)));
    if (e.near?.length) {
      parts.push(make("h3", {}, "Nearest misses"), table(["Node", "Resource", "Free", "Asked", "Held by"],
        e.near.map((n) => [n.node, n.resource, n.free, n.asked, n.heldBy.join(", ")])));
    }
    if (trace) parts.push(make("h3", {}, "Trace"), make("p", {}, make("code", {}, trace)));
  }
  parts.push(...claims(found));
  parts.push(make("h3", {}, `Members (${found.n_members})`), table(["Pod", "State", "Node", "Devices"],
    found.members.map((m) => [m.name, m.phase ? `${m.state}, ${m.phase}` : m.state,
      m.node ? make("a", { href: "#node/" + encodeURIComponent(m.node) }, m.node) : "–",
      Object.entries(m.ids).map(([resource, ids]) => `${resource}: ${ids.join(" ")}`).join("; ") || (m.claims.length ? "by claim" : "–")])));
  for (const story of found.stories) {
    parts.push(...waterfall(story));
    parts.push(make("h3", {}, "Story"), table(["At", "From", "To", "Because"],
      story.moves.map((m) => [clock(m.at), m.before, m.state, m.cause])));
  }
  return parts;
}

function names(some, n) {
  return some.join(", ") + (n > some.length ? ` and ${n - some.length} more` : "");
}

// The resource claims of a gang's pods: what they ask for, mostly all the same, and what each has.
function claims(found) {
  if (!found.n_claims) return [];
  const asked = new Map();
  for (const c of found.claims) {
    const text = c.asks.join("; ");
    if (text) asked.set(text, [...(asked.get(text) ?? []), c.name]);
  }
  const each = found.n_claims === 1 ? "It asks" : "Each asks";
  const asks = asked.size === 1 ? [...asked.keys()].map((text) => make("p", {}, `${each} for ${text}.`))
    : [make("ul", {}, ...[...asked].slice(0, 8).map(([text, of]) => make("li", {}, `${names(of.slice(0, 3), of.length)}: ${text}`)))];
  const rows = found.claims.map((c) => [
    make("div", {}, c.name ? make("code", {}, c.name) : c.entry, make("div", { class: "hint" }, names(c.pods, c.n_pods))), c.state,
    Object.entries(c.devices).map(([request, ids]) => `${request}: ${ids.join(" ")}`).join("; ") || "–"]);
  const more = found.n_claims - found.claims.length;
  return [make("h3", {}, `Resource claims (${found.n_claims})`), ...asks,
    table(["Claim", "State", "Devices"], rows), ...(more > 0 ? [make("p", { class: "hint" }, `and ${more} more`)] : [])];
}

function user(one) {
  const who = one.group ? [make("a", { href: gangAddress(one.group) }, one.group), one.reserved ? " (reserved): " : ": "]
    : one.scheduler ? [`${one.scheduler}: `] : [];
  const pods = one.n_pods ? `, pod${one.n_pods === 1 ? "" : "s"} ${names(one.pods, one.n_pods)}` : "";
  return make("div", {}, ...who, `claim ${one.claim}${pods}`);
}

function deviceState(d) {
  const state = d.n_users > 1 ? `shared by ${d.n_users} claims` : d.state === "tainted" ? (d.n_users ? "in use" : "free")
    : { blocked: `blocked: no ${d.counters.join(", ")} left`, kept: "kept: its pod was deleted by force" }[d.state] ?? d.state;
  return state + (d.taints.length ? `, tainted (${d.taints.join(", ")})` : "");
}

// A pool of ResourceSlices, or what one node reaches of it.
export function pool(found) {
  const parts = found.problem ? [make("p", { class: "wrong" }, `No device of it is given out. It is ${found.problem}.`)] : [];
  if (found.devices.length) {
    parts.push(table(["Device", "State", "In use by"], found.devices.map((d) => [make("code", {}, d.name), deviceState(d),
      d.users.length ? make("div", {}, ...d.users.map(user), d.n_users > d.users.length ? `and ${d.n_users - d.users.length} more claims` : "") : "–"])));
  } else if (!found.problem) parts.push(make("p", { class: "hint" }, "It lists no devices."));
  const more = found.n_devices - found.devices.length;
  if (more > 0) parts.push(make("p", { class: "hint" }, `and ${more} more of ${found.n_devices} devices`));
  return parts;
}

export function node(found) {
  const facts = [found.topology ? `rack ${found.topology}` : "no rack", found.unschedulable ? "cordoned" : "open for new pods"];
  const parts = [make("p", { class: "hint" }, facts.join(" · "))];
  for (const [resource, devices] of Object.entries(found.devices)) {
    parts.push(make("h3", {}, resource), table(["Device", "State", "Gang", "Pods"], devices.map((d) => {
      const state = !d.healthy ? "unhealthy" : !d.pods.length ? "free" : !d.group ? "foreign" : d.reserved ? "reserved" : "bound";
      return [make("code", {}, d.id), state, d.group ? make("a", { href: gangAddress(d.group) }, d.group) : "–", d.pods.join(", ") || "–"];
    })));
  }
  for (const one of found.pools) parts.push(make("h3", {}, `${one.driver}${one.name === found.name ? "" : `, pool ${one.name}`}`), ...pool(one));
  if (found.reaches.length) {
    parts.push(make("h3", {}, "Pools that other nodes reach too"),
      make("ul", {}, ...found.reaches.map((name) => make("li", {}, make("a", { href: poolAddress(name) }, name)))));
  }
  const counted = Object.entries(found.allocatable).filter(([name]) => name.includes("/") && !found.devices[name]);
  parts.push(...list("Counted, without a list of devices", counted.map(([name, n]) => `${name}: ${found.free[name] ?? 0} of ${n} free`)));
  return parts;
}

const LINES = [
  ["Groups that wait", 1, (v) => String(v)],
  ["Devices in use", 2, share, 1],
  ["Free devices on nodes in part use", 3, share, 1],
  ["Decisions a second", 4, (v) => v.toFixed(1)],
];

export function charts(place, span, samples, look) {
  if (!place.childElementCount) {
    fill(place, ...LINES.map(([name]) => make("figure", {}, make("figcaption", {}, name, make("b", {}, "–")), make("canvas", { role: "img", "aria-label": name }))));
  }
  span.textContent = samples.length > 1 ? `${clock(samples[0][0] * 1000)} to ${clock(samples.at(-1)[0] * 1000)}` : "a point every 10 s, for four hours";
  LINES.forEach(([name, at, say, most], i) => {
    const figure = place.children[i], canvas = figure.querySelector("canvas");
    const points = samples.filter((s) => s[at] !== null);
    const last = points.at(-1);
    const top = most ?? Math.max(1, ...points.map((s) => s[at]));
    figure.querySelector("b").textContent = last ? say(last[at]) + (most ? "" : ` (most ${say(top)})`) : "–";
    canvas.setAttribute("aria-label", last ? `${name}: ${say(last[at])} now, ${say(Math.min(...points.map((s) => s[at])))} to ${say(Math.max(...points.map((s) => s[at])))}` : `${name}: nothing yet`);
    const wide = canvas.clientWidth, high = canvas.clientHeight, dense = devicePixelRatio || 1;
    canvas.width = wide * dense;
    canvas.height = high * dense;
    const pen = canvas.getContext("2d");
    pen.scale(dense, dense);
    if (points.length < 2) return;
    const from = samples[0][0], to = samples.at(-1)[0];
    const x = (s) => ((s[0] - from) / Math.max(to - from, 1)) * (wide - 2) + 1, y = (s) => high - 2 - (s[at] / top) * (high - 6);
    pen.beginPath();
    points.forEach((s, n) => (n ? pen.lineTo(x(s), y(s)) : pen.moveTo(x(s), y(s))));
    pen.strokeStyle = look.accent;
    pen.lineWidth = 1.5;
    pen.stroke();
    pen.lineTo(x(last), high);
    pen.lineTo(x(points[0]), high);
    pen.globalAlpha = 0.12;
    pen.fillStyle = look.accent;
    pen.fill();
  });
}

// `seen`: codes on the map; what is rare is explained once it is there.
export function legend(place, drawCell, look, seen) {
  const kinds = [["free", FREE], ["bound (a colour for each gang)", FIRST], ["reserved", FIRST + 1], ["unhealthy", UNHEALTHY],
    ["foreign", FOREIGN], ["in use, only counted", COUNTED], ["kept for a gang that preempts", CLAIMED],
    ...[["tainted", TAINTED], ["blocked by partitions in use", BLOCKED], ["kept after its pod was deleted by force", KEPT]].filter(([, code]) => seen.has(code))];
  fill(place, ...kinds.map(([name, code]) => {
    const sample = make("canvas", { width: "24", height: "24", "aria-hidden": "true" });
    drawCell(sample.getContext("2d"), code, 0, 0, 24, look);
    return make("li", {}, sample, name);
  }));
}
