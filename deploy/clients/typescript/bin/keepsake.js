#!/usr/bin/env node
// Runs the program of the package for this platform, with the arguments and streams of this process.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

const platform = `keepsake-recall-${process.platform}-${process.arch}`;
let folder;
try {
  folder = dirname(createRequire(import.meta.url).resolve(`${platform}/package.json`));
} catch {
  console.error(
    `keepsake: the package ${platform}, which has the program, is not installed; ` +
      "install its file beside keepsake-recall",
  );
  process.exit(1);
}
const program = spawn(join(folder, "bin", "keepsake"), process.argv.slice(2), { stdio: "inherit" });
// The terminal sends an interrupt to both processes, a supervisor sends its signal to this one only.
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => program.kill(signal));
process.on("SIGINT", () => {});
program.on("error", (error) => {
  console.error(`keepsake: ${join(folder, "bin", "keepsake")} does not start: ${error.message}`);
  process.exit(1);
});
program.on("exit", (code, signal) => process.exit(code ?? (signal === "SIGKILL" ? 137 : 143)));
