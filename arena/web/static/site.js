// Comforts of the pages, which work without them: countdowns, news, keys in a trace, and the check of one record.
"use strict";

function countdowns() {
  for (const one of document.querySelectorAll("time[data-at]")) {
    const left = Number(one.dataset.at) - Date.now();
    one.dataset.text ??= one.textContent;
    if (left <= 0 || left > 14 * 864e5) { one.textContent = one.dataset.text; continue; }
    const minutes = Math.floor(left / 6e4);
    const said = minutes >= 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes} min ${Math.floor(left / 1e3) % 60} s`;
    one.textContent = `in ${said} (${one.dataset.text})`;
  }
}

async function renew() {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  const main = document.querySelector("main");
  if (fresh && fresh.innerHTML !== main.innerHTML) { main.innerHTML = fresh.innerHTML; countdowns(); }
}

function watch() {
  if (!/^\/(races(\/[^/]+)?|validators|firehose)?$/.test(location.pathname)) return;
  const news = new EventSource("/news");
  let isFirst = true;
  news.addEventListener("picture", () => { if (!isFirst) renew(); isFirst = false; });
  addEventListener("pagehide", () => news.close());
}

function keys() {
  const steps = [...document.querySelectorAll("dt[id^=span-]")];
  if (!steps.length) return;
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
    const way = { j: 1, k: -1 }[event.key];
    if (!way) return;
    const now = steps.findIndex((one) => `#${one.id}` === location.hash);
    const next = steps[Math.min(steps.length - 1, Math.max(0, now + way))];
    location.hash = next.id;
  });
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
function unhex(text, size = 32) {
  if (text.length !== 2 * size || !/^[0-9a-f]*$/.test(text)) throw new Error("a hash or signature is malformed");
  return Uint8Array.from(text.match(/../g), (one) => parseInt(one, 16));
}

// sr25519, which browsers do not have: schnorrkel over ristretto255 (RFC 9496) with Merlin's transcript (STROBE, Keccak).
// As arena/records/verify/verify_proof.py does it, line by line; nothing here is secret, so time does not matter.
const P = 2n ** 255n - 19n, L = 2n ** 252n + 27742317777372353535851937790883648493n, LANE = 2n ** 64n - 1n;
const mod = (a, m = P) => ((a % m) + m) % m;
const number = (bytes) => [...bytes].reduceRight((sum, one) => (sum << 8n) | BigInt(one), 0n);
const rotate = (lane, bits) => ((lane << BigInt(bits % 64)) | (lane >> BigInt(64 - (bits % 64)))) & LANE;
function power(base, exponent) {
  let found = 1n;
  for (let b = mod(base), e = exponent; e; e >>= 1n, b = (b * b) % P) if (e & 1n) found = (found * b) % P;
  return found;
}
const ROOT = power(2n, (P - 1n) / 4n), D = mod(-121665n * power(121666n, P - 2n));
const BASE = unhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76");

function keccak(state) {
  let a = Array.from({ length: 25 }, (_, i) => number(state.slice(8 * i, 8 * i + 8))), register = 1;
  for (let round = 0; round < 24; round++) {
    const c = [0, 1, 2, 3, 4].map((x) => a[x] ^ a[x + 5] ^ a[x + 10] ^ a[x + 15] ^ a[x + 20]);
    a = a.map((lane, i) => lane ^ c[(i + 4) % 5] ^ rotate(c[(i + 1) % 5], 1));
    let x = 1, y = 0, moved = a[1];
    for (let t = 0; t < 24; t++) {
      [x, y] = [y, (2 * x + 3 * y) % 5];
      [moved, a[x + 5 * y]] = [a[x + 5 * y], rotate(moved, ((t + 1) * (t + 2)) / 2)];
    }
    a = a.map((lane, i) => lane ^ (~a[i - (i % 5) + ((i + 1) % 5)] & LANE & a[i - (i % 5) + ((i + 2) % 5)]));
    for (let j = 0; j < 7; j++) {
      register = ((register << 1) ^ ((register >> 7) * 0x171)) % 256;
      if (register & 2) a[0] ^= 1n << BigInt((1 << j) - 1);
    }
  }
  return Uint8Array.from(a.flatMap((lane) => Array.from({ length: 8 }, (_, i) => Number((lane >> BigInt(8 * i)) & 255n))));
}

function permute(state, at, begin) {
  for (const [place, byte] of [[at, begin], [at + 1, 4], [167, 128]]) state[place] ^= byte;
  return keccak(state);
}

function challenge(parts) {
  const size = (count) => [count & 255, (count >> 8) & 255, (count >> 16) & 255, count >>> 24];
  const steps = [[18, utf8("Merlin v1.0")]];
  for (const [label, message] of parts) steps.push([18, join(utf8(label), size(message.length))], [2, message]);
  steps.push([18, join(utf8("sign:c"), size(64))], [7, []]);
  let state = keccak(join([1, 168, 1, 0, 1, 96], utf8("STROBEv1.0.2"), new Uint8Array(182))), at = 0, begin = 0;
  for (const [flags, data] of steps) {
    const block = join([begin, flags], data);
    begin = at + 1;
    for (const byte of block) {
      state[at++] ^= byte;
      if (at === 166) [state, at, begin] = [permute(state, at, begin), 0, 0];
    }
  }
  return mod(number((at ? permute(state, at, begin) : state).slice(0, 64)), L);
}

function point(bytes) {
  const s = number(bytes), u1 = mod(1n - s * s), u2 = mod(1n + s * s), v = mod(-D * u1 * u1 - u2 * u2), w = mod(v * u2 * u2);
  let root = mod(power(w, 3n) * power(power(w, 7n), (P - 5n) / 8n));
  if (mod(w * root * root) === P - 1n) root = mod(root * ROOT);
  let x = mod(2n * s * root * u2);
  const y = mod(u1 * root * root * u2 * v);
  if (x & 1n) x = P - x;
  if (s >= P || s & 1n || mod(w * root * root) !== 1n || !y || mod(x * y) & 1n) throw new Error("no point of the curve");
  return [x, y, 1n, mod(x * y)];
}

