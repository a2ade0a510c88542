// Elements and words. Text from the cluster becomes text nodes, never markup.

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// Control characters and those that turn or hide text, as they would be written.
export function plain(text) {
  return String(text ?? "").replace(UNSEEN, (c) => "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0"));
}

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const child of children) made.append(child instanceof Node ? child : document.createTextNode(plain(child)));
  return made;
}

export function fill(place, ...children) {
  place.replaceChildren(...children);
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const s = Math.max(0, seconds);
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  if (s < 172800) return (s / 3600).toFixed(1) + " h";
  return Math.round(s / 86400) + " d";
}

export function share(value) {
  return value === null || value === undefined ? "–" : Math.round(value * 100) + "\u00a0%";
}

export function clock(at) {
  return new Date(at).toLocaleTimeString([], { hour12: false });
}

// The names in an address within this page. One that was typed or cut in the middle is what it is.
export function namesIn(parts) {
  return parts.map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

// As the address of a gang within this page; names contain no "/".
export function gangAddress(name) {
  return "#gang/" + name.split("/").map(encodeURIComponent).join("/");
}

// Of driver/pool; names of drivers contain no "/", those of pools may.
export function poolAddress(name) {
  const at = name.indexOf("/");
  return "#pool/" + [name.slice(0, at), name.slice(at + 1)].map(encodeURIComponent).join("/");
}

export function colour(number, dark) {
  const hue = (number * 137.508 + 205) % 360;
  const step = Math.floor(number / 12) % 3;
  return dark ? `hsl(${hue} 62% ${62 - step * 9}%)` : `hsl(${hue} 60% ${44 + step * 8}%)`;
}
