// What if: sends a job's YAML and shows where it would go, or why not.

import { clock, duration, fill, make } from "/dashboard/text.js";
import { list, table } from "/dashboard/panels.js";

const MOST_ROWS = 200;
const by = (id) => document.getElementById(id);

function many(n, noun) {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}

function names(id) {
  return by(id).value.split(/[\s,]+/).filter(Boolean);
}

function devices(member) {
  return Object.entries(member.devices).map(([resource, ids]) => `${resource}: ${ids.join(" ")}`).join("; ") || "–";
}

function when(gang, endless) {
  if (gang.starts === "later") {
    const after = gang.after.length ? `, when these have ended as stated: ${gang.after.join(", ")}` : "";
    return `It would start in about ${duration(gang.inS)} (${clock(gang.at)})${after}. That holds if nothing else comes before it.`;
  }
  return `When it would start is not known: no stated end makes room for it (${many(endless, "running pod")} ${endless === 1 ? "states" : "state"} none).`;
}

function gang(one, endless) {
  const all = one.members.length + one.unplaced.length;
  if (one.starts === "now") {
    const nodes = new Set(one.members.map((m) => m.node)).size;
    const left = one.unplaced.length, more = one.members.length - MOST_ROWS;
    const rest = left ? `, ${left} more ${left === 1 ? "has" : "have"} no room yet` : "";
    return [
      make("p", { class: "answer good" }, `${one.name} would start now`),
      make("p", { class: "hint" }, `${one.members.length} of ${many(all, "pod")} on ${many(nodes, "node")}${rest}`),
      table(["Pod", "Node", "Devices"], one.members.slice(0, MOST_ROWS).map((m) => [m.name,
        make("a", { href: "#node/" + encodeURIComponent(m.node) }, m.node), devices(m)])),
      ...(more > 0 ? [make("p", { class: "hint" }, `and ${more} more`)] : []),
    ];
  }
  if (one.starts === "unread") return [make("p", { class: "answer wrong" }, `${one.name} cannot be scheduled`), make("p", {}, one.problem)];
  const why = one.why;
  return [
    make("p", { class: "answer wrong" }, `${one.name} would not start now`),
    make("p", {}, why?.answer ?? ""),
    ...list("What would help", why?.cures),
    make("p", { class: "when" }, when(one, endless)),
    ...list("Reasons", (why?.reasons ?? []).map((r) => `${many(r.nodes, "node")}: ${r.reason} (${r.plugin})`)),
    ...(why?.near?.length ? [make("h3", {}, "Nearest misses"), table(["Node", "Resource", "Free", "Asked", "Held by"],
      why.near.map((n) => [n.node, n.resource, n.free, n.asked, n.heldBy.join(", ")]))] : []),
  ];
}

export function listen(onNodes) {
  const place = by("whatif-answer"), ask = by("whatif-ask");
  by("whatif-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (ask.disabled) return;
    ask.disabled = true;
    onNodes(new Set());
    fill(place, make("p", { class: "hint" }, "asking"));
    try {
      const body = {
        yaml: by("whatif-yaml").value, addNodes: Number(by("whatif-add").value) || 0, like: by("whatif-like").value.trim(),
        drain: names("whatif-drain"), without: names("whatif-without"), preempt: by("whatif-preempt").checked,
      };
      const answer = await fetch("/dashboard/whatif", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      if (!answer.ok) {
        fill(place, make("p", { class: "wrong" }, (await answer.text()).trim() || `refused: ${answer.status}`));
        return;
      }
      const found = await answer.json();
      fill(place,
        ...(found.changes.length ? [make("p", { class: "hint" }, `With ${found.changes.join("; ")}:`)] : []),
        ...found.gangs.flatMap((one) => gang(one, found.endless)),
        ...list("Of the YAML", found.notes),
        ...list(`It would evict ${many(found.evicted.length, "pod")}`, found.evicted));
      onNodes(new Set(found.gangs.flatMap((one) => one.members.map((m) => m.node))));
    } catch {
      fill(place, make("p", { class: "wrong" }, "The scheduler does not answer."));
    } finally {
      ask.disabled = false;
    }
  });
  by("whatif-yaml").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      by("whatif-form").requestSubmit();
    }
  });
}
