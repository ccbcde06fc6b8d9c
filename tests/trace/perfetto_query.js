// Loads a trace into Perfetto's trace processor, the WebAssembly that Perfetto's own page runs, and asks it:
//   node perfetto_query.js UI_DIR TRACE SQL...
// UI_DIR holds engine_bundle.js and trace_processor.wasm. Prints a JSON array: of each query its rows, as objects.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [uiDir, trace, ...queries] = process.argv.slice(2);

// Protocol buffers, as far as the engine's calls need them: trace_processor.proto of Perfetto names the fields.
function varint(n) {
  const out = [];
  let v = BigInt(n);
  for (; v > 127n; v >>= 7n) out.push(Number(v & 127n) | 128);
  out.push(Number(v));
  return out;
}
const bytesField = (id, bytes) => Buffer.concat([Buffer.from([...varint(id * 8 + 2), ...varint(bytes.length)]), bytes]);
const intField = (id, n) => Buffer.from([...varint(id * 8), ...varint(n)]);

function* fields(buffer) {
  let at = 0;
  const number = () => {
    let v = 0n;
    for (let shift = 0n;; shift += 7n) {
      const b = buffer[at++];
      v |= BigInt(b & 127) << shift;
      if (b < 128) return v;
    }
  };
  while (at < buffer.length) {
    const key = Number(number());
    if ((key & 7) === 0) {
      yield [key >> 3, number()];
      continue;
    }
    const length = (key & 7) === 2 ? Number(number()) : (key & 7) === 1 ? 8 : 4;
    yield [key >> 3, buffer.subarray(at, at += length)];
  }
}

function varints(buffer) {
  const out = [];
  for (let at = 0; at < buffer.length;) {
    let v = 0n;
    for (let shift = 0n, b = 128; b > 127; shift += 7n) v |= BigInt((b = buffer[at++]) & 127) << shift;
    out.push(v);
  }
  return out;
}

function addBatch(batch, cells) {
  const part = {};
  for (const [id, value] of fields(batch)) part[id] = value;
  const ints = part[2] ? varints(part[2]).map(v => Number(BigInt.asIntN(64, v))) : [];
  const texts = part[5] ? part[5].toString().split('\0') : [];
  let doubles = 0;
  for (const cell of part[1] ? varints(part[1]) : []) {
    if (cell === 2n) cells.push(ints.shift());
    else if (cell === 3n) cells.push(part[3].readDoubleLE(8 * doubles++));
    else if (cell === 4n) cells.push(texts.shift());
    else cells.push(null);
  }
}

// The engine is a web worker's script: it gets the few globals of one, and no `process`, by which it would take itself
// to be elsewhere. It reads its module at once.
function startEngine() {
  const read = name => fs.readFileSync(path.join(uiDir, path.basename(name)));
  class XMLHttpRequest {
    open(method, name) { this.name = name; }
    send() { this.response = new Uint8Array(read(this.name)).buffer; }
  }
  const worker = {location: {href: ''}};
  const context = vm.createContext({
    self: worker,
    WorkerGlobalScope: function() {},
    console: {log() {}, warn() {}, error() {}},
    XMLHttpRequest, performance, setTimeout, TextDecoder, TextEncoder, URL,
  });
  vm.runInContext(read('engine_bundle.js').toString(), context);
  context.Bytes = vm.runInContext('Uint8Array', context);
  return {worker, Bytes: context.Bytes};
}

class TraceProcessor {
  constructor({worker, Bytes}) {
    this.Bytes = Bytes;
    this.port = {postMessage: bytes => this.receive(Buffer.from(bytes))};
    worker.onmessage({data: this.port});
  }

  // One request; the engine answers before it returns.
  call(method, ...extra) {
    this.answers = [];
    const request = Buffer.concat([intField(1, this.sequence = (this.sequence ?? -1) + 1), intField(2, method), ...extra]);
    this.port.onmessage({data: new this.Bytes(bytesField(1, request))});
    return this.answers;
  }

  receive(stream) {
    for (const [, message] of fields(stream)) {
      const answer = Object.fromEntries(fields(message));
      if (answer[5]) throw new Error(answer[5].toString());
      this.answers.push(answer);
    }
  }

  load(file) {
    const whole = fs.readFileSync(file);
    for (let at = 0; at < whole.length; at += 1 << 20) {
      for (const a of this.call(1, bytesField(101, whole.subarray(at, at + (1 << 20))))) this.check(a[201]);
    }
    for (const a of this.call(2)) this.check(a[211]);
  }

  check(result) {
    for (const [id, value] of fields(result ?? Buffer.alloc(0))) {
      if (id === 2) throw new Error(value.toString());
    }
  }

  query(sql) {
    const columns = [], cells = [];
    for (const a of this.call(3, bytesField(103, bytesField(1, Buffer.from(sql))))) {
      for (const [id, value] of fields(a[203] ?? Buffer.alloc(0))) {
        if (id === 1) columns.push(value.toString());
        if (id === 2 && value.length > 0) throw new Error(value.toString());
        if (id === 3) addBatch(value, cells);
      }
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += columns.length) {
      rows.push(Object.fromEntries(columns.map((c, i) => [c, cells[at + i]])));
    }
    return rows;
  }
}

const processor = new TraceProcessor(startEngine());
setImmediate(() => {  // the engine is ready when its promises are
  processor.load(trace);
  console.log(JSON.stringify(queries.map(sql => processor.query(sql))));
});
