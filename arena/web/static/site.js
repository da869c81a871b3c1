// Comforts of the pages, which work without them: countdowns, keys in a trace, and the check of one record.
"use strict";

function countdowns() {
  for (const one of document.querySelectorAll("time[data-at]")) {
    const left = Number(one.dataset.at) - Date.now();
    one.dataset.text ??= one.textContent;
    if (left <= 0 || left > 14 * 864e5) { one.textContent = one.dataset.text; continue; }
    const minutes = Math.floor(left / 6e4);
    const said = minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes ? `${minutes} min ` : ""}${Math.floor(left / 1e3) % 60} s`;
    one.textContent = `in ${said} (${one.dataset.text})`;
  }
}

const utf8 = (text) => new TextEncoder().encode(text);
const hex = (bytes) => [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
const join = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
async function digest(...parts) {
  if (!crypto.subtle) throw new Error("this browser hashes on encrypted pages alone; take the program below");
  return new Uint8Array(await crypto.subtle.digest("SHA-256", join(...parts)));
}
const sha256 = async (text) => hex(await digest(utf8(text)));
const unbase64 = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
const same = (one, other) => hex(one) === hex(other);
function unhex(text) {
  if (!/^[0-9a-f]{64}$/.test(text)) throw new Error("a hash is malformed");
  return Uint8Array.from(text.match(/../g), (one) => parseInt(one, 16));
}

// The canonical bytes stand in the answer as they were hashed: cut them out, for parsing and printing would change them.
function raw(text, key) {
  const start = text.indexOf(`"${key}":{`);
  if (start < 0) return null;
  const from = start + key.length + 3;
  let depth = 0, isText = false;
  for (let at = from; at < text.length; at++) {
    const one = text[at];
    if (isText) { if (one === "\\") at++; else if (one === '"') isText = false; continue; }
    if (one === '"') isText = true;
    else if (one === "{") depth++;
    else if (one === "}" && --depth === 0) return text.slice(from, at + 1);
  }
  return null;
}

function readNote(note, validator) {
  const [text, signed] = note.split("\n\n"), [origin, size, root, ...rest] = text.split("\n"), mark = `— ${origin} `;
  if (origin !== `agent-arena/log/1/${validator}` || !/^\d+$/.test(size) || rest.length || !signed.startsWith(mark)) throw new Error("the checkpoint is of another log");
  return { size: Number(size), root: unbase64(root) };
}

// From a leaf or subtree to the roots of the older and the newer tree (RFC 9162 sections 2.1.3.2 and 2.1.4.2).
async function fold(index, last, path, start) {
  let older = start, newer = start;
  for (const sibling of path) {
    if (index % 2 || index === last) {
      [older, newer] = [await digest([1], sibling, older), await digest([1], sibling, newer)];
      while (index && index % 2 === 0) [index, last] = [index / 2, Math.floor(last / 2)];
    } else newer = await digest([1], newer, sibling);
    [index, last] = [Math.floor(index / 2), Math.floor(last / 2)];
  }
  return last === 0 ? [older, newer] : [new Uint8Array(), new Uint8Array()];
}

class Uncovered extends Error {} // nothing was disproved: no checkpoint covers the record, or nobody answers

async function checkProof(proof, say) {
  const { validator, seq } = proof, name = utf8(validator), big = Array.from({ length: 8 }, (_, i) => Number((BigInt(seq) >> BigInt(56 - 8 * i)) & 255n));
  const message = join(utf8("agent-arena/record/1"), [name.length >> 8, name.length & 255], name, big, unhex(proof.prev), unhex(proof.content_sha256));
  const known = readNote(proof.checkpoint, validator);
  const [, root] = await fold(seq - 1, known.size - 1, proof.inclusion.map((one) => unhex(one)), await digest([0], message));
  if (seq > known.size) throw new Uncovered(`its checkpoint covers ${known.size} records, not record ${seq}`);
  say(same(root, known.root), `the record stands in the log with that checkpoint's root, ${hex(known.root).slice(0, 16)}…`);
  if (!proof.older) return;
  const first = readNote(proof.older.checkpoint, validator), path = proof.older.consistency.map((one) => unhex(one));
  let unit = 1; // leaves of the older tree's last complete subtree
  while (first.size && first.size % (2 * unit) === 0) unit *= 2;
  const start = first.size === unit ? first.root : path.shift();
  const [older, newer] = await fold(first.size / unit - 1, Math.floor((known.size - 1) / unit), path, start);
  say(first.size < known.size && same(older, first.root) && same(newer, known.root), `none of its first ${first.size} records was changed since`);
}

async function checkContent(validator, seq, signed, say) {
  const answer = await fetch(`/v1/trajectories/${validator}/${seq}`), text = await answer.text();
  if (!answer.ok) { say(null, "what the record holds is not public here, so only its place in the log was checked"); return; }
  const content = raw(text, "content"), body = raw(text, "body");
  say(content !== null && (await sha256(content)) === signed, `its bytes have the hash that is signed, ${signed.slice(0, 16)}…`);
  if (body !== null) say((await sha256(body)) === JSON.parse(content).payload.body_sha256, "its trace has the hash that the record names");
}

// Browsers have no sr25519: the program checks both signatures.
function sayCommand({ validator, seq }) {
  const address = `${location.origin}/proofs/${encodeURIComponent(validator)}/${seq}`;
  document.querySelector("#command code").textContent = `curl -o proof.json ${address}\npython verify_proof.py proof.json`;
  document.getElementById("command").hidden = false;
}

function check() {
  const form = document.getElementById("verify");
  if (!form) return;
  const list = document.getElementById("checks"), asked = new URLSearchParams(location.search);
  const say = (isGood, text) => {
    const line = document.createElement("li");
    line.className = isGood ? "yes" : isGood === null ? "wait" : "no";
    line.textContent = `${isGood === false ? "Does not hold: " : ""}${text}`;
    list.append(line);
  };
  const run = async (read) => {
    list.replaceChildren();
    list.setAttribute("aria-busy", "true");
    try {
      const proof = await read();
      await checkProof(proof, say);
      await checkContent(encodeURIComponent(proof.validator), proof.seq, proof.content_sha256, say);
      sayCommand(proof);
    } catch (error) { if (error instanceof Uncovered) say(null, `Can't be checked yet: ${error.message}`); else say(false, error.message); }
    list.setAttribute("aria-busy", "false");
  };
  const ofServer = async () => {
    const { validator, record } = form.elements;
    const answer = await fetch(`/proofs/${encodeURIComponent(validator.value)}/${encodeURIComponent(record.value.trim())}`).catch(() => null);
    if (!answer) throw new Uncovered("this server does not answer");
    const said = await answer.json();
    if (!answer.ok) throw new Uncovered(said.message.replace(/\b(\w{6})\w{36,}(\w{4})\b/, "$1…$2"));
    return said;
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); run(ofServer); });
  form.elements.proof.addEventListener("change", (event) => run(async () => JSON.parse(await event.target.files[0].text())));
  if (asked.get("record")) { [form.elements.validator.value, form.elements.record.value] = [asked.get("validator"), asked.get("record")]; run(ofServer); }
}

function walk(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !["j", "k"].includes(event.key) || event.target.closest("input, select")) return;
  const steps = [...document.querySelectorAll("dt[id^=span-]")], now = steps.findIndex((one) => `#${one.id}` === location.hash);
  const next = steps[now + (event.key === "j" ? 1 : -1)];
  if (next) location.hash = next.id;
}

document.addEventListener("keydown", walk);
countdowns();
setInterval(countdowns, 1000);
check();