function add(p, q) {
  const a = (p[1] - p[0]) * (q[1] - q[0]), b = (p[1] + p[0]) * (q[1] + q[0]), c = 2n * D * p[3] * q[3], d = 2n * p[2] * q[2];
  return [mod((b - a) * (d - c)), mod((d + c) * (b + a)), mod((d - c) * (d + c)), mod((b - a) * (b + a))];
}

function multiply(scalar, base) {
  let total = [0n, 1n, 1n, 0n];
  for (const bit of scalar.toString(2)) { total = add(total, total); if (bit === "1") total = add(total, base); }
  return total;
}

// The address's own checksum is not looked at: the key that it names signed, or did not.
function isSigned(address, message, signature) {
  const letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
  const whole = [...address].reduce((sum, one) => sum * 58n + BigInt(letters.indexOf(one)), 0n);
  const key = unhex(whole.toString(16).padStart(70, "0").slice(2, 66)), s = number(signature.slice(32)) ^ (1n << 255n);
  if (signature.length !== 64 || s >= L) return false;
  const k = challenge([["dom-sep", utf8("SigningContext")], ["", utf8("substrate")], ["sign-bytes", message],
    ["proto-name", utf8("Schnorr-sig")], ["sign:pk", key], ["sign:R", signature.slice(0, 32)]]);
  const [x1, y1] = multiply(s, point(BASE)), [x2, y2] = add(point(signature.slice(0, 32)), multiply(k, point(key)));
  return mod(x1 * y2 - y1 * x2) === 0n || mod(y1 * y2 - x1 * x2) === 0n;
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
  const isGood = isSigned(validator, utf8(`${text}\n`), unbase64(signed.slice(mark.length).trim()).slice(4));
  return { size: Number(size), root: unbase64(root), isGood };
}

// From a subtree to the roots of the older and the newer tree (RFC 9162 sections 2.1.3.2 and 2.1.4.2).
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

async function checkProof(proof, say) {
  const { validator, seq } = proof, name = utf8(validator), big = Array.from({ length: 8 }, (_, i) => Number((BigInt(seq) >> BigInt(56 - 8 * i)) & 255n));
  const message = join(utf8("agent-arena/record/1"), [name.length >> 8, name.length & 255], name, big, unhex(proof.prev), unhex(proof.content_sha256));
  say(isSigned(validator, message, unhex(proof.signature, 64)), `record ${seq} is signed by ${validator}`);
  const known = readNote(proof.checkpoint, validator);
  say(known.isGood, `the checkpoint of ${known.size} records is signed by the same key`);
  const [, root] = await fold(seq - 1, known.size - 1, proof.inclusion.map((one) => unhex(one)), await digest([0], message));
  say(seq <= known.size && same(root, known.root), `the record stands in the log with that checkpoint's root, ${hex(known.root).slice(0, 16)}…`);
  if (!proof.older) return;
  const first = readNote(proof.older.checkpoint, validator), path = proof.older.consistency.map((one) => unhex(one));
  let levels = 0;
  while (Math.floor(first.size / 2 ** levels) % 2 === 0) levels++;
  const start = first.size === 2 ** levels ? first.root : path.shift();
  const [older, newer] = await fold(Math.floor((first.size - 1) / 2 ** levels), Math.floor((known.size - 1) / 2 ** levels), path, start);
  say(first.isGood && first.size < known.size && same(older, first.root) && same(newer, known.root), `nothing of its first ${first.size} records was changed since the older checkpoint`);
}

async function checkContent(validator, seq, signed, say) {
  const answer = await fetch(`/v1/trajectories/${validator}/${seq}`), text = await answer.text();
  if (!answer.ok) { say(true, "what the record holds is not public here, so only its place in the log was checked"); return; }
  const content = raw(text, "content"), body = raw(text, "body");
  say(content !== null && (await sha256(content)) === signed, `its bytes have the hash that is signed, ${signed.slice(0, 16)}…`);
  if (body !== null) say((await sha256(body)) === JSON.parse(content).payload.body_sha256, "its trace has the hash that the record names");
}

function check() {
  const form = document.getElementById("verify");
  if (!form) return;
  const list = document.getElementById("checks"), asked = new URLSearchParams(location.search);
  const say = (isGood, text) => {
    const line = document.createElement("li");
    line.className = isGood ? "yes" : "no";
    line.textContent = `${isGood ? "" : "Does not hold: "}${text}`;
    list.append(line);
  };
  const run = async (read) => {
    list.replaceChildren();
    list.setAttribute("aria-busy", "true");
    try {
      const proof = await read();
      await checkProof(proof, say);
      await checkContent(encodeURIComponent(proof.validator), proof.seq, proof.content_sha256, say);
    } catch (error) { say(false, error.message); }
    list.setAttribute("aria-busy", "false");
  };
  const ofServer = async () => {
    const { validator, record } = form.elements;
    const answer = await fetch(`/proofs/${encodeURIComponent(validator.value)}/${encodeURIComponent(record.value.trim())}`);
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.message);
    return said;
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); run(ofServer); });
  form.elements.proof.addEventListener("change", (event) => run(async () => JSON.parse(await event.target.files[0].text())));
  if (asked.get("record")) { [form.elements.validator.value, form.elements.record.value] = [asked.get("validator"), asked.get("record")]; run(ofServer); }
}

countdowns();
setInterval(countdowns, 1000);
watch();
keys();
check();
