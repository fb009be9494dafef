// The work of `crates/shell/examples/speed.rs` in just-bash; reads and prints
// what `shell_bashkit.py` does.
import { readFileSync } from "node:fs";
import { Bash } from "just-bash";

const asked = JSON.parse(readFileSync(0, "utf8"));
const files = Object.fromEntries(Object.entries(asked.files).map(([name, text]) => [`/${name}`, text]));
const wide = { maxCommandCount: 1e9, maxLoopIterations: 1e9, maxExecutionTimeMs: 600_000 };

async function best(make, script) {
  let least = Infinity;
  let said = "";
  for (let round = 0; round < asked.rounds; round++) {
    const shell = make();
    const start = performance.now();
    const result = await (shell ?? new Bash({ executionLimits: wide })).exec(script, { cwd: "/" });
    least = Math.min(least, performance.now() - start);
    said = result.stdout.trim();
  }
  return [least, said];
}

const say = (name, [ms, said]) => console.log(`${name}\t${ms.toFixed(3)}\t${said}`);
say("new shell and echo", await best(() => null, "echo hi"));
const shell = new Bash({ files, cwd: "/", executionLimits: wide });
for (const [name, script] of asked.work) {
  say(name, await best(() => shell, `cd /; rm -rf new; ${script}`));
}
